"""Jobs as the service tells them."""

from __future__ import annotations

from typing import Any

NOW = 1_000_000.0


def job(ident: str, state: str = "running", **more: Any) -> dict[str, Any]:
    gpus = more.pop("gpus", ())
    share = more.pop("share", 1.0)
    held = [{"node": "ada", "gpus": list(gpus), "kind": "cpu", "share": share}] if gpus else None
    return {
        "id": ident,
        "name": ident,
        "tenant": "vision",
        "user": "",
        "state": state,
        "reason": "",
        "allocation": held,
        "restarts": 0,
        "attempt": 1,
        "submitted": NOW - 300.0,
        "started": NOW - 200.0 if gpus else None,
        "ended": None,
        "gpu_seconds": 60.0,
        "progress": None,
        "batch": None,
        "goodput": None,
        "speed": None,
        "priority": "normal",
        "command": ["python", "train.py"],
        **more,
    }


QUEUE = [
    job("first", gpus=(0, 1), progress=0.43, batch=256.0, goodput=2345.3, restarts=2),
    job("left", gpus=(2,), share=0.5, progress=0.9, batch=64.0, goodput=12.34),
    job("right", gpus=(2,), share=0.5, progress=0.1, batch=512.0, goodput=12345.6),
    job(
        "a-name-that-is-longer-than-most-1a2b3c4d",
        "pending",
        name="a-name-that-is-longer-than-most",
        reason="asks for 4 GPUs, 1 is free; first and right are in front and will be for long",
    ),
    job("broken", "failed", reason="rank 0 ended with exit code 3: no data", ended=NOW - 50.0),
]
CLUSTER = {"gpus": 4, "held": 3, "waiting": 1, "policy": "gandiva", "engine": "local", "now": NOW}
NODES = [{"id": "ada", "kind": "cpu", "gpus": 4, "cpus": 4.0, "mem_gb": 16.0, "state": "up"}]
