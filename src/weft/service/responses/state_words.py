"""The words that jobs, nodes, priorities and roles go by."""

from __future__ import annotations

from typing import Literal

StateWord = Literal[
    "pending",
    "starting",
    "running",
    "checkpointing",
    "preempted",
    "suspended",
    "succeeded",
    "failed",
    "cancelled",
]
NodeWord = Literal["up", "draining", "drained", "set aside", "down"]
RoleWord = Literal["admin", "user", "viewer"]
