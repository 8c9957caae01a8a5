"""Engines: the link to them over vLLM's wire, who starts and watches them, and the two of our own."""
