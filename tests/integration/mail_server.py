"""A mail server in a thread: enough of SMTP to take mail over a real connection."""

from __future__ import annotations

import base64
import queue
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class Post:
    """What came in: mails, their envelopes, and who logged in. `busy` refuses that many first."""

    port: int = 0
    mails: queue.Queue[EmailMessage] = field(default_factory=queue.Queue)
    envelopes: list[list[str]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    busy: int = 0


class Conversation(socketserver.StreamRequestHandler):
    """One client of the server."""

    post: Post

    def say(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\r\n")

    def handle(self) -> None:
        self.say("220 here")
        self.envelope: list[str] = []
        while line := self.rfile.readline():
            word = line.decode().strip()
            self.say(self.answer(word))
            if word.upper() == "QUIT":
                return

    def answer(self, word: str) -> str:
        match word.split(" ")[0].upper():
            case "EHLO":
                self.say("250-here")
                return "250 AUTH PLAIN"
            case "AUTH":
                self.post.logins.append(base64.b64decode(word.split(" ")[2]).decode())
                return "235 come in"
            case "MAIL" if self.post.busy:
                self.post.busy -= 1
                return "451 busy"
            case "MAIL" | "RCPT":
                self.envelope.append(word)
            case "DATA":
                self.say("354 go on")
                self.take()
            case "QUIT":
                return "221 bye"
        return "250 fine"

    def take(self) -> None:
        body = b""
        while (line := self.rfile.readline()) != b".\r\n":
            body += line
        self.post.envelopes.append(self.envelope)
        mail = message_from_bytes(body, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.post.mails.put(mail)


@contextmanager
def mail_server(post: Post) -> Iterator[Post]:
    handler = type("Handler", (Conversation,), {"post": post})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        post.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield post
        finally:
            server.shutdown()
            thread.join()
