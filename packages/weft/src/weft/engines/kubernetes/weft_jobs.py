"""WeftJobs, the custom resource: jobs that are applied to the namespaces of tenants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from weft.core.job_objects import JobObject
from weft.engines.kubernetes.api import CONFLICT, MISSING, Api, ApiError, Object
from weft.engines.kubernetes.namespaces import (
    JOBS_API,
    KIND,
    Namespace,
    event_on,
    events_path,
    jobs_path,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
FINALIZER = "batch.weft/cancel"


class WeftJobs:
    """Job objects (`weft.core.job_objects.JobObjects`); the tenant of a namespace is its job's."""

    def __init__(self, spaces: Iterable[Namespace], tenant: str) -> None:
        self._spaces = {space.site.namespace: space for space in spaces}
        self._tenant = tenant  # of a namespace that no tenant owns

    def all(self) -> Sequence[JobObject]:
        """Return the WeftJobs of every namespace that can be read now."""
        return [
            self._read(space, written)
            for space in self._spaces.values()
            for written in space.weft_jobs().values()
        ]

    def _read(self, space: Namespace, written: Object) -> JobObject:
        meta = written["metadata"]
        return JobObject(
            uid=str(meta["uid"]),
            namespace=space.site.namespace,
            name=str(meta["name"]),
            tenant=space.tenant or self._tenant,
            spec=written.get("spec") or {},
            workdir=space.site.mounts[0].path,
            generation=int(meta.get("generation", 1)),
            claimed=FINALIZER in (meta.get("finalizers") or ()),
            deleted="deletionTimestamp" in meta,
            status=written.get("status"),
        )

    async def claim(self, job: JobObject) -> None:
        """Add our finalizer."""
        await self._ask(job, lambda api, path: _set_finalizer(api, path, wanted=True))

    async def release(self, job: JobObject) -> None:
        """Take it away; an object that is gone already is fine."""
        await self._ask(job, lambda api, path: _set_finalizer(api, path, wanted=False))

    async def write(self, job: JobObject, status: Mapping[str, Any]) -> None:
        emptied = {name: None for name in job.status or () if name not in status}
        body = {"status": {**status, **emptied}}
        await self._ask(job, lambda api, path: api.merge(f"{path}/status", body))

    async def post_event(self, job: JobObject, reason: str, text: str, *, warning: bool) -> None:
        """An event, whose name is made of what it tells: a second one is refused."""
        event = event_on(_reference(job), reason, text, warning=warning)
        path = events_path(job.namespace)
        try:
            await self._ask(job, lambda api, _: api.create(path, event))
        except ApiError as error:
            if error.code != CONFLICT:
                raise

    async def _ask(self, job: JobObject, question: Callable[[Api, str], T]) -> T | None:
        space = self._spaces[job.namespace]
        path = f"{jobs_path(job.namespace)}/{job.name}"
        try:
            return await asyncio.to_thread(question, space.api, path)
        except ApiError as error:
            if error.code == MISSING:
                log.info("weftjob=%s/%s is gone", job.namespace, job.name)
                return None
            raise


def _reference(job: JobObject) -> Object:
    return {
        "apiVersion": JOBS_API,
        "kind": KIND,
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
    }


def _set_finalizer(api: Api, path: str, *, wanted: bool) -> None:
    """Refused by the server, and tried again, if someone else changed the object meanwhile."""
    meta = api.get(path)["metadata"]
    there = list(meta.get("finalizers") or ())
    others = [name for name in there if name != FINALIZER]
    finalizers = [*others, FINALIZER] if wanted else others
    if finalizers != there:
        version = meta["resourceVersion"]
        api.merge(path, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})
