"""POST /v1/chat/completions/render and /v1/completions/render: what a request would send to the engine."""
