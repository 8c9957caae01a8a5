"""From text to events: reasoning, content and tool calls. Plain objects, no I/O."""
