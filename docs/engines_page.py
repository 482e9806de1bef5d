"""The reference page of engines: what each supports, as they declare it."""

from __future__ import annotations

from weft.core.plan.about import Controls
from weft.core.spec.registry import find, names

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

# Options, or values of them, that no test gives to the real thing, not even on a throw-away
# cluster, and what there is instead. A house test compares them with the tests.
UNSEEN: dict[str, dict[str, str]] = {
    "local": {
        "memory_waits": "its library and its book are tried against a stand-in for CUDA",
        "mps": "the daemon's commands alone are tested",
    },
    "ray": {
        **dict.fromkeys(("gpus", "kind", "slots"), "only the head's command is tested"),
        "carried_gb": "files come back through a real Ray; its limit was reached without one",
    },
    "simulated": dict.fromkeys(("checkpoint_s", "tick_s"), "always the default"),
}


def engines_page(made: str) -> str:
    """A column an engine, a row a control."""
    supports = {
        name + how: controls
        for name in names("engine")
        for how, controls in find("engine", name).declares
    }
    lines = [
        made,
        "# Engines\n",
        "An engine runs jobs: `weft serve --engine NAME:option=value`. What it supports is what it",
        "declares, and `weft.testing.check_engine` tests each of these with real jobs. A policy",
        "that sets more is refused.\n",
        "| | " + " | ".join(f"`{engine}`" for engine in supports) + " |",
        "|---|" + "---|" * len(supports),
    ]
    for flag, words in WORDS.items():
        marks = ("yes" if flag in controls else "" for controls in supports.values())
        lines.append(f"| {words} | " + " | ".join(marks) + " |")
    lines.append("")
    for name in names("engine"):
        summary, _, rest = (find("engine", name).__doc__ or "").partition("\n\n")
        text = " ".join(f"{summary} {rest}".split())
        lines += [f"## {name}\n", text + "\n"]
        if unseen := UNSEEN.get(name):
            listed = "; ".join(f"`{option}` ({why})" for option, why in unseen.items())
            lines.append(f"Never seen at work in our tests: {listed}.\n")
    return "\n".join(lines).rstrip() + "\n"
