"""Options that several commands share, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

SIM, RUN, FILE, OUT = "Simulation", "Run", "Workload files", "Output"

Workload = Annotated[
    str,
    typer.Argument(
        help="A built-in workload (`weft list trace`) or a trace file, any known format."
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        help="NODESxGPUS:KIND joined by +, a name (`weft list cluster`), or a .yaml file. "
        "By default what suits the workload.",
    ),
]
Seed = Annotated[int, typer.Option(help="Same seed, same result.", min=0)]
Predictor = Annotated[
    str,
    typer.Option(
        help="Where policies get remaining times from: oracle (the default), "
        "noisy:sigma=0.5, hinted, alike, history.",
        rich_help_panel=SIM,
    ),
]
RestartCost = Annotated[
    float | None,
    typer.Option(
        help="Seconds a stop and restart costs; 0 makes preemption free. "
        "By default the job's model says.",
        min=0.0,
        rich_help_panel=SIM,
    ),
]
Profiles = Annotated[
    str,
    typer.Option(
        help="Measured speeds as the truth: a folder of profiles with models.json beside it, or "
        "a Gavel throughput file (.json). By default what ships with the package.",
        rich_help_panel=SIM,
    ),
]
Perf = Annotated[
    str,
    typer.Option(
        help="Another truth about speeds (`weft list perf`): muri counts as Muri's simulator does.",
        rich_help_panel=SIM,
    ),
]
GpuSharing = Annotated[
    str,
    typer.Option(
        "--sharing",
        help="How a GPU serves jobs that share it: timeslicing (the driver's) or mps.",
        rich_help_panel=SIM,
    ),
]
PairsFile = Annotated[
    str,
    typer.Option(
        "--pairs",
        help="Measured speeds of jobs beside each other: what `weft profile --beside` wrote.",
        metavar="FILE",
        rich_help_panel=SIM,
    ),
]
FreeMoves = Annotated[
    bool,
    typer.Option(
        "--free-moves",
        help="A job that changes nodes but keeps its shape pays no restart.",
        rich_help_panel=SIM,
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        "--weights",
        help="What users and tenants are entitled to against each other: vision=3/nlp=1. Who is "
        "not named has 1.",
        metavar="NAME=NUMBER/...",
        rich_help_panel=SIM,
    ),
]
Loan = Annotated[
    str,
    typer.Option(
        "--loan",
        help="Machines that come and go: 8x8:v100,low=0.3,high=0.95 are lent while their owner, "
        "with a day's rhythm, does not need them; 8x8:v100,trace=FILE tells when.",
        metavar="NODESxGPUS:KIND,KEY=VALUE...",
        rich_help_panel=SIM,
    ),
]
Resize = Annotated[
    str,
    typer.Option(
        "--resize",
        help="How running jobs change their GPUs: restart, from a checkpoint; or live, with one "
        "pause and new processes started beside training: live:pause_s=0.05,pause_gb_s=0.7, and "
        "prepare_s unless that is as long as a restart; restart_s and restart_gb_s unless stopped "
        "jobs come back as slowly as published.",
        metavar="restart|live",
        rich_help_panel=SIM,
    ),
]
Stops = Annotated[
    str,
    typer.Option(
        "--stops",
        help="How running jobs can be put to sleep besides being stopped: freeze, suspend or both. "
        "They go on where they were; what does not fit in device or host memory is stopped.",
        metavar="freeze,suspend",
        rich_help_panel=SIM,
    ),
]
CheckpointCost = Annotated[
    float,
    typer.Option(help="Seconds a job needs to leave its GPUs.", min=0.0, rich_help_panel=SIM),
]
Jobs = Annotated[
    int | None, typer.Option(help="How many jobs to draw (built-in workloads).", min=1)
]
Load = Annotated[
    float | None,
    typer.Option(help="Offered load on the cluster (built-in workloads; most default to 0.8)."),
]
NodeMtbf = Annotated[
    float,
    typer.Option(
        help="Mean hours between failures of one node; 0: never.", min=0.0, rich_help_panel=SIM
    ),
]
RepairH = Annotated[
    float,
    typer.Option(help="Mean hours a failed node is away.", min=0.001, rich_help_panel=SIM),
]
JobMtbf = Annotated[
    float,
    typer.Option(
        help="Mean hours a job runs before it dies and is retried; 0: never.",
        min=0.0,
        rich_help_panel=SIM,
    ),
]
MaxGpus = Annotated[
    int | None,
    typer.Option(help="Leave out jobs that ask for more GPUs.", min=1, rich_help_panel=FILE),
]
Sample = Annotated[
    int | None, typer.Option(help="Keep this many jobs, at random.", min=1, rich_help_panel=FILE)
]
Window = Annotated[
    str,
    typer.Option(help="Keep jobs submitted in START:END seconds.", rich_help_panel=FILE),
]
TraceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trace-option",
        "-o",
        help="Any other loader option as KEY=VALUE, e.g. scale_arrivals=2, attempts=span.",
        rich_help_panel=FILE,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUT)]
PerJob = Annotated[
    bool, typer.Option("--per-job", help="With --json: one row per job.", rich_help_panel=OUT)
]
Timing = Annotated[
    bool,
    typer.Option(
        "--timing",
        help="With --json: decision and wall times, which differ from run to run.",
        rich_help_panel=OUT,
    ),
]
ReportTo = Annotated[
    Path | None, typer.Option("--report", help="Write an HTML report here.", rich_help_panel=OUT)
]
Columns = Literal["main", "fairness"]
ColumnsOption = Annotated[
    Columns,
    typer.Option("--columns", help="Which numbers the table has.", rich_help_panel=OUT),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.", rich_help_panel=OUT)]


def trace_options(
    max_gpus: int | None, sample: int | None, window: str, more: list[str] | None
) -> Any:
    """The loader's options from what was typed."""
    from weft.core.errors import InvalidConfig
    from weft.core.spec.parameters import settings
    from weft.traces.options import Options

    for pair in more or ():
        if "=" not in pair:
            raise InvalidConfig(f"--trace-option {pair!r} is not KEY=VALUE")
    typed = dict(pair.split("=", 1) for pair in more or ())
    values = settings("--trace-option", Options, typed)
    if window:
        values["window"] = _window(window)
    if max_gpus is not None:
        values["max_gpus"] = max_gpus
    if sample is not None:
        values["sample"] = sample
    return Options(**values)


def read_weights(text: str) -> dict[str, float]:
    """Weights by name, from what was typed."""
    from weft.core.errors import InvalidConfig

    found: dict[str, float] = {}
    for pair in filter(None, text.split("/")):
        name, equals, number = pair.rpartition("=")
        try:
            found[name] = float(number if equals and name else "no name")
        except ValueError as error:
            raise InvalidConfig(
                f"--weights: {pair!r} is not NAME=NUMBER", hint="for example vision=3/nlp=1"
            ) from error
    return found


def _window(text: str) -> tuple[float, float]:
    from weft.core.errors import InvalidConfig

    start, colon, end = text.partition(":")
    try:
        return float(start or 0.0), float(end or ("inf" if colon else "no colon"))
    except ValueError as error:
        raise InvalidConfig(
            f"--window {text!r} is not START:END", hint="seconds, for example 0:86400"
        ) from error
