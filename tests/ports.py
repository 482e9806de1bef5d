"""Ports for servers that are started later."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One that nothing listens on, and that no connection of another test is given meanwhile."""
    first = int(GIVEN_OUT.read_text().split()[0])
    while True:
        port = 10_000 + secrets.randbelow(first - 10_000)  # whatever is seeded
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


def free_ports(count: int) -> list[int]:
    """Several, all different."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return [*ports]
