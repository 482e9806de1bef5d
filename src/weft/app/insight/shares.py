"""How evenly tenants were treated, from what they received of what was due."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.formulas.fairness.shares import jain_index


def summarize_shares(received: Iterable[float | None]) -> float | None:
    """Jain's index of those that something was due to; None where there are none."""
    known = [share for share in received if share is not None]
    return jain_index(np.array(known)) if known else None
