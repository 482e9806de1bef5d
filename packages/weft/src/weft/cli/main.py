"""`weft`: the table of commands. A new one is a module below `commands/` and a line here."""

from __future__ import annotations

import os
from typing import cast

import typer
from typer.main import get_command

from weft.cli.lazy import Entry, LazyGroup, Panel

SIM = Panel("Simulate", "simulate")
WORK = Panel("Your jobs", "jobs")
CLUSTER = Panel("The cluster", "cluster")
# Everything after the first word that is no option is the job's own command line.
REST = {"allow_interspersed_args": False}
COMMANDS = (
    Entry(SIM, "simulate", "Replay WORKLOAD in virtual time and report completion times."),
    Entry(SIM, "compare", "Replay WORKLOAD under several policies, side by side."),
    Entry(SIM, "predict", "Compare predictors on a trace: errors, ranges, completion times."),
    Entry(SIM, "verify", "Check RESULT: GPUs in use, all jobs counted, costs, seeds."),
    Entry(SIM, "list", "List policies, workloads, engines and other parts.", "list:list_parts"),
    Entry(WORK, "run", "Run a command on the cluster, from this folder.", settings=REST),
    Entry(WORK, "shell", "Open a shell on the cluster, with GPUs if you ask for some."),
    Entry(WORK, "submit", "Queue jobs and print their ids."),
    Entry(WORK, "plan", "Show what would happen to a job now."),
    Entry(WORK, "jobs", "List jobs: all that have not ended, and the most recent that have."),
    Entry(WORK, "job", "Show one job: its state, GPUs and progress."),
    Entry(WORK, "logs", "Print a job's output."),
    Entry(WORK, "wait", "Wait until jobs have ended, and exit as they did."),
    Entry(WORK, "explain", "Show why a job waits, or why it holds what it holds."),
    Entry(WORK, "cancel", "Cancel jobs; running ones get their grace time to save."),
    Entry(
        WORK,
        "suspend",
        "Suspend jobs: running ones leave their GPUs and wait for `weft resume`.",
    ),
    Entry(
        WORK,
        "resume",
        "Resume suspended jobs where they were, or from a checkpoint.",
    ),
    Entry(WORK, "priority", "Change the priority of jobs that have not ended."),
    Entry(
        WORK,
        "forward",
        "Open a job's port on this machine: a notebook, TensorBoard, a debugger.",
    ),
    Entry(
        WORK,
        "slurm-client",
        "Submit the batch jobs of your Weft jobs to Slurm, as you, while it runs.",
    ),
    Entry(WORK, "profile", "Measure a training script, alone or beside others.", settings=REST),
    Entry(CLUSTER, "serve", "Run the scheduler service: REST API, events, metrics."),
    Entry(CLUSTER, "join", "Make this machine a node of a cluster."),
    Entry(
        CLUSTER,
        "demo",
        "Try Weft: start the service and its web page here, with real training jobs.",
    ),
    Entry(CLUSTER, "top", "Watch which job holds what, batch sizes, goodput and the queue."),
    Entry(CLUSTER, "nodes", "List the machines, their GPUs, and the jobs on them."),
    Entry(CLUSTER, "drain", "Move every job off a machine and place no more there.", "nodes:drain"),
    Entry(
        CLUSTER,
        "undrain",
        "Put a machine that was drained or set aside back into service.",
        "nodes:undrain",
    ),
    Entry(
        CLUSTER, "reserve", "Reserve machines or GPUs for a tenant, or for maintenance (admins)."
    ),
    Entry(CLUSTER, "policy", "Show which policy decides, or change it while jobs run."),
    Entry(CLUSTER, "what-if", "Replay the past, or simulate the future, with one thing changed."),
    Entry(CLUSTER, "accounting", "Show the GPU time that each tenant used, and was entitled to."),
    Entry(CLUSTER, "doctor", "Check this machine and the service, one line per check."),
    Entry(CLUSTER, "mcp", "Serve assistants over the Model Context Protocol, on standard input."),
    Entry(CLUSTER, "state", "Check, back up, restore and prune what the service keeps."),
    Entry(CLUSTER, "token", "Create, rotate, list and revoke tokens (admins)."),
    Entry(
        CLUSTER,
        "audit",
        "Show who did what: requests that changed something or were refused (admins).",
    ),
    Entry(CLUSTER, "quota", "Set limits and weights of tenants (admins)."),
    Entry(CLUSTER, "webhook", "Notify other services of state changes (admins)."),
)


class Commands(LazyGroup):
    """The table, as Typer takes it."""

    table = COMMANDS


cli = typer.Typer(
    name="weft",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A deep-learning GPU-cluster scheduler: the same policies in simulation and for real.",
)


@cli.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ca: str = typer.Option(
        "",
        "--ca",
        help="Certificates to trust for an https WEFT_URL; or set WEFT_CA.",
        metavar="FILE",
    ),
) -> None:
    """Schedule deep-learning jobs on GPU clusters."""
    if ca:
        os.environ["WEFT_CA"] = ca
    if version:
        from weft.version import __version__

        typer.echo(__version__)
        raise typer.Exit


def commands() -> Commands:
    """The group of all commands; `load_all` imports them."""
    return cast(Commands, get_command(cli))


def main() -> None:
    """Entry point."""
    try:
        cli()
    finally:
        forget_caught_interrupts()


def forget_caught_interrupts() -> None:
    """Let Python exit with the given code, whatever Ctrl-C interrupted.

    One that comes while Python runs a text of code (making a dataclass, say) makes Python end by
    SIGINT, although it was caught and all went well. Running another text makes it forget.
    """
    exec("")  # noqa: S102 - an empty text
