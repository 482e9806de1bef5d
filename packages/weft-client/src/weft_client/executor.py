"""Jobs as `concurrent.futures`: what submitit, joblib and Optuna call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any

from weft_client.errors import ClientError
from weft_client.job import FIRST_S, LONGEST_S, Job, JobStatus, patiently

if TYPE_CHECKING:
    from weft_client.client import Client


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
    """Runs each call as a job of its own with the fields that were given."""

    def __init__(self, client: Client, fields: Mapping[str, Any]) -> None:
        self._client, self._fields = client, dict(fields)
        self._lock = threading.Lock()
        self._open: dict[str, JobFuture] = {}
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
            ended = sum(self._settle(future) for future in futures)
            pause_s = FIRST_S if ended else min(1.5 * pause_s, LONGEST_S)
            time.sleep(pause_s)

    def _settle(self, future: JobFuture) -> bool:
        """Give a future what came of its job; whether it has ended."""
        try:
            status = patiently(future.job.status)
            if not status.ended:
                if status.state == "running" and not future.running():
                    future.set_running_or_notify_cancel()
                return False
            self._finish(future, status)
        except ClientError as error:
            future.set_exception(error)
        with self._lock:
            del self._open[future.job.id]
        return True

    def _finish(self, future: JobFuture, status: JobStatus) -> None:
        if status.state == "cancelled":
            future.set_exception(CancelledError(f"job {status.id} was cancelled"))
            return
        try:
            value = future.job.result()
        except BaseException as error:  # whatever the function raised
            future.set_exception(error)
        else:
            future.set_result(value)
