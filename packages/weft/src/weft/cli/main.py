"""`weft`: the table of commands. A new one is a module below `commands/` and a line here."""

from __future__ import annotations

import os
from typing import cast

import typer
from typer.main import get_command

from weft.cli.lazy import CommandEntry, LazyGroup, Panel

SIM = Panel("Simulate", "simulate")
WORK = Panel("Your jobs", "jobs")
CLUSTER = Panel("The cluster", "cluster")
# Everything after the first word that is no option is the job's own command line.
REST = {"allow_interspersed_args": False}
COMMANDS = (
    CommandEntry(SIM, "simulate", "Replay WORKLOAD in virtual time and report completion times."),
    CommandEntry(
        SIM, "compare", "Replay WORKLOAD under several policies, side by side.", "simulate:compare"
    ),
    CommandEntry(
        SIM, "predict", "Compare predictors on a trace: errors, ranges, completion times."
    ),
    CommandEntry(
        SIM, "verify", "Check a log or a RESULT: what was promised, and whether it was kept."
    ),
    CommandEntry(
        SIM, "list", "List policies, workloads, engines and other parts.", "list:list_parts"
    ),
    CommandEntry(WORK, "run", "Run a command on the cluster, from this folder.", settings=REST),
    CommandEntry(WORK, "shell", "Open a shell on the cluster, with GPUs if you ask for some."),
    CommandEntry(WORK, "submit", "Queue jobs and print their ids."),
    CommandEntry(WORK, "plan", "Show what would happen to a job now."),
    CommandEntry(
        WORK, "jobs", "List jobs: all that have not ended, and the most recent that have."
    ),
    CommandEntry(WORK, "job", "Show one job: its state, GPUs and progress."),
    CommandEntry(WORK, "logs", "Print a job's output.", "job:logs"),
    CommandEntry(
        WORK,
        "metrics",
        "Show metrics of a job or a sweep: the last, the least and the most value of each.",
    ),
    CommandEntry(WORK, "fetch", "Copy the files that a job left in its folder `artifacts`."),
    CommandEntry(WORK, "wait", "Wait until jobs have ended, and exit as they did."),
    CommandEntry(
        WORK, "explain", "Show why a job waits, or why it holds what it holds.", "job:explain"
    ),
    CommandEntry(
        WORK, "cancel", "Cancel jobs; running ones get their grace time to save.", "change:cancel"
    ),
    CommandEntry(
        WORK,
        "suspend",
        "Suspend jobs: running ones leave their GPUs and wait for `weft resume`.",
        "change:suspend",
    ),
    CommandEntry(
        WORK,
        "resume",
        "Resume suspended jobs where they were, or from a checkpoint.",
        "change:resume",
    ),
    CommandEntry(
        WORK, "priority", "Change the priority of jobs that have not ended.", "change:priority"
    ),
    CommandEntry(
        WORK,
        "forward",
        "Open a job's port on this machine: a notebook, TensorBoard, a debugger.",
        "shell:forward",
    ),
    CommandEntry(
        WORK,
        "slurm-client",
        "Submit the batch jobs of your Weft jobs to Slurm, as you, while it runs.",
    ),
    CommandEntry(
        WORK, "profile", "Measure a training script, alone or beside others.", settings=REST
    ),
    CommandEntry(CLUSTER, "serve", "Run the scheduler service: REST API, events, metrics."),
    CommandEntry(CLUSTER, "join", "Make this machine a node of a cluster."),
    CommandEntry(
        CLUSTER,
        "demo",
        "Try Weft: start the service and its web page here, with real training jobs.",
    ),
    CommandEntry(CLUSTER, "top", "Watch which job holds what, batch sizes, goodput and the queue."),
    CommandEntry(CLUSTER, "nodes", "List the machines, their GPUs, and the jobs on them."),
    CommandEntry(
        CLUSTER, "drain", "Move every job off a machine and place no more there.", "nodes:drain"
    ),
    CommandEntry(
        CLUSTER,
        "undrain",
        "Put a machine that was drained or set aside back into service.",
        "nodes:undrain",
    ),
    CommandEntry(
        CLUSTER, "reserve", "Reserve machines or GPUs for a tenant, or for maintenance (admins)."
    ),
    CommandEntry(CLUSTER, "policy", "Show which policy decides, or change it while jobs run."),
    CommandEntry(
        CLUSTER, "what-if", "Replay the past, or simulate the future, with one thing changed."
    ),
    CommandEntry(
        CLUSTER, "accounting", "Show the GPU time that each tenant used, and was entitled to."
    ),
    CommandEntry(CLUSTER, "doctor", "Check this machine and the service, one line per check."),
    CommandEntry(
        CLUSTER, "mcp", "Serve assistants over the Model Context Protocol, on standard input."
    ),
    CommandEntry(CLUSTER, "state", "Check, back up, restore and prune what the service keeps."),
    CommandEntry(
        CLUSTER, "token", "Create, rotate, list and revoke tokens (admins).", "admin:token"
    ),
    CommandEntry(
        CLUSTER,
        "audit",
        "Show who did what: requests that changed something or were refused (admins).",
        "admin:audit",
    ),
    CommandEntry(CLUSTER, "quota", "Set limits and weights of tenants (admins)."),
    CommandEntry(
        CLUSTER, "webhook", "Notify other services of state changes (admins).", "admin:webhook"
    ),
)

# What people type who come from other schedulers: another word for a command, or a sentence that
# names the commands that may be meant.
ALIASES = {
    "info": "job",
    "kill": "cancel",
    "ls": "jobs",
    "ps": "jobs",
    "queue": "jobs",
    "rm": "cancel",
    "sbatch": "submit",
    "scancel": "cancel",
    "show": "job",
    "squeue": "jobs",
    "srun": "run",
}
MEANINGS = {
    "attach": "`weft logs -f JOB` follows its output, `weft shell JOB` opens a shell beside it",
    "sinfo": "`weft nodes` lists the machines",
    "status": "`weft jobs` lists jobs, `weft job JOB` shows one, `weft top` the whole cluster",
    "stop": "`weft cancel JOB` ends a job for good, `weft suspend JOB` lets it wait",
    "tail": "`weft logs -f JOB` follows the output of a job",
}


class Commands(LazyGroup):
    """The table, as Typer takes it."""

    table = COMMANDS
    aliases = ALIASES
    meanings = MEANINGS


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
