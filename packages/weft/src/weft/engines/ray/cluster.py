"""A Ray cluster as seen by a driver of its own: its nodes, and the runner on each.

Only `weft.engines.ray.bridge` makes one, in a process of its own: Ray ends the process of a
driver whose raylet or head is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError
from ray.util.placement_group import get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from weft.engines.ray.labels import NODE, SLOTS, reserved
from weft.engines.ray.runner import Runner
from weft.version import __version__

ANSWER_S = 1.0  # how long a node may take to say how its agents are
CALL_S = 20.0


@dataclass
class RayCluster:
    """Nodes and runners.

    `root` is the service's folder, `mark` what is written there for nodes to see whether they share
    it, unless `files` says that all of them do, or none. `nodes` says which are used: all, or
    those with our label.
    """

    address: str
    owner: str
    root: Path
    mark: str
    files: str = "auto"
    nodes: str = "all"
    _runners: dict[str, Any] = field(default_factory=dict)
    _asked: dict[str, Any] = field(default_factory=dict)

    def connect(self) -> None:
        """Become a driver; whatever Ray raises if that cannot be."""
        ray.init(
            address=self.address,
            namespace=self._namespace,
            log_to_driver=False,
            configure_logging=False,
        )

    @property
    def _namespace(self) -> str:
        return f"weft-{self.owner}"

    # ---- one look at everything

    def poll(self) -> dict[str, Any]:
        """Every node, and what its runner says; None for one that has not answered."""
        rows = ray.nodes()
        draining = self._draining()
        nodes = []
        for row in rows:
            if not row["Alive"]:
                self._runners.pop(row["NodeID"], None)
                self._asked.pop(row["NodeID"], None)
            elif self._is_ours(row) and row["NodeID"] not in draining:
                self._need_runner(row)
        reports = self._ask_all()
        for row in rows:
            node = row["NodeID"]
            if not self._is_ours(row):
                continue
            nodes.append(
                {
                    "id": node,
                    "alive": row["Alive"],
                    "address": row["NodeManagerAddress"],
                    "host": row["NodeManagerHostname"],
                    "labels": row["Labels"],
                    "resources": row["Resources"],
                    "reason": row.get("DeathReasonMessage", ""),
                    "draining": node in draining,
                    "runner": reports.get(node),
                }
            )
        self._let_go(reports, draining)
        return {"nodes": nodes}

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        return self.nodes == "all" or NODE in row["Labels"]

    def _draining(self) -> Mapping[str, int]:
        if "://" in self.address:
            return {}  # a client of Ray is not told
        from ray._private.state import state

        draining: Mapping[str, int] = state.get_draining_nodes()
        return draining

    def _ask_all(self) -> dict[str, dict[str, Any]]:
        """The answers of runners within a while; one that is late is not asked again meanwhile."""
        for node, runner in self._runners.items():
            if node not in self._asked:
                self._asked[node] = runner.look.remote()
        if not self._asked:
            return {}
        asked = {ref: node for node, ref in self._asked.items()}
        ready, _ = ray.wait([*asked], num_returns=len(asked), timeout=ANSWER_S)
        answers = {}
        for ref in ready:
            node = asked[ref]
            del self._asked[node]
            try:
                answers[node] = ray.get(ref, timeout=ANSWER_S)
            except ActorDiedError as error:
                del self._runners[node]
                answers[node] = {"dead": _first_line(error), "agents": []}
            except (ActorUnavailableError, GetTimeoutError):
                continue
        return answers

    def _let_go(self, reports: Mapping[str, dict[str, Any]], draining: Mapping[str, int]) -> None:
        """End runners that nothing holds: of nodes that leave, and of another version of ours."""
        for node, report in reports.items():
            old = report.get("version") not in (__version__, None)
            if old or node in draining:
                self._end_idle(node, report)

    def release(self) -> None:
        """Give back every node that runs nothing of ours."""
        for node, report in self._ask_all().items():
            self._end_idle(node, report)

    def _end_idle(self, node: str, report: Mapping[str, Any]) -> None:
        busy = any(code is None for _, _, code, _ in report["agents"])
        if node in self._runners and not busy:
            ray.kill(self._runners.pop(node))
            with suppress(ValueError):
                remove_placement_group(get_placement_group(f"{self._namespace}-{node}"))

    # ---- runners

    def _need_runner(self, row: Mapping[str, Any]) -> None:
        """The runner of a node, found or made; Ray may take a while to start it."""
        node = row["NodeID"]
        if node in self._runners:
            return
        try:
            self._runners[node] = self._find_runner(node)
        except LookupError:
            self._runners[node] = self._make_runner(row)

    def _make_runner(self, row: Mapping[str, Any]) -> Any:
        bundle = reserved(row["Resources"])
        group = self._group(row["NodeID"], bundle)
        wanted = ray.remote(Runner).options(
            name=f"runner-{row['NodeID']}",
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            num_cpus=0,
            num_gpus=bundle.get("GPU", 0),
            resources={SLOTS: bundle[SLOTS]} if SLOTS in bundle else None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
        )
        own = f"~/.weft/{self._namespace}"
        return wanted.remote(str(self.root), own, self.mark, self.files)

    def _group(self, node: str, bundle: Mapping[str, float]) -> Any:
        name = f"{self._namespace}-{node}"
        with suppress(ValueError):
            return get_placement_group(name)
        return placement_group(
            [dict(bundle)],
            strategy="STRICT_PACK",
            name=name,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": node}],
        )

    def call(self, node: str, method: str, *args: object) -> Any:
        """Ask the runner of a node; LookupError if it has none, TimeoutError if it is late."""
        runner = self._runners.get(node) or self._find_runner(node)
        try:
            return ray.get(runner.call.remote(method, args), timeout=CALL_S)
        except ActorDiedError as error:
            raise LookupError(f"the runner of node {node[:8]} is gone: {error}") from error
        except ActorUnavailableError as error:
            raise TimeoutError(f"node {node[:8]} cannot be reached: {error}") from error
        except RayTaskError as error:
            raise OSError(_first_line(error)) from error

    def _find_runner(self, node: str) -> Any:
        try:
            return ray.get_actor(f"runner-{node}", namespace=self._namespace)
        except ValueError:
            raise LookupError(f"node {node[:8]} has no runner") from None

    # ---- agents

    def start(
        self,
        job: str,
        attempt: int,
        parts: Sequence[tuple[str, str, str]],
        pass_env: Sequence[str] = (),
    ) -> None:
        """Start the agents of all parts, `(ray node, name, folder)`; none if one cannot be."""
        names, begun = [name for _, name, _ in parts], []
        try:
            for node, _, folder in parts:
                self.call(node, "start", job, attempt, folder, names, pass_env)
                begun.append(node)
        except (LookupError, OSError):
            for node in begun:
                with suppress(LookupError, OSError):
                    self.call(node, "end", job, attempt)
            raise

    def end(self, job: str, attempt: int) -> list[int]:
        left: list[int] = []
        for node in [*self._runners]:
            with suppress(LookupError):
                left += self.call(node, "end", job, attempt)
        return left


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[-1] if text else type(error).__name__
