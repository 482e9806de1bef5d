"""One HTTP request whose body and answer go on at the same time: a terminal, a forwarded port.

The standard library's client finishes its body before it reads; so the few lines of HTTP that this
takes are here.
"""

from __future__ import annotations

import socket
import ssl
from http import HTTPStatus
from urllib.parse import urlsplit

CONNECT_S = 30.0
LONGEST_HEAD = 1 << 16
PIECE = 1 << 15


class CannotTalk(Exception):  # noqa: N818 - what is said, not what broke
    """The service answered with an error."""

    def __init__(self, status: int, answer: bytes) -> None:
        super().__init__(f"answered with {status}")
        self.status, self.answer = status, answer


class Talk:
    """Bytes both ways; read when `fileno` is readable or `pending` is true."""

    def __init__(self, connection: socket.socket, rest: bytes) -> None:
        self._socket = connection
        self._rest = rest
        self._chunk = 0  # bytes that the chunk we are in still has
        self._over = False
        self._fresh = bool(rest)  # it came with the head, and has not been looked at

    @classmethod
    def begin(cls, url: str, path: str, token: str, trust: ssl.SSLContext | None) -> Talk:
        """Ask, and wait until the answer begins; CannotTalk or OSError if it does not."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connection = socket.create_connection((host, port), timeout=CONNECT_S)
        if trust is not None:
            connection = trust.wrap_socket(connection, server_hostname=host)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Content-Type: application/octet-stream",
            "Transfer-Encoding: chunked",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        head, rest = _read_head(connection)
        status = int(head.split(b" ", 2)[1])
        talk = cls(connection, rest)
        if status != HTTPStatus.OK:
            connection.sendall(b"0\r\n\r\n")
            raise CannotTalk(status, _read_plain(connection, head, rest))
        return talk

    def fileno(self) -> int:
        """Return the socket's number, for a selector."""
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        """Return true if something can be read that a selector does not see."""
        inside = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return self._fresh or inside > 0

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            self._socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def finish(self) -> None:
        """End the sending side of the connection."""
        self._socket.sendall(b"0\r\n\r\n")

    def receive(self) -> bytes:
        """Return the bytes that have come, perhaps none yet; raise EOFError at the end."""
        message = self._take()
        if not message and not self._over:
            more = self._socket.recv(1 << 16)
            if not more:
                raise EOFError
            self._rest += more
            message = self._take()
        if self._over and not message:
            raise EOFError
        return message

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> bytes:
        """The bytes of all chunks, or parts of them, that are here."""
        message, self._fresh = b"", False
        while self._rest and not self._over:
            if self._chunk:
                part = self._rest[: self._chunk]
                message += part
                self._rest = self._rest[len(part) :]
                self._chunk -= len(part)
                continue
            line, whole, rest = self._rest.removeprefix(b"\r\n").partition(b"\r\n")
            if not whole:
                break
            self._chunk, self._rest = int(line.split(b";")[0], 16), rest
            self._over = self._chunk == 0
        return message


def _read_head(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 14)
        if not more or len(data) > LONGEST_HEAD:
            raise ConnectionError("the connection ended before the answer began")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _read_plain(connection: socket.socket, head: bytes, rest: bytes) -> bytes:
    """The body of an answer that says how long it is."""
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    length = int(fields.get(b"content-length", b"0"))
    while len(rest) < length and (more := connection.recv(1 << 14)):
        rest += more
    connection.close()
    return rest[:length]
