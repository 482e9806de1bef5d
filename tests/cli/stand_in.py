"""A service of few words: answers by method and path, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from weft.service.responses.json_values import plain


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str


@dataclass
class StandIn:
    """`answers` maps "GET /jobs" to (status, body), or to a list of those, one after another."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    retry_after: str = ""

    def answer(self, asked: Asked) -> tuple[int, Any]:
        self.asked.append(asked)
        prepared = self.answers.get(f"{asked.method} {asked.path}")
        if isinstance(prepared, list):
            prepared = prepared.pop(0) if len(prepared) > 1 else prepared[0]
        if callable(prepared):
            prepared = prepared(asked)
        return prepared or (404, {"error": f"no {asked.path}", "hint": ""})


@contextmanager
def stand_in(answers: dict[str, Any]) -> Iterator[StandIn]:
    service = StandIn(answers=answers)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                self.command,
                parts.path.removeprefix("/api/v1"),
                dict(parse_qsl(parts.query)),
                json.loads(self.rfile.read(length)) if length else None,
                self.headers.get("Authorization", ""),
            )
            status, body = service.answer(asked)
            data = body if isinstance(body, bytes) else json.dumps(body, default=plain).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if service.retry_after:
                self.send_header("Retry-After", service.retry_after)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
