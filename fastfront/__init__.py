"""fastfront: the front half of LLM serving, from HTTP bytes to token ids and back to streamed text."""

__version__ = "0.1.0"
