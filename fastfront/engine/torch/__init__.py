"""The built-in engine: Llama, Qwen2, Qwen3 and Mistral on torch, behind the wire that vLLM's engines speak."""
