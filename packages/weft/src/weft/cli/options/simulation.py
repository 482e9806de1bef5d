"""Options of a simulation, and of what its result is shown as."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options import shared as o
from weft.core.errors import InvalidConfig
from weft.frozen import frozen

if TYPE_CHECKING:
    from weft.app.simulate.setup import Setup
    from weft.core.spec.registry import Described

SIM = o.panel("Simulation")
# Options that the simulation takes as they were typed.
AS_TYPED = {
    *("workload", "cluster", "seed", "predictor", "jobs", "load", "restart_cost", "profiles"),
    *("free_moves", "perf", "sharing", "pairs", "sleep_nodes", "boot_s", "resize", "stops"),
}


@frozen
class SimulationOptions:
    """Options of `weft simulate` and `weft compare`: the fields of a `Setup`, as typed."""

    workload: Annotated[
        str,
        typer.Argument(
            help="A built-in workload (`weft list trace`) or a trace file, any known format."
        ),
    ]
    cluster: o.Cluster = ""
    seed: o.Seed = 0
    jobs: Annotated[
        int | None, typer.Option(help="How many jobs to draw (built-in workloads).", min=1)
    ] = None
    load: Annotated[
        float | None,
        typer.Option(help="Offered load on the cluster (built-in workloads; most default to 0.8)."),
    ] = None
    predictor: Annotated[
        str,
        SIM(
            help="Where policies get remaining times from: oracle (the default), noisy:sigma=0.5, "
            "hinted, alike, history."
        ),
    ] = ""
    profiles: Annotated[
        str,
        SIM(
            help="Use these measured speeds: a folder of profiles with models.json beside it, a "
            "Gavel throughput file (.json) or your own table (.csv). Default: the profiles "
            "in the package."
        ),
    ] = ""
    perf: Annotated[
        str,
        SIM(
            help="Another model of how fast jobs run (`weft list perf`); muri computes speeds "
            "as Muri's simulator does."
        ),
    ] = ""
    sharing: Annotated[
        str,
        SIM(
            "--sharing",
            help="How a GPU serves jobs that share it: timeslicing (the driver's) or mps.",
        ),
    ] = "timeslicing"
    pairs: Annotated[
        str,
        SIM(
            "--pairs",
            help="Measured speeds of jobs beside each other, written by `weft profile --beside`.",
            metavar="FILE",
        ),
    ] = ""
    restart_cost: Annotated[
        float | None,
        SIM(
            help="Seconds that a stop and restart cost; 0 makes preemption free. Default: from "
            "the job's model.",
            min=0.0,
        ),
    ] = None
    free_moves: Annotated[
        bool,
        SIM("--free-moves", help="A job that changes nodes but keeps its shape pays no restart."),
    ] = False
    checkpoint_cost: Annotated[
        float, SIM(help="Seconds a job needs to leave its GPUs.", min=0.0)
    ] = 0.0
    weights: Annotated[
        str,
        SIM(
            "--weights",
            help="Relative entitlements of users and tenants: vision=3/nlp=1. Any other has 1.",
            metavar="NAME=NUMBER/...",
        ),
    ] = ""
    loan: Annotated[
        str,
        SIM(
            "--loan",
            help="Add machines that come and go. 8x8:v100,low=0.3,high=0.95: lent while their "
            "owner, whose use follows a daily rhythm, does not need them; "
            "8x8:v100,trace=FILE: FILE lists the times.",
            metavar="NODESxGPUS:KIND,KEY=VALUE...",
        ),
    ] = ""
    resize: Annotated[
        str,
        SIM(
            "--resize",
            help="How running jobs change their GPUs: restart (from a checkpoint) or live (new "
            "processes start while the job trains, then one pause), as in "
            "live:pause_s=0.05,pause_gb_s=0.7. prepare_s defaults to the length of a "
            "restart; restart_s and restart_gb_s to the published restart times.",
            metavar="restart|live",
        ),
    ] = "restart"
    stops: Annotated[
        str,
        SIM(
            "--stops",
            help="Other ways to pause running jobs than a stop: freeze, suspend or both. A "
            "paused job continues where it was; a job that does not fit in device or host "
            "memory is stopped.",
            metavar="freeze,suspend",
        ),
    ] = ""
    sleep_nodes: Annotated[
        int | None,
        SIM(help="Put idle nodes to sleep when not needed (CES), keeping this many awake.", min=0),
    ] = None
    boot_s: Annotated[
        float, SIM(help="Seconds that a sleeping node takes to wake up.", min=0.0)
    ] = 300.0
    node_mtbf_h: Annotated[
        float, SIM(help="Mean hours between failures of one node; 0: never.", min=0.0)
    ] = 0.0
    repair_h: Annotated[float, SIM(help="Mean hours until a failed node is back.", min=0.001)] = 1.0
    job_mtbf_h: Annotated[
        float, SIM(help="Mean hours a job runs before it dies and is retried; 0: never.", min=0.0)
    ] = 0.0
    max_gpus: Annotated[
        int | None, o.FILE(help="Leave out jobs that ask for more GPUs.", min=1)
    ] = None
    sample: Annotated[int | None, o.FILE(help="Keep this many jobs, at random.", min=1)] = None
    window: Annotated[str, o.FILE(help="Keep jobs submitted in START:END seconds.")] = ""
    trace_option: o.TraceOption = None

    def setup(self, policy: Described, **more: Any) -> Setup:
        """The simulation under a policy; InvalidConfig says what was typed wrongly."""
        from weft.app.simulate.setup import Setup, read_loans
        from weft.sim.faults import Faults

        return Setup(
            **{name: value for name, value in asdict(self).items() if name in AS_TYPED},
            policy=policy,
            checkpoint_s=self.checkpoint_cost,
            faults=Faults(self.node_mtbf_h, self.repair_h, self.job_mtbf_h),
            options=o.trace_options(self.max_gpus, self.sample, self.window, self.trace_option),
            weights=read_weights(self.weights),
            loans=read_loans(self.loan),
            **more,
        )


@frozen
class OutputOptions:
    """Options for how a result is shown."""

    as_json: o.AsJson = False
    csv: Annotated[
        bool,
        o.OUT(
            "--csv",
            help="Print CSV: a row per policy and metric, its mean, half its 95 % interval, seeds.",
        ),
    ] = False
    per_job: Annotated[bool, o.OUT("--per-job", help="With --json: one row per job.")] = False
    timing: Annotated[
        bool,
        o.OUT(
            "--timing", help="With --json: decision and wall times, which differ from run to run."
        ),
    ] = False
    bound: Annotated[
        bool,
        o.OUT(
            "--bound",
            help="Show the average completion time that no schedule can beat, and each policy's "
            "as a multiple of it. A --report has both.",
        ),
    ] = False
    report: Annotated[Path | None, o.OUT("--report", help="Write an HTML report here.")] = None
    columns: Annotated[o.Columns, o.OUT("--columns", help="Which columns the table shows.")] = (
        "main"
    )
    quiet: Annotated[bool, o.OUT("--quiet", "-q", help="No progress bar.")] = False

    @property
    def bounded(self) -> bool:
        """True if the bound is shown."""
        return self.bound or self.report is not None

    @property
    def no_bar(self) -> bool:
        """True if nothing shows how far it is, as for what programs read."""
        return self.quiet or self.as_json or self.csv


def read_loads(text: str, load: float | None) -> list[float | None]:
    """The loads to compare at; the one of --load, or None for the workload's own, without any."""
    if not text:
        return [load]
    if load is not None:
        raise InvalidConfig("--load and --loads are both given", hint="give one of them")
    loads: list[float | None] = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = 0.0
        if not 0.0 < value < inf or value in loads:
            raise InvalidConfig(
                f"--loads: {part[:100]!r} is not a number above 0, or is there twice",
                hint="for example 0.7,1.0,1.3",
            )
        loads.append(value)
    return loads


def read_weights(text: str) -> dict[str, float]:
    """Weights by name, from what was typed."""
    weights: dict[str, float] = {}
    for pair in filter(None, text.split("/")):
        name, equals, number = pair.rpartition("=")
        try:
            weights[name] = float(number if equals and name else "no name")
        except ValueError as error:
            raise InvalidConfig(
                f"--weights: {pair!r} is not NAME=NUMBER", hint="for example vision=3/nlp=1"
            ) from error
    return weights
