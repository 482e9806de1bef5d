from __future__ import annotations

import gc

from weft.app.simulate.run import RARELY, collect_rarely


def test_garbage_is_collected_rarely_until_the_last_simulation_ends() -> None:
    before = gc.get_threshold()
    first, second = collect_rarely(), collect_rarely()

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    during = gc.get_threshold()
    second.__exit__(None, None, None)

    assert during == (RARELY, *before[1:])
    assert gc.get_threshold() == before
