"""Serve the built book on this machine: `make serve`, `make serve PORT=8001`.

Text goes out compressed and connections stay open, as on the hosts that such a book is put on, so
that what is measured here is what a reader gets there.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from functools import lru_cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

BOOK = Path(__file__).resolve().parent.parent / "_build" / "html"
COMPRESSED = {".css", ".html", ".inv", ".ipynb", ".js", ".json", ".svg", ".txt", ".xml"}


@lru_cache(maxsize=1024)
def compressed(path: Path, changed_ns: int) -> bytes:
    """Return a file's content, compressed; `changed_ns` is when it last changed."""
    return gzip.compress(path.read_bytes(), mtime=0)


class Handler(SimpleHTTPRequestHandler):
    """A folder's files, text compressed; a missing path gets 404.html, as on GitHub Pages."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Send the headers and return the body, as the base class does."""
        path = Path(self.translate_path(self.path))
        if path.is_dir() and self.path.split("?")[0].endswith("/"):
            path /= "index.html"
        accepted = self.headers.get("Accept-Encoding", "")
        if path.suffix not in COMPRESSED or "gzip" not in accepted or not path.is_file():
            return super().send_head()
        body = compressed(path, path.stat().st_mtime_ns)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Vary", "Accept-Encoding")
        self.end_headers()
        return io.BytesIO(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the book's own page where a file is missing, and the usual one otherwise."""
        page = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND or not page.is_file():
            super().send_error(code, message, explain)
            return
        # The page names the path at which the book is published; here it stands at the root.
        body = re.sub(rb'<base href="[^"]*">', b'<base href="/">', page.read_bytes())
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class QuietHandler(Handler):
    """The same, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def server_of(folder: Path, port: int = 0, *, quiet: bool = False) -> ThreadingHTTPServer:
    """Return a server of a folder, at 127.0.0.1 alone; port 0 is any that is free.

    Raises:
        OSError: the port is taken, or not allowed.
    """
    handler = QuietHandler if quiet else Handler
    return ThreadingHTTPServer(("127.0.0.1", port), partial(handler, directory=str(folder)))


def main(port: int) -> int:
    """Serve until interrupted and return the exit status."""
    try:
        server = server_of(BOOK, port)
    except OSError as error:
        print(f"Cannot serve on port {port}: {error.strerror}. Try make serve PORT={port + 1}")
        return 1
    print(f"The book is served at http://127.0.0.1:{server.server_port}/ until Ctrl-C", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
