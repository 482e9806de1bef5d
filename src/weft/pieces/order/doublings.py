"""Steps that grow: nothing, a least amount, twice that, four times...

What is estimated of jobs by what they have attained changes at these steps alone. If it changed all
the time, jobs would take turns.
"""

from __future__ import annotations

import numpy as np

from weft.core.state.cells import Floats


def steps_passed(attained: Floats, least: Floats | float) -> Floats:
    """How many steps were reached; 0 below the least."""
    times = np.floor(np.log2(np.maximum(attained / least, 1.0)) + 1e-9)
    count: Floats = np.where(attained < least, 0.0, times + 1.0)
    return count


def step_at(number: Floats, least: Floats | float) -> Floats:
    """What the step of this number takes; step 0 is nothing."""
    step: Floats = np.where(number > 0.0, least * 2.0 ** (number - 1.0), 0.0)
    return step


def step_below(attained: Floats, least: Floats | float) -> Floats:
    """The last step that was reached; 0 below the least."""
    return step_at(steps_passed(attained, least), least)


def step_above(attained: Floats, least: Floats | float) -> Floats:
    """The next step, always beyond what is attained."""
    return step_at(steps_passed(attained, least) + 1.0, least)
