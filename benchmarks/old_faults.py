"""Whether the faults that people once met would be noticed: `python -m benchmarks.old_faults`.

Each was in Weft and is mended. It is put back, one at a time, by changing the mended module as it
is imported, in a process of its own, and the tests that should notice it are run: runs that
people met, signatures of systems, the judge, or unit tests. They must pass without it. Prints a row
each; ends with 1 if any fault went unnoticed. `python -m benchmarks.old_faults WORD ...` puts back
those whose names contain a word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.mistakes import BASES, Mutant
from benchmarks.mutants import notices, warm_libraries

CASES = "tests/policies/test_worked_cases.py"
SIGNATURES = "tests/policies/test_signatures.py"
PAPERS = "packages/weft-papers/src/weft_papers"
UNITS = "packages/weft/tests"


@dataclass(frozen=True, slots=True)
class OldFault:
    """A fault: the mended text of a module, what stood there, and what pytest is to run."""

    name: str
    module: str
    mended: str
    fault: str
    tests: tuple[str, ...]


FAULTS = (
    OldFault(
        "a job that never reports loads its checkpoint for ever",
        "weft.core.plan.view",
        "mask &= (runs == 0.0) | (self.now - since < self._start_seconds(mask))",
        "mask &= (runs == 0.0) | (runs > 0.0)",
        (CASES, "-k", "never_reports"),
    ),
    OldFault(
        "sia: a gang counts as one GPU",
        "weft_papers.sia.policy",
        "np.maximum(units, least)",
        "units",
        (f"{PAPERS}/sia/tests/test_sia.py", "-k", "gang or one_size"),
    ),
    OldFault(
        "rubick: a job stays on the kind that it began on",
        "weft_papers.rubick.policy",
        "if ladder.speeds[to] > ALIKE * speed and",
        "if False and",
        (f"{PAPERS}/rubick/tests/test_rubick.py", "-k", "kind"),
    ),
    OldFault(
        "themis: of apps that hold nothing the oldest wins",
        "weft_papers.themis.apps",
        "-app.least_rho(cluster, now)",
        "-app.rho(app.holds, cluster, now)",
        (SIGNATURES, "-k", "themis"),
    ),
    OldFault(
        "lyra: base times in proportion to GPUs",
        "weft_papers.lyra.policy",
        "known = asked > 0.0 and base > 0.0",
        "known = False",
        (f"{PAPERS}/lyra/tests/test_lyra.py", "-k", "curve"),
    ),
    OldFault(
        "an opportunistic job waits beside idle devices behind a larger one",
        "weft.pieces.wrap.priority",
        "lower & fillers if blocked.any() else lower)",
        "lower & False if blocked.any() else lower)",
        (CASES, "-k", "opportunistic"),
    ),
    OldFault(
        "a later job takes what an earlier gang waits for",
        "weft.pieces.wrap.easy",
        "    if about.whole or about.ties is Ties.NONE:\n        return plan\n    stops",
        "    if True:\n        return plan\n    stops",
        (CASES, "-k", "later_job"),
    ),
    OldFault(
        "a reclaim stops three jobs where one is enough, for their equals",
        "weft.pieces.wrap.tenants.lend",
        "self._adopt(without_swaps(self._view, plan))",
        "self._adopt(plan)",
        (CASES, "-k", "reclaim"),
    ),
    OldFault(
        "a job that comes back from a failure takes the place of its equal",
        "weft.pieces.order.equals",
        "if key is None or not stopped or not started or",
        "if True or",
        ("tests/property/test_equals_stay.py",),
    ),
    OldFault(
        "what a tenant is entitled to ignores GPUs of its own",
        "weft.runtime.records.entitlement",
        'for owner, gpus in [*((name, self.own[name]) for name in owners), ("", np.inf)]:',
        'for owner, gpus in [("", np.inf)]:',
        (CASES, "-k", "entitled"),
    ),
    OldFault(
        "an elastic job that stays small beside idle devices gives no reason",
        "weft.runtime.deciding.waiting",
        '    if not free:\n        return ""\n    why = "it grows',
        '    return ""\n    why = "it grows',
        (f"{UNITS}/runtime/test_stays_small.py",),
    ),
    OldFault(
        "a job waits for a GPU on a machine with CPU slots",
        "weft.core.plan.reasons",
        'return "CPU slot" if set(kinds) == {CPU} else GPU',
        "return GPU",
        (
            f"{UNITS}/pieces/wrap/test_lend.py",
            f"{UNITS}/runtime/test_stays_small.py",
            f"{UNITS}/core",
        ),
    ),
    OldFault(
        "a decision without a text in the events of a job",
        "weft.cli.commands.jobs.job",
        "        rest = describe_decision(event, job)\n",
        "        rest = {}\n",
        (f"{UNITS}/cli/test_decision_text.py",),
    ),
)


def put_back(fault: OldFault) -> Mutant:
    """The mended module with the fault in it again."""
    file = next(
        path
        for base in BASES
        if (path := base.parent.joinpath(*fault.module.split(".")).with_suffix(".py")).is_file()
    )
    source = file.read_text()
    if source.count(fault.mended) != 1:
        raise SystemExit(f"{fault.module} no longer has this once: {fault.mended!r}")
    line = source[: source.index(fault.mended)].count("\n") + 1
    changed = source.replace(fault.mended, fault.fault)
    return Mutant(fault.module, line, fault.mended, fault.fault, changed)


def main(asked: Sequence[str]) -> int:
    """Put back all, or those whose names contain a word that is asked for."""
    warm_libraries()
    chosen = [f for f in FAULTS if not asked or any(word in f.name for word in asked)]
    unnoticed = 0
    print("| fault put back | noticed by |\n|---|---|", flush=True)
    for fault in chosen:
        mutant, by = put_back(fault), f"`{' '.join(fault.tests)}`"
        if notices(None, fault.tests):
            raise SystemExit(f"these do not pass without the fault: {by}")
        if not notices(mutant, fault.tests):
            unnoticed, by = unnoticed + 1, f"not {by}"
        print(f"| {fault.name} | {by} |", flush=True)
    return min(unnoticed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
