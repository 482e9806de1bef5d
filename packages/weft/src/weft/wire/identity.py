"""The operating system's user that an attempt runs as."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.base.errors import WireError
from weft.frozen import frozen

UMASK = 0o077


@frozen
class Identity:
    """A user by numbers; `groups` are the supplementary ones. It need not be in /etc/passwd.

    `home` empty means the job's working directory. Files are made with `umask`.
    """

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = ""
    umask: int = UMASK

    def as_json(self) -> dict[str, Any]:
        """Plain values, as `read` reads them."""
        return asdict(self)

    @classmethod
    def read(cls, body: Any) -> Identity:
        """The identity that `as_json` wrote."""
        try:
            return cls(**{**body, "groups": tuple(body["groups"])})
        except (KeyError, TypeError) as error:
            raise WireError(f"not a user to run as: {body!r}") from error

    def variables(self, workdir: str) -> dict[str, str]:
        """Variables that a login would set."""
        name = self.name or str(self.uid)
        return {"HOME": self.home or workdir, "USER": name, "LOGNAME": name}
