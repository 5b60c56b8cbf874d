"""Serve the built book on this machine: `make serve`, `make serve PORT=8001`."""

from __future__ import annotations

import re
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent / "_build" / "html"


class Handler(SimpleHTTPRequestHandler):
    """A folder's files; a path that is missing gets 404.html, as on GitHub Pages."""

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


def main(port: int) -> int:
    """Serve until interrupted and return the exit status."""
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(BOOK)))
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
