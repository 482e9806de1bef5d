"""Slurm batch scripts as jobs: what their `#SBATCH` lines say, in the words of a job file.

What Weft does not do is refused where the job would not be the same without it, and otherwise
named, so that it is no surprise later.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, NoReturn

from weft.cli.job_files.job_options import is_whole, read_array, slurm_seconds_of
from weft.core.errors import InvalidConfig

SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
# Options with a value that change nothing here, and why.
UNUSED = {
    "account": "the tenant decides whose quota counts (--tenant)",
    "comment": "",
    "constraint": "say which GPUs will do with --kinds",
    "error": "`weft logs` has all output",
    "exclude": "",
    "mail-type": "use `--notify mail` for notifications",
    "mail-user": "use `--notify mail` for notifications",
    "nodelist": "",
    "nice": "",
    "output": "`weft logs` has all output",
    "open-mode": "`weft logs` has all output",
    "partition": "there is one queue",
    "priority": "see --priority",
    "qos": "see --priority",
    "reservation": "",
    "switches": "",
}
REFUSED = {"begin": "submit it when it may start"}
DEPENDENCIES = {"afterok": "ok", "afterany": "any", "afternotok": "not_ok"}
# A script may call srun for its one task: that is the command itself, where Slurm is installed too.
MOST_NODES = 1_000_000
SRUN = """\
srun() {
  while [ "${1#-}" != "$1" ]; do
    case $1 in
      --*=*|--exclusive|--label|--unbuffered|--overlap|-l|-u|-v) shift ;;
      --*|-?) shift 2 ;;
      *) shift ;;
    esac
  done
  "$@"
}
"""
_HEADER = re.compile(r"#SBATCH\s+(.*)")
_GRES = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?")
_GPUS = re.compile(r"(?:([A-Za-z][\w.-]*):)?(\d+)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)B?", re.I)
_SIGNAL = re.compile(r"(?:[RB]:)?(?:SIG)?([A-Z0-9]+)(?:@(\d+))?")


def is_sbatch(path: Path) -> bool:
    """Return true if a file is a script with `#SBATCH` lines."""
    try:
        with path.open("rb") as file:
            return b"\n#SBATCH" in b"\n" + file.read(1 << 16)
    except OSError:
        return False


def read_sbatch(path: Path, arguments: Sequence[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """The fields of a job file, and what was skipped. The script runs in the present folder."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(
            f"cannot read {path}: {error}", hint="a script is a text in UTF-8"
        ) from error
    options, others = _parser(path).parse_known_args(_header(text, path))
    body: dict[str, Any] = {
        "name": options.job_name or path.stem,
        "workdir": str((Path.cwd() / options.chdir).absolute() if options.chdir else Path.cwd()),
        "command": [*_interpreter(text, path), SRUN + text, path.name, *arguments],
        "processes": 1,
        "env": {
            "SLURM_SUBMIT_DIR": str(Path.cwd()),
            "SLURM_JOB_NAME": options.job_name or path.stem,
            **(
                {"SLURM_CPUS_PER_TASK": str(options.cpus_per_task)} if options.cpus_per_task else {}
            ),
            **_read_exports(options.export),
        },
    }
    nodes = _count_nodes(options.nodes or "1", path)
    tasks = options.ntasks or (options.ntasks_per_node or 1) * nodes
    if tasks > nodes and re.search(r"^\s*srun\b", text, re.M):
        raise InvalidConfig(
            f"{path}: srun would start {tasks} tasks, which only Slurm does",
            hint="start them with torchrun, or `processes: per-gpu` in a job file",
        )
    body["env"] = {"SLURM_NTASKS": str(tasks), **body["env"]}
    kind, gpus = _count_gpus(options, tasks, nodes, path)
    body |= {"gpus": gpus} if gpus else {}
    body |= {"nodes": nodes} if options.nodes else {}
    body |= {"kinds": [kind.lower()]} if kind else {}
    cpus = (options.cpus_per_task or 0) * tasks
    body |= {"cpus": float(cpus)} if cpus else {}
    memory = _memory_gb(options, nodes, cpus or tasks)
    body |= {"mem_gb": memory} if memory else {}
    if options.time:
        body["time_limit_s"] = _read_time(options.time, path)
    if options.array:
        swept = read_array(options.array, f"{path}: --array={options.array[:60]}")
        body = {**body, **swept, "env": {**body["env"], **swept["env"]}}
    if options.dependency:
        body["after"] = read_dependency(options.dependency, path)
    if options.exclusive:
        body["share"] = "never"
    if options.requeue:
        body["preemptible"] = True
    if options.no_requeue:
        body["retries"] = 0
    remarks = [*_read_warning(options, body), *_find_unused(options, others, path)]
    if options.nodes and options.nodes != str(nodes):
        remarks.append(f"--nodes={options.nodes} is taken as {nodes}")
    return body, remarks


def read_dependency(text: str, path: Path) -> dict[str, list[str]]:
    """The jobs of `afterok:ID:ID,afterany:ID`, in the words of a job file."""
    after: dict[str, list[str]] = {}
    for part in text.split(","):
        how, *jobs = part.split(":")
        if how not in DEPENDENCIES or not all(jobs) or not jobs or "?" in part:
            raise InvalidConfig(
                f"{path}: --dependency={text} is not supported",
                hint="afterok:ID, afterany:ID and afternotok:ID are, joined by commas",
            )
        after.setdefault(DEPENDENCIES[how], []).extend(jobs)
    return after


