"""Everything that a client raises on purpose.

ClientError
├── Unreachable     no service answers at the address
├── Untrusted       the server there cannot prove its identity
├── Refused         the service will not do it; `status` and `field` say more
├── ServiceFailed   the service could not do it, or what answers is not Weft
├── Misused         a call that cannot be what was meant
├── JobFailed       a job has failed; the last lines of its output are in the message
├── JobCancelled    a job was cancelled
└── NoResult        a function's job ended, and what it returned cannot be read
"""

from __future__ import annotations


class ClientError(Exception):
    """An error message, with a hint that fixes it."""

    def __init__(self, what: str, hint: str = "") -> None:  # by position: errors travel as pickles
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  hint: {self.hint}" if self.hint else self.what


class Unreachable(ClientError):  # noqa: N818 - reads better at the call site
    """The service does not answer; `nobody` says that nothing listens at its address."""

    nobody = False


class Untrusted(ClientError):  # noqa: N818
    """The server at that address cannot prove its identity."""


class Refused(ClientError):  # noqa: N818
    """The service will not do it; `status` is HTTP's, `field` the one that is wrong, if any."""

    status = 0
    field = ""
    retry_s = 0.0  # when to ask again; 0 where not stated


class ServiceFailed(ClientError):  # noqa: N818
    """The service could not do it, or what answers is not Weft."""

    retry_s = 0.0  # when to ask again; 0 where not stated


class Misused(ClientError):  # noqa: N818
    """A call that cannot be what was meant."""


class JobFailed(ClientError):  # noqa: N818
    """The job has failed."""


class JobCancelled(ClientError):  # noqa: N818
    """The job was cancelled."""


class NoResult(ClientError):  # noqa: N818
    """The job of a function has ended, and what it returned cannot be read."""
