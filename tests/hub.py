"""A hub of one model on this machine, for the real client of the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub_of(name: str, files: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the paths that have been asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(False)

        def do_GET(self) -> None:
            self._answer(True)

        def _answer(self, whole: bool) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            if path in (f"/api/models/{name}", f"/api/models/{name}/revision/main"):
                siblings = [{"rfilename": file, "size": len(data), "blobId": "x"} for file, data in files.items()]
                self._send(200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings}).encode(), whole)
                return
            if path == f"/api/models/{name}/tree/{COMMIT}":
                tree = [
                    {"type": "file", "path": file, "size": len(data), "oid": "x"} for file, data in files.items()
                ]
                self._send(200, json.dumps(tree).encode(), whole)
                return
            file = path.removeprefix(f"/{name}/resolve/").partition("/")[2]
            if file in files and path.startswith(f"/{name}/resolve/"):
                self._send(200, files[file], whole)
            else:
                self._send(404, b"{}", whole)

        def _send(self, status: int, data: bytes, whole: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if whole:
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
