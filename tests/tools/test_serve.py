"""The small web server: compressed where that helps, the same content either way."""

from __future__ import annotations

import gzip
import http.client
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.serve import server_of

TEXT = "<p>one</p>\n" * 500


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site of a page in a folder, a style, a font and a page for what is missing."""
    (tmp_path / "inner").mkdir()
    for name in ("index.html", "inner/index.html", "a.css"):
        (tmp_path / name).write_text(TEXT, encoding="utf-8")
    (tmp_path / "font.woff2").write_bytes(b"\x00\x01" * 500)
    (tmp_path / "404.html").write_text('<base href="/elsewhere/"><p>no page</p>', encoding="utf-8")
    return tmp_path


@pytest.fixture
def connection(folder: Path) -> Iterator[http.client.HTTPConnection]:
    """One open connection to a server of it."""
    with server_of(folder, quiet=True) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        opened = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        yield opened
        opened.close()
        server.shutdown()
        thread.join()


def ask(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """The answer to a request, with its body."""
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read()


@pytest.mark.parametrize("path", ["/", "/index.html?q=1", "/inner/", "/a.css"])
def test_text_is_compressed_for_who_can_read_it(
    connection: http.client.HTTPConnection, path: str
) -> None:
    plain, body = ask(connection, path)
    assert plain.status == 200 and plain.getheader("Content-Encoding") is None
    assert body.decode() == TEXT
    answer, packed = ask(connection, path, **{"Accept-Encoding": "gzip, br"})
    assert answer.status == 200 and answer.getheader("Content-Encoding") == "gzip"
    assert answer.getheader("Content-Type") == plain.getheader("Content-Type")
    assert int(answer.getheader("Content-Length") or 0) == len(packed) < len(body) / 10
    assert answer.getheader("Vary") == "Accept-Encoding"
    assert gzip.decompress(packed) == body


def test_a_font_is_sent_as_it_is(connection: http.client.HTTPConnection, folder: Path) -> None:
    answer, body = ask(connection, "/font.woff2", **{"Accept-Encoding": "gzip"})
    assert answer.getheader("Content-Encoding") is None
    assert body == (folder / "font.woff2").read_bytes()


def test_a_connection_stays_open(connection: http.client.HTTPConnection) -> None:
    ask(connection, "/")
    before = connection.sock
    assert before is not None
    for path in ("/a.css", "/font.woff2", "/nowhere"):
        answer, _ = ask(connection, path, **{"Accept-Encoding": "gzip"})
        assert answer.version == 11
    assert connection.sock is before


def test_head_has_no_body(connection: http.client.HTTPConnection) -> None:
    answer, body = ask(connection, "/", "HEAD", **{"Accept-Encoding": "gzip"})
    assert answer.getheader("Content-Encoding") == "gzip" and body == b""


def test_a_changed_file_is_sent_anew(connection: http.client.HTTPConnection, folder: Path) -> None:
    ask(connection, "/a.css", **{"Accept-Encoding": "gzip"})
    (folder / "a.css").write_text("new", encoding="utf-8")
    os.utime(folder / "a.css", ns=(1, 1))
    _, packed = ask(connection, "/a.css", **{"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed) == b"new"


@pytest.mark.parametrize("path", ["/nowhere", "/inner/nowhere.html", "/../conftest.py"])
def test_a_missing_path_gets_the_book_s_page(
    connection: http.client.HTTPConnection, path: str
) -> None:
    answer, body = ask(connection, path, **{"Accept-Encoding": "gzip"})
    assert answer.status == 404
    assert body == b'<base href="/"><p>no page</p>'


def test_only_this_machine_is_served(folder: Path) -> None:
    with server_of(folder) as server:
        assert server.server_address[0] == "127.0.0.1"
