"""A mock engine on vLLM 0.32's wire: a process of its own that joins a frontend and answers with made-up tokens."""
