"""`weft simulate`: replay a workload under one policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.progress import progress_bars
from weft.cli.view.results import check_output, show_result


def simulate(
    workload: o.Workload,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            help="A name from `weft list policy`, as NAME or NAME:KEY=VALUE,..., or a .yaml file. "
            "The default is a published baseline; `weft serve` uses `weft`.",
        ),
    ] = "tiresias",
    cluster: o.Cluster = "",
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    load: o.Load = None,
    predictor: o.Predictor = "",
    profiles: o.Profiles = "",
    perf: o.Perf = "",
    sharing: o.GpuSharing = "timeslicing",
    pairs: o.PairsFile = "",
    restart_cost: o.RestartCost = None,
    free_moves: o.FreeMoves = False,
    checkpoint_cost: o.CheckpointCost = 0.0,
    weights: o.Weights = "",
    loan: o.Loan = "",
    resize: o.Resize = "restart",
    stops: o.Stops = "",
    node_mtbf_h: o.NodeMtbf = 0.0,
    repair_h: o.RepairH = 1.0,
    job_mtbf_h: o.JobMtbf = 0.0,
    max_gpus: o.MaxGpus = None,
    sample: o.Sample = None,
    window: o.Window = "",
    trace_option: o.TraceOption = None,
    as_json: o.AsJson = False,
    per_job: o.PerJob = False,
    timing: o.Timing = False,
    report: o.ReportTo = None,
    columns: o.ColumnsOption = "main",
    events: Annotated[
        Path | None,
        typer.Option(help="Write every event as a line of JSON here.", rich_help_panel=o.OUT),
    ] = None,
    quiet: o.Quiet = False,
) -> None:
    """Replay WORKLOAD in virtual time and report completion times."""
    from weft.app.policy_file import read_policy
    from weft.app.simulate.loan_text import read_loans
    from weft.app.simulate.run import run_all
    from weft.app.simulate.setup import Setup
    from weft.sim.faults import Faults

    with user_errors():
        check_output(as_json=as_json, per_job=per_job, timing=timing)
        setup = Setup(
            workload,
            read_policy(policy),
            cluster,
            seed,
            predictor,
            jobs,
            load,
            restart_cost,
            checkpoint_cost,
            Faults(node_mtbf_h, repair_h, job_mtbf_h),
            o.trace_options(max_gpus, sample, window, trace_option),
            events,
            profiles,
            free_moves,
            perf,
            sharing,
            pairs,
            o.read_weights(weights),
            read_loans(loan),
            resize,
            stops,
        )
        with progress_bars([policy], quiet=quiet or as_json) as progress:
            result = run_all([setup], processes=1, progress=progress)
    show_result(
        result, as_json=as_json, per_job=per_job, timing=timing, report=report, columns=columns
    )
