"""A systemd unit of the user's own: the service starts with the machine, and after a fall."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from weft.core.errors import InvalidConfig

UNIT = "weft.service"
TEXT = """\
[Unit]
Description=Weft, a scheduler for deep-learning jobs

[Service]
Type=notify
WatchdogSec=120
ExecStart={command}
Restart=on-failure
RestartSec=2
# Jobs go on while the service restarts, and it finds them again.
KillMode=process
TimeoutStopSec=30
LimitNOFILE=65536
Delegate=yes

[Install]
WantedBy=default.target
"""


def install(options: str) -> tuple[Path, Path, str]:
    """Write the options and a unit that serves with them; both files, and what switches it on."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    config, unit = home / "weft" / "serve.toml", home / "systemd" / "user" / UNIT
    command = [sys.executable, "-m", "weft", "serve", "--config", str(config)]
    text = TEXT.format(command=" ".join(map(quote, command)))
    try:
        for path, content in ((config, options), (unit, text)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_text(content)
    except OSError as error:
        raise InvalidConfig(f"cannot write {error.filename}: {error.strerror}") from error
    switch = f"systemctl --user daemon-reload && systemctl --user enable --now {UNIT}"
    return config, unit, f"{switch} && loginctl enable-linger"


def quote(word: str) -> str:
    """A word as systemd reads it in a command."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