def _read_time(text: str, path: Path) -> float:
    try:
        return slurm_seconds_of(text)
    except InvalidConfig as error:
        error.what = f"{path}: {error.what}"
        raise


class _Parser(argparse.ArgumentParser):
    path = Path()

    def error(self, message: str) -> NoReturn:
        raise InvalidConfig(f"{self.path}: #SBATCH: {message}")


def _parser(path: Path) -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.path = path
    for names in (
        ("-J", "--job-name"), ("-D", "--chdir"), ("-t", "--time"), ("-G", "--gpus"),
        ("--gres",), ("--gpus-per-node",), ("--gpus-per-task",), ("--mem",),
        ("--mem-per-cpu",), ("--mem-per-gpu",), ("-N", "--nodes"), ("--export",), ("--signal",),
        ("-d", "--dependency"), ("-a", "--array"),
    ):  # fmt: skip
        parser.add_argument(*names)
    for names in (("-n", "--ntasks"), ("--ntasks-per-node",), ("-c", "--cpus-per-task")):
        parser.add_argument(*names, type=int)
    for name in ("exclusive", "requeue", "no-requeue"):
        parser.add_argument(f"--{name}", action="store_true")
    short = {"account": "-A", "constraint": "-C", "error": "-e", "exclude": "-x", "nodelist": "-w",
             "output": "-o", "partition": "-p", "qos": "-q", "begin": "-b"}  # fmt: skip
    for name in (*UNUSED, *REFUSED):
        parser.add_argument(*([short[name]] if name in short else []), f"--{name}")
    return parser


def _count_nodes(text: str, path: Path) -> int:
    """The least of `N` or `N-M`."""
    least = text.partition("-")[0]
    if not (is_whole(least) and 0 < int(least) <= MOST_NODES):
        raise InvalidConfig(f"{path}: --nodes={text[:60]} is not a number of nodes")
    return int(least)


def _split(line: str, path: Path) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise InvalidConfig(
            f"{path}: #SBATCH {line[:60]}: {error}", hint="close its quotes"
        ) from error


def _header(text: str, path: Path) -> list[str]:
    """The words of the `#SBATCH` lines, which end with the first command."""
    words: list[str] = []
    for line in text.splitlines():
        if match := _HEADER.match(line):
            words += _split(match[1], path)
        elif line.strip() and not line.startswith("#"):
            break
    return words


def _interpreter(text: str, path: Path) -> list[str]:
    first = text.partition("\n")[0]
    words = shlex.split(first[2:]) if first.startswith("#!") else ["bash"]
    program = words[1:] if PurePath(words[0]).name == "env" else words
    if not program or PurePath(program[0]).name not in SHELLS:
        raise InvalidConfig(
            f"{path} is for {' '.join(program) or 'nothing'}, expected a shell script",
            hint="write a job file with `command:`",
        )
    return [*program, "-c"]


def _read_exports(text: str | None) -> dict[str, str]:
    """Variables of --export: pairs, or names that have a value here. ALL and NONE name none."""
    exports: dict[str, str] = {}
    for part in (text or "").split(","):
        key, equals, value = part.partition("=")
        if equals:
            exports[key] = value
        elif key in os.environ and key not in ("ALL", "NONE", "NIL"):
            exports[key] = os.environ[key]
    return exports


def _count_gpus(options: Any, tasks: int, nodes: int, path: Path) -> tuple[str | None, int]:
    """The kind that was named, and GPUs over all nodes; 0 if nothing was said."""
    for text, times, form in (
        (options.gpus, 1, _GPUS),
        (options.gpus_per_node, nodes, _GPUS),
        (options.gpus_per_task, tasks, _GPUS),
        (options.gres, nodes, _GRES),
    ):
        if text is None:
            continue
        match = form.fullmatch(text)
        if match is None:
            raise InvalidConfig(f"{path}: {text!r} does not say how many GPUs", hint="--gres=gpu:2")
        return match[1], int(match[2] or 1) * times
    return None, 0


def _memory_gb(options: Any, nodes: int, cpus: int) -> float:
    scale = {"K": 1e-6, "M": 1e-3, "": 1e-3, "G": 1.0, "T": 1e3}
    for text, times in ((options.mem, nodes), (options.mem_per_cpu, cpus)):
        if text and (match := _MEMORY.fullmatch(text)):
            return float(match[1]) * scale[match[2].upper()] * times
    return 0.0


def _read_warning(options: Any, body: dict[str, Any]) -> list[str]:
    if not options.signal:
        return []
    match = _SIGNAL.fullmatch(options.signal)
    if match is None or match[1] not in ("USR1", "10") or "time_limit_s" not in body:
        return [f"--signal={options.signal} is not used: Weft sends USR1 before a time limit"]
    body["warn_s"] = float(match[2] or 60)
    return []


def _find_unused(options: Any, others: Sequence[str], path: Path) -> list[str]:
    given = vars(options)
    for name, instead in REFUSED.items():
        if given[name.replace("-", "_")] is not None:
            raise InvalidConfig(f"{path}: --{name} is not supported", hint=instead)
    notes = [
        f"--{name} is not used" + (f": {why}" if why else "")
        for name, why in UNUSED.items()
        if given[name.replace("-", "_")] is not None
    ]
    if options.mem_per_gpu:
        notes.append("--mem-per-gpu is not used: memory comes in proportion to the GPUs")
    return [*notes, *(f"{word} is not known and not used" for word in others if word[:1] == "-")]
