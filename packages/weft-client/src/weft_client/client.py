"""The client: what is submitted, and which jobs there are."""

from __future__ import annotations

import inspect
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft_client import call
from weft_client.connection import Connection, at
from weft_client.errors import Misused
from weft_client.job import RUN_CALL, Job, JobStatus, Sweep, list_jobs
from weft_client.job_file import complete, take_client_fields
from weft_client.steps import patiently

if TYPE_CHECKING:
    from weft_client.executor import JobExecutor

# The fields of a job file; `weft submit --help` and its how-to page explain them.
FIELDS = frozenset(
    "after app artifacts backoff_s batch checkpoint command cpus deadline_or deadline_s env "  # noqa: SIM905 - words
    "environment gpus hints id idle_timeout_s kinds log_mb max_parallel mem_gb metrics model "
    "name nodes notify plans preemptible priority processes pty retries retry_on run secrets "
    "setup share sweep tenant time_limit_s traffic user warn_s watch workdir".split()
)
WRITTEN = frozenset(("deadline", "env_file", "idle_timeout", "time_limit", "warn"))
FILES = (".yaml", ".yml", ".json")
SHELL = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")  # they decide what `python` is
KEY = "Idempotency-Key"  # a submission that is sent again makes no second job
BATCH = 500  # jobs of a request

What = str | os.PathLike[str] | Sequence[str] | Mapping[str, Any]


