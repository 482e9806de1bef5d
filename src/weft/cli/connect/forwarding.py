"""Connections to a port here, carried to a job's."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from weft.cli.connect.client import Client, at
from weft.cli.connect.duplex import Talk
from weft.core.errors import InvalidConfig, WeftError


class Forwarding:
    """Listens here from the moment it is made; a thread a connection.

    With `local` None on the job's port, or on any other where that is taken: by the job itself, if
    it runs on this machine.
    """

    def __init__(
        self, client: Client, job: str, port: int, local: int | None, say: Callable[[str], None]
    ) -> None:
        self._client, self._path, self._say = client, at("jobs", job, "ports", str(port)), say
        try:
            self._listener = _listen(port) if local is None else _listen_on(local)
        except (OSError, OverflowError) as error:
            raise InvalidConfig(
                f"cannot listen on port {local} here: {error}", hint="choose another with --local"
            ) from error
        self.local: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Carry connections until someone ends us."""
        with self._listener:
            while True:
                conversation, _ = self._listener.accept()
                threading.Thread(target=self._one, args=(conversation,), daemon=True).start()

    def _one(self, conversation: socket.socket) -> None:
        with conversation:
            try:
                talk = self._client.talk(self._path)
            except WeftError as error:
                self._say(f"a connection was refused: {error.what}")
                return
            with suppress(OSError, EOFError):
                _carry(conversation, talk)
            talk.close()


def _listen(wanted: int) -> socket.socket:
    """On this port, or on any if it is taken."""
    try:
        return _listen_on(wanted)
    except OSError:
        return _listen_on(0)


def _listen_on(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def _carry(conversation: socket.socket, talk: Talk) -> None:
    """Bytes both ways until both sides have said all."""
    with selectors.DefaultSelector() as select:
        select.register(conversation, selectors.EVENT_READ)
        select.register(talk, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in select.select(0.0 if talk.pending else None)}
            if conversation in ready:
                part = conversation.recv(1 << 16)
                if part:
                    talk.send(part)
                else:
                    talk.finish()
                    select.unregister(conversation)
            if talk in ready or talk.pending:
                conversation.sendall(talk.receive())
