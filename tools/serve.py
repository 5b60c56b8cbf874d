"""Serve the built book on this machine: `make serve`, `make serve PORT=8001`."""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent / "_build" / "html"


def main(port: int) -> int:
    """Serve until interrupted and return the exit status."""
    try:
        server = ThreadingHTTPServer(
            ("127.0.0.1", port), partial(SimpleHTTPRequestHandler, directory=str(BOOK))
        )
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
