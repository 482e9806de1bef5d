"""SciPy's optimisers, where they are installed."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from weft.core.errors import InvalidConfig

THREADS = "OPENBLAS_NUM_THREADS"


@cache
def scipy_optimize() -> Any:
    """`scipy.optimize`, with its own linear algebra in one thread.

    What we solve with it is tiny: threads that wait for each other cost more than they do.
    """
    before = os.environ.get(THREADS)
    os.environ.setdefault(THREADS, "1")
    try:
        import scipy.optimize as optimize
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            "this is solved by SciPy, which is not installed", hint="pip install 'weft[solve]'"
        ) from error
    finally:
        if before is None:
            del os.environ[THREADS]
    return optimize
