"""vLLM's own routes beside the OpenAI ones."""
