"""Steps that grow: nothing, a least amount, twice that, four times...

What is estimated of jobs by what they have attained changes at these steps alone. If it changed all
the time, jobs would take turns.
"""

from __future__ import annotations

import numpy as np

from weft.core.state.table import Floats


def step_below(attained: Floats, least: Floats | float) -> Floats:
    """The last step that was reached; 0 below the least."""
    times = np.floor(np.log2(np.maximum(attained / least, 1.0)) + 1e-9)
    low: Floats = np.where(attained < least, 0.0, least * 2.0**times)
    return low


def step_above(attained: Floats, least: Floats | float) -> Floats:
    """The next step, always beyond what is attained."""
    low = step_below(attained, least)
    high: Floats = np.where(low > 0.0, 2.0 * low, least)
    return high
