"""The OpenAI dialect, with vLLM's additions and its Python frontend's answers."""
