"""Grammars that hold an answer to tool calls in the format of its parser."""
