"""Whether a service on this machine is just being started, so that it is worth waiting for."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

PROC = Path("/proc")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
YOUNG_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


def is_starting(url: str) -> bool:
    """Whether somebody typed `weft serve` here a moment ago, for this address as far as is known.

    False where the system does not say what runs.
    """
    address = urlsplit(url)
    if address.hostname not in LOOPBACK:
        return False
    return any(
        _serves(words, address.port) and _age_s(process) < YOUNG_S for process, words in _commands()
    )


def _commands() -> list[tuple[Path, list[str]]]:
    commands = []
    for process in PROC.glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "serve" in text:
            commands.append((process, text.split("\0")))
    return commands


def _serves(words: list[str], port: int | None) -> bool:
    """`python /somewhere/weft serve ...` or `python -m weft serve ...`, not for another port."""
    if "serve" not in words or not any(Path(word).name == "weft" for word in words[:3]):
        return False
    named = words[words.index("--port") + 1] if "--port" in words[:-1] else ""
    return named in ("", str(port))


def _age_s(process: Path) -> float:
    try:
        began = int((process / "stat").read_text().rpartition(")")[2].split()[19]) / TICKS
        return float((PROC / "uptime").read_text().split()[0]) - began
    except (OSError, ValueError, IndexError):
        return float("inf")
