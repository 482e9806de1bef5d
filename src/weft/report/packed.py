"""Text in as few characters as a page can carry: deflated, in base 85 without a `<`.

In front of it stands how many bytes it is; the last group is filled with zeros.
"""

from __future__ import annotations

import base64
import zlib
from functools import lru_cache


@lru_cache(maxsize=4)  # the library of charts is large, and the same in every report
def pack(text: str) -> str:
    """What `unpack` in `page.js` reads."""
    raw = zlib.compress(text.encode(), 9)
    return f"{len(raw)}." + base64.b85encode(raw, pad=True).decode().replace("<", ",")


def unpack(packed: str) -> str:
    """The text again."""
    count, _, digits = packed.partition(".")
    raw = base64.b85decode(digits.replace(",", "<"))
    return zlib.decompress(raw[: int(count)]).decode()
