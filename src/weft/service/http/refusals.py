"""An answer other than success, raised from anywhere behind a route."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - what is said, not what broke
    """An answer other than success; `retry_s` says when to ask again."""

    def __init__(
        self, status: int, what: str, hint: str = "", field: str = "", retry_s: float = 0.0
    ) -> None:
        super().__init__(what)
        self.status, self.what, self.hint, self.field = status, what, hint, field
        self.retry_s = retry_s
