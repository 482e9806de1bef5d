"""Jobs as `concurrent.futures`: what submitit, joblib and Optuna call."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from weft_client.errors import ClientError
from weft_client.job import Job, JobStatus, list_jobs
from weft_client.steps import FIRST_S, LONGEST_S, longer, patiently

if TYPE_CHECKING:
    from weft_client.client import Client

REST = 4.0  # as long as looking at all jobs took, at least


class JobFuture(Future[Any]):
    """The future of one job; cancelling it cancels the job, also while it runs."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def cancel(self) -> bool:
        """End the job, unless it has ended."""
        if self.done():
            return self.cancelled()
        self.job.cancel()
        return True


class JobExecutor(Executor):
    """Runs each call as a job of its own with the fields that were given.

    The jobs belong together, as those of `map` do, so that one request shows all of them.
    """

    def __init__(self, client: Client, fields: Mapping[str, Any]) -> None:
        self._client = client
        self._fields = {"app": f"executor-{secrets.token_hex(4)}", **fields}
        self._lock = threading.Lock()
        self._open: dict[str, JobFuture] = {}
        self._ended: set[str] = set()
        self._from: str | None = None  # this job and all before it have ended
        self._closed = False
        self._watcher: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture:
        """Submit a call; all keywords go to the function."""
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot submit to an executor that was shut down")
        future = JobFuture(self._client.submit_call(function, args, kwargs, self._fields))
        with self._lock:
            self._open[future.job.id] = future
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; their jobs run on unless `cancel_futures`."""
        with self._lock:
            self._closed = True
            left = list(self._open.values())
        if cancel_futures:
            for future in left:
                future.cancel()
        watcher = self._watcher
        if wait and watcher is not None:
            watcher.join()

    def _watch(self) -> None:
        """Ask about open jobs until none is left; one that comes later starts a new watch."""
        pause_s = FIRST_S
        while True:
            with self._lock:
                futures = list(self._open.values())
                if not futures:
                    self._watcher = None
                    return
            began = time.monotonic()
            ended = self._look(futures)
            took_s = time.monotonic() - began
            pause_s = FIRST_S if ended else longer(pause_s)
            time.sleep(min(max(pause_s, REST * took_s), LONGEST_S))

    def _look(self, futures: Sequence[JobFuture]) -> int:
        """Settle the futures whose jobs have ended; their number."""
        try:
            listed = patiently(self._list)
        except ClientError as error:
            for future in futures:
                future.set_exception(error)
                self._close(future)
            return len(futures)
        return sum(self._settle(future, listed.get(future.job.id)) for future in futures)

    def _list(self) -> dict[str, JobStatus]:
        """Jobs by id, without the first ones that have ended."""
        connection, app = self._client.connection, self._fields["app"]
        listed = {status.id: status for status in list_jobs(connection, self._from, app=app)}
        for job in takewhile(self._ended.__contains__, listed):
            self._from = job
        return listed

    def _settle(self, future: JobFuture, status: JobStatus | None) -> bool:
        """Give a future what came of its job; whether it has ended."""
        try:
            status = status or patiently(future.job.status)  # younger than the list, or forgotten
            if not status.ended:
                if status.state == "running" and not future.running():
                    future.set_running_or_notify_cancel()
                return False
            self._finish(future, status)
        except ClientError as error:
            future.set_exception(error)
        self._close(future)
        return True

    def _close(self, future: JobFuture) -> None:
        with self._lock:
            del self._open[future.job.id]
            self._ended.add(future.job.id)

    def _finish(self, future: JobFuture, status: JobStatus) -> None:
        if status.state == "cancelled":
            future.set_exception(CancelledError(f"job {status.id} was cancelled"))
            return
        try:
            value = future.job.values(status)[0]
        except BaseException as error:  # whatever the function raised
            future.set_exception(error)
        else:
            future.set_result(value)