class Client:
    """A scheduler's service, as WEFT_URL and WEFT_TOKEN name it. It starts nothing.

    `calls` is the folder in which functions and their results are kept (default: WEFT_CALLS, or a
    folder of the user). One client may be used by several threads.
    """

    def __init__(
        self, url: str = "", token: str | None = None, *, calls: str | os.PathLike[str] = ""
    ) -> None:
        self.connection = Connection(url, token)
        self.calls = Path(calls).absolute() if calls else call.calls_folder()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open: every request has a connection of its own."""

    def __repr__(self) -> str:
        return f"Client({self.connection.url!r})"

    def submit(self, what: What | Callable[..., Any], /, *args: Any, **options: Any) -> Job:
        """Submit a job; it is on disk when this returns.

        `what` is a command as a list, a line for a shell, a job file (a path), the fields of one
        (a dict), or a function: that is called with the other arguments in a job of this
        environment. Options that are fields of a job file describe the job, such as `gpus=2` or
        `name="base"`; all others go to the function.
        """
        if callable(what):
            fields, kwargs = _part(what, options)
            return self.submit_call(what, args, kwargs, fields)
        body = self._body(what, args, options)
        if body.get("sweep") is not None:
            raise Misused("this is a sweep, so it is several jobs", "use client.sweep()")
        return Job(self.connection, self._post(body)["id"])

    def map(
        self, function: Callable[..., Any], /, *values: Iterable[Any], **options: Any
    ) -> list[Job]:
        """A job for each tuple of values, as `map` calls a function; all in one request each 500.

        They belong together: `weft jobs` shows them as one.
        """
        fields, kwargs = _part(function, options)
        rows = list(zip(*values, strict=False))
        if not rows:
            return []
        group = {"app": f"{_name(function)[:40]}-{secrets.token_hex(4)}"}
        bodies = [self._call_body(function, row, kwargs, {**group, **fields}) for row in rows]
        ids = []
        for start in range(0, len(bodies), BATCH):
            some = {"jobs": bodies[start : start + BATCH]}
            ids += self._send("/jobs/batch", some)["jobs"]
        return [
            Job(self.connection, job, Path(body["command"][-1]))
            for job, body in zip(ids, bodies, strict=True)
        ]

    def sweep(self, what: What, /, **options: Any) -> Sweep:
        """Submit a sweep: a job file, or fields of one, with `sweep`."""
        body = self._body(what, (), options)
        if body.get("sweep") is None:
            raise Misused("there is no `sweep` in it", "sweep={'grid': {'lr': [1, 2]}}")
        made = self._post(body)
        return Sweep(
            self.connection, made["id"], [Job(self.connection, job) for job in made["jobs"]]
        )

    def job(self, job_id: str) -> Job:
        """A job by its id or name."""
        return Job(self.connection, self.connection.json("GET", at("jobs", job_id))["id"])

    def jobs(
        self, *, state: str | None = None, tenant: str | None = None, sweep: str | None = None
    ) -> Iterator[JobStatus]:
        """Jobs in order of submission that the arguments select; `state` may name several."""
        return list_jobs(self.connection, state=state, tenant=tenant, app=sweep)

    def cluster(self) -> dict[str, Any]:
        """The cluster in numbers: nodes, GPUs, jobs that run and wait, the policy."""
        fields: dict[str, Any] = self.connection.json("GET", "/cluster")
        return fields

    def executor(self, **fields: Any) -> JobExecutor:
        """A `concurrent.futures.Executor` whose calls are jobs with these fields."""
        from weft_client.executor import JobExecutor

        return JobExecutor(self, fields)

    def tidy(self, older_than_days: float = 30.0) -> int:
        """Remove functions and results that nothing was written to for so long; their number."""
        return call.tidy(self.calls, older_than_days)

    def _body(self, what: What, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise Misused(f"{args[0]!r} is an argument, and there is no function to call with it")
        if unknown := sorted(set(options) - FIELDS - WRITTEN):
            raise Misused(f"a job file has no field {unknown[0]!r}", _closest(unknown[0]))
        given = dict(options)
        take_client_fields(given, Path.cwd())
        if isinstance(what, Mapping):
            return {"workdir": str(Path.cwd()), **what, **given}
        if isinstance(what, os.PathLike) or (isinstance(what, str) and what.endswith(FILES)):
            return {**self._read(Path(what)), **given}
        words = {"run": what} if isinstance(what, str) else {"command": [str(w) for w in what]}
        return {**_around(given), **words, **given, "env": _environment(given)}

    def _read(self, path: Path) -> dict[str, Any]:
        """The fields of a job file; the service reads its text."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Misused(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
        fields = self.connection.json("POST", "/job-file", {"text": text})["job"]
        return complete(fields, path)

    def submit_call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> Job:
        body = self._call_body(function, args, kwargs, fields)
        return Job(self.connection, self._post(body)["id"], Path(body["command"][-1]))

    def _call_body(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        fields: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The job that calls a function; one that raises is not tried again."""
        given = dict(fields)
        take_client_fields(given, Path.cwd())
        folder = call.write_call(self.calls, function, args, kwargs)
        return {
            "name": _name(function),
            "workdir": str(Path.cwd()),
            "processes": 1,
            "retries": 0,
            **given,
            "env": _environment(given),
            "command": [sys.executable, "-m", RUN_CALL, str(folder)],
        }

    def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._send("/jobs", body)

    def _send(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Submit; a service that is away meanwhile gets it again, and makes one job of it."""
        headers = {KEY: secrets.token_hex(16)}

        def post() -> dict[str, Any]:
            made: dict[str, Any] = self.connection.json("POST", path, body, headers=headers)
            return made

        # One that never answered is not waited for: its address may be wrong.
        return patiently(post) if self.connection.answered else post()


def _part(
    function: Callable[..., Any], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options that describe the job, and those of the function."""
    names = FIELDS | WRITTEN
    fields = {name: value for name, value in options.items() if name in names}
    kwargs = {name: value for name, value in options.items() if name not in names}
    if both := sorted(set(fields) & _parameters(function)):
        raise Misused(
            f"{both[0]!r} is a parameter of {_name(function)} and a field of the job",
            f"functools.partial({_name(function)}, {both[0]}=...) gives it to the function",
        )
    return fields, kwargs


def _parameters(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()  # a function of C may not tell


def _name(function: Callable[..., Any]) -> str:
    plain = getattr(function, "func", function)  # of functools.partial
    return str(getattr(plain, "__name__", type(plain).__name__)).strip("<>") or "call"


def _around(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"workdir": str(Path.cwd()), **given}


def _environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """The job's variables: those that were given, and what decides which Python is used."""
    return {name: os.environ[name] for name in SHELL if os.environ.get(name)} | dict(
        given.get("env") or {}
    )


def _closest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, FIELDS | WRITTEN, n=1)
    return f"did you mean {close[0]!r}?" if close else "docs/how-to/job-files.md lists them"
