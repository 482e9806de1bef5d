"""The reference page of engines: what each supports, as they declare it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from weft.app.engine import build_engine
from weft.core.about import Controls
from weft.core.ports import Engine
from weft.core.registry import find, names

WORDS = {
    Controls.COUNT: "other GPU counts than a job asked for",
    Controls.BATCH: "batch sizes",
    Controls.HOST: "CPUs and memory other than in proportion to GPUs",
    Controls.SHARE: "several jobs on one GPU",
    Controls.TIER: "opportunistic jobs beside guaranteed ones",
    Controls.PHASE: "turns in a common period",
    Controls.SHIFT: "time shifts of iterations",
    Controls.RESIZE: "other GPUs for jobs that train on meanwhile",
}
# Engines that support more or less by how they are used.
VARIANTS = {"slurm": ("slurm", "slurm:mode=pilot")}
# What an engine cannot be built without.
SETTINGS = {"kubernetes": ":kubeconfig={folder}/kubeconfig,image=none"}
NOWHERE = """current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: none, user: {}}]
"""


def engines_page(made: str) -> str:
    """A column an engine, a row a control."""
    described = [one for name in names("engine") for one in VARIANTS.get(name, (name,))]
    engines = [_build(one) for one in described]
    lines = [
        made,
        "# Engines\n",
        "An engine runs jobs: `weft serve --engine NAME:option=value`. What it supports is what it",
        "declares, and `weft.testing.check_engine` tests each of these with real jobs. A policy",
        "that sets more is refused.\n",
        "| | " + " | ".join(f"`{one}`" for one in described) + " |",
        "|---|" + "---|" * len(described),
    ]
    for flag, words in WORDS.items():
        lines.append(f"| {words} | " + " | ".join(_mark(flag, one) for one in engines) + " |")
    lines.append(
        "| real processes | " + " | ".join("yes" if e.real else "" for e in engines) + " |"
    )
    lines.append("")
    for name in names("engine"):
        summary, _, rest = (find("engine", name).__doc__ or "").partition("\n\n")
        text = " ".join(f"{summary} {rest}".split())
        lines += [f"## {name}\n", text + "\n"]
    return "\n".join(lines).rstrip() + "\n"


def _build(described: str) -> Engine:
    """One that is never opened: of a cluster that is nowhere, where one must be named."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "kubeconfig").write_text(NOWHERE)
        settings = SETTINGS.get(described, "").format(folder=folder)
        return build_engine(described + settings, state=Path("state"))


def _mark(flag: Controls, engine: Engine) -> str:
    return "yes" if flag in engine.supports else ""
