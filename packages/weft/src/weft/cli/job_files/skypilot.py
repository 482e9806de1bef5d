"""SkyPilot task files as jobs, with what Weft does not do refused or named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig

OWN = ("resources", "num_nodes", "envs", "secrets", "file_mounts", "volumes", "service")
REFUSED = {
    "file_mounts": "put the files where the job's machines see them",
    "storage_mounts": "put the files where the job's machines see them",
    "volumes": "put the files where the job's machines see them",
    "service": "Weft runs jobs that end",
}
USED = ("accelerators", "cpus", "memory", "use_spot", "spot_recovery", "job_recovery")


def is_skypilot(body: Mapping[str, Any]) -> bool:
    """Return true if a file's fields are those of a SkyPilot task."""
    ours = isinstance(body.get("secrets"), list)  # names of variables; SkyPilot has values there
    return any(field in body for field in OWN if not (ours and field == "secrets"))


def read_skypilot(body: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
    """The fields of a job file, and what was skipped."""
    for field, instead in REFUSED.items():
        if body.get(field):
            raise InvalidConfig(f"{path}: {field} is not supported", hint=instead)
    resources = body.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise InvalidConfig(f"{path}: resources has no fields")
    kinds, per_node = _accelerators(resources.get("accelerators"), path)
    nodes = _count_nodes(body.get("num_nodes"), path)
    made: dict[str, Any] = {
        field: body[field] for field in ("name", "workdir", "setup", "run") if body.get(field)
    }
    made |= {"gpus": per_node * nodes, "processes": 1, "env": _env(body, path)}
    made |= {"nodes": nodes} if body.get("num_nodes") is not None else {}
    made |= {"kinds": kinds} if kinds else {}
    made |= {"secrets": list(body["secrets"])} if body.get("secrets") else {}
    for field, ours in (("cpus", "cpus"), ("memory", "mem_gb")):
        if resources.get(field) is not None:
            made[ours] = nodes * _number(resources[field], f"{path}: resources.{field}")
    if resources.get("use_spot"):
        made |= {"priority": "opportunistic", "preemptible": True}
    made["env"] |= {"SKYPILOT_NUM_GPUS_PER_NODE": str(per_node)}
    remarks = [f"resources.{name} is not used" for name in resources if name not in USED]
    known = {"name", "workdir", "setup", "run", "resources", "num_nodes", "envs", "secrets"}
    remarks += [f"{name} is not used" for name in body if name not in known]
    if not per_node:
        remarks.append("it asks for no accelerators, so it runs on CPUs alone")
    return made, remarks


def _count_nodes(nodes: Any, path: Path) -> int:
    if nodes is None:
        return 1
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 0 < nodes <= 1024:
        raise InvalidConfig(f"{path}: num_nodes is {nodes!r}, expected a whole number such as 2")
    return nodes


def _accelerators(accelerators: Any, path: Path) -> tuple[list[str], int]:
    """The kinds that will do, and GPUs of a node."""
    texts: list[str] = []
    if isinstance(accelerators, str):
        texts = [accelerators]
    elif isinstance(accelerators, Mapping):
        texts = [f"{kind}:{count}" for kind, count in accelerators.items()]
    elif isinstance(accelerators, (list, set, tuple)):
        texts = [str(accelerator) for accelerator in accelerators]
    if not texts:
        return [], 0
    split = (text.partition(":") for text in texts)
    pairs = [(kind.strip().lower(), count.strip() or "1") for kind, _, count in split]
    counts = {count for _, count in pairs}
    if len(counts) > 1 or not counts <= {str(n) for n in range(1, 1025)}:
        raise InvalidConfig(
            f"{path}: accelerators {', '.join(texts)} are not one whole number of GPUs",
            hint="name kinds that will do with the same count, such as [A100:2, H100:2]",
        )
    return [kind for kind, _ in pairs], int(counts.pop())


def _env(body: Mapping[str, Any], path: Path) -> dict[str, str]:
    variables: dict[str, str] = {}
    for field in ("envs", "secrets"):
        section = body.get(field) or {}
        if not isinstance(section, Mapping) or not all(isinstance(key, str) for key in section):
            raise InvalidConfig(f"{path}: {field} has no names with values")
        for key, value in section.items():
            if value is None and key not in os.environ:
                raise InvalidConfig(
                    f"{path}: {field}.{key} has no value", hint=f"submit with --env {key}=..."
                )
            variables[key] = os.environ[key] if value is None else str(value)
    return variables


def _number(value: Any, where: str) -> float:
    text = str(value).rstrip("+x")
    try:
        return float(text)
    except ValueError as error:
        raise InvalidConfig(f"{where} is {value!r}, expected a number such as 8 or 8+") from error
