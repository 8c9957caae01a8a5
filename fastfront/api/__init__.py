"""The API dialects: from an HTTP request to a generation, and from its choices to bytes. The only JSON shapes."""
