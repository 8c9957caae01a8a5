"""HTTP/1.1 over TCP, unix sockets and TLS: bytes to `flow.HttpRequest`, answers to bytes. Knows no API."""
