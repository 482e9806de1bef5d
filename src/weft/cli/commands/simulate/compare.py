"""`weft compare`: the same workload under several policies, side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.progress import progress_bars
from weft.cli.view.results import check_output, show_result

DEFAULT = ("fifo", "fifo:backfill=true", "srtf", "tiresias")


def compare(
    workload: o.Workload,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy, or a set: 'las:by={time,gpu-time}'; give it several times. "
            f"By default {', '.join(DEFAULT)}.",
        ),
    ] = None,
    cluster: o.Cluster = "",
    seed: o.Seed = 0,
    seeds: Annotated[
        int, typer.Option(help="How many seeds, from --seed on.", min=1, max=1000)
    ] = 1,
    processes: Annotated[
        int | None, typer.Option(help="Parallel processes; default: one per core.", min=1)
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            help="Spread the runs over a Ray cluster: ray://HOST:10001, or HOST:PORT of its head.",
            metavar="ADDRESS",
        ),
    ] = "",
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
    quiet: o.Quiet = False,
) -> None:
    """Replay WORKLOAD under several policies, side by side."""
    from dataclasses import replace

    from weft.app.policy_file import read_policy
    from weft.app.policy_sets import choose_sensible, expand_sets
    from weft.app.simulate.loan_text import read_loans
    from weft.app.simulate.run import run_all
    from weft.app.simulate.setup import Setup
    from weft.sim.faults import Faults

    with user_errors():
        check_output(as_json=as_json, per_job=per_job, timing=timing)
        base = Setup(
            workload,
            DEFAULT[0],
            cluster,
            seed,
            predictor,
            jobs,
            load,
            restart_cost,
            checkpoint_cost,
            Faults(node_mtbf_h, repair_h, job_mtbf_h),
            o.trace_options(max_gpus, sample, window, trace_option),
            profiles=profiles,
            free_moves=free_moves,
            perf=perf,
            sharing=sharing,
            pairs=pairs,
            weights=o.read_weights(weights),
            loans=read_loans(loan),
            resize=resize,
            stops=stops,
        )
        sets = [choose_sensible(expand_sets(text)) for text in policy or DEFAULT]
        chosen = dict.fromkeys(text for kept, _ in sets for text in kept)
        left_out = {text: why for _, others in sets for text, why in others.items()}
        setups = [
            replace(base, policy=read_policy(name), seed=s)
            for name in chosen
            for s in range(seed, seed + seeds)
        ]
        labels = [f"{s.policy_name}" + (f" seed {s.seed}" if seeds > 1 else "") for s in setups]
        with progress_bars(labels, quiet=quiet or as_json) as progress:
            result = run_all(setups, processes=processes, progress=progress, on=on)
    for text, why in left_out.items():
        typer.echo(f"left out {text}: {why}", err=True)
    show_result(
        result, as_json=as_json, per_job=per_job, timing=timing, report=report, columns=columns
    )
