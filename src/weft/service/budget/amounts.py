"""How much one request may cost."""

from __future__ import annotations

from weft.app.serve.limits import Limits
from weft.frozen import frozen

KIB, MIB = 1 << 10, 1 << 20
STRANGERS_BODY = 16 * KIB  # nothing that a person without a token may send is longer
NESTING = 32
VALUES = 100_000
AT_ONCE = 8  # bodies of the longest kind that one tenant may have on their way


@frozen
class Budget:
    """What a request may weigh; 0 is no limit.

    `header` and `body` are bytes, `strangers_body` those of a request without a known token, and
    `waiting` those of all bodies that one tenant has on their way. `nesting` and `values` are of
    the body's JSON: how deep its brackets go, and how many values it holds. `within_s` is how long
    the body may take to arrive.
    """

    header: int
    body: int
    within_s: float
    strangers_body: int = STRANGERS_BODY
    nesting: int = NESTING
    values: int = VALUES

    @classmethod
    def of(cls, limits: Limits) -> Budget:
        """As the service was told."""
        header, body = int(limits.header_kib * KIB), int(limits.body_mib * MIB)
        return cls(header, body, limits.body_s)

    @property
    def waiting(self) -> int:
        """Bytes of bodies that one tenant may have on their way."""
        return AT_ONCE * self.body
