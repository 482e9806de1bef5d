"""Files that are brought from a node without the service's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.engines.ray.bridge import Carrier


class Growing:
    """A node with a checkpoint that its job writes to faster than it is brought."""

    def __init__(self) -> None:
        self.asked = 0

    def call(self, node: str, name: str, *args: Any) -> Any:
        assert node == "node"
        if name == "listing":
            return [["model/weights.bin", 10, 1_000_000_000, 0o600]]
        _, offset, most = args
        self.asked += 1
        assert self.asked < 100, "it goes on as long as the job writes"
        return b"x" * min(most, 4) if offset < 1000 else b"x" * most


def test_a_file_is_brought_as_long_as_it_was_listed(tmp_path: Path) -> None:
    node = Growing()

    assert Carrier(node).pull("node", str(tmp_path)) == 1  # type: ignore[arg-type]

    brought = tmp_path / "model" / "weights.bin"
    assert (brought.stat().st_size, brought.stat().st_mtime_ns) == (10, 1_000_000_000)
    assert (node.asked, [*brought.parent.iterdir()]) == (3, [brought])
