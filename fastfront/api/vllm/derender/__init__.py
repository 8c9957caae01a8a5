"""POST /v1/chat/completions/derender and /v1/completions/derender: an engine's token ids to the API's answer."""
