"""The pods of one namespace: made, watched and ended with the rights that are used there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from weft.core.errors import EngineError
from weft.core.model.job import JobId
from weft.engines.fleet.port import Gang, Key, name_job
from weft.engines.kubernetes.api import CONFLICT, FORBIDDEN, MISSING, Api, ApiError, Object
from weft.engines.kubernetes.claims import claim_template, class_of, templates_path
from weft.engines.kubernetes.events import event_on, events_path
from weft.engines.kubernetes.pod_watch import Watching
from weft.engines.kubernetes.pods import SERVICE, Site, headless_service, key_of, pods_of, selector
from weft.engines.kubernetes.tenants import account_name

log = logging.getLogger(__name__)

JOBS_API, KIND = "batch.weft/v1alpha1", "WeftJob"
UID_DIGITS = 16  # of an object's own id, in that of its job
ENDING_S = 1  # a kubelet ends a pod at once, but must have confirmed it: 0 would only forget it


def jobs_path(namespace: str) -> str:
    """Where the WeftJobs of a namespace are."""
    return f"/apis/{JOBS_API}/namespaces/{namespace}/weftjobs"


class Namespace:
    """A namespace with the pods of one tenant, or of all of them; `tenant` is empty then."""

    def __init__(self, api: Api, site: Site, tenant: str = "") -> None:
        self.site, self.tenant = site, tenant
        self._own_api, self._tells = bool(site.acts_as), True
        self._templates: set[tuple[str, int]] = set()
        self.api = Api(api.access, acts_as=account_name(site)) if self._own_api else api
        self.path = f"/api/v1/namespaces/{site.namespace}/pods"
        self._pods = Watching(self.api, self.path)
        self._jobs = Watching(self.api, jobs_path(site.namespace)) if site.weft_jobs else None

    def open(self, owner: str) -> None:
        """See whether we may do what we need, and begin to watch."""
        self.site = replace(self.site, owner=owner)
        self._pods = Watching(self.api, self.path, selector(owner))
        try:
            self._pods.start()
            if self._jobs is not None:
                self._start(self._jobs)
            if self.site.address == "service":
                self._make_service()
        except ApiError as error:
            if not self.tenant or error.code != FORBIDDEN:
                raise
            raise EngineError(f"tenant {self.tenant!r}: {error.what}", hint=self._hint) from error

    def close(self) -> None:
        """End the watches; pods go on."""
        self._pods.stop()
        if self._jobs is not None:
            self._jobs.stop()
        if self._own_api:
            self.api.close()

    def pods(self) -> Mapping[str, Object]:
        """What there is now; of a tenant that took our rights away, what there was."""
        try:
            return self._pods.objects()
        except ApiError as error:
            if self.tenant and error.rights:  # the others' pods are seen all the same
                return self._pods.last()
            raise

    def weft_jobs(self) -> Mapping[str, Object]:
        """The WeftJobs as they were last seen; none where they are not asked for."""
        return {} if self._jobs is None else self._jobs.last()

    def has(self, key: Key) -> bool:
        """Whether there are pods of this attempt, as far as was seen."""
        return any(key_of(pod) == key for pod in self._pods.last().values())

    def submit(self, gang: Gang) -> None:
        """Ask the server whether it would take all pods, then create them."""
        pods = pods_of(gang, self.site)
        if owner := self._owner(name_job(gang.job)):
            for pod in pods:
                pod["metadata"]["ownerReferences"] = [owner]
        try:
            self._make_templates(gang)
            if len(pods) > 1:  # all or none: a single one is refused as it is
                for pod in pods:
                    self._create(self.path, pod, dry=True)
            for pod in pods:
                if (made := self._create(self.path, pod)) is not None:
                    self._pods.put(made)
                    self._tell(made, "Placed", f"{gang.name or gang.job}, attempt {gang.attempt}")
        except ApiError as error:
            if error.rights and not self.tenant:
                raise
            if not error.rights:
                self.cancel(gang.key)
            raise EngineError(
                f"Kubernetes refused a pod of {gang.name or gang.job!r}: {error.message}",
                hint=self._hint if error.rights else error.hint,
            ) from error

    def cancel(self, key: Key) -> None:
        """Delete the pods of an attempt; kubelets end what runs in them."""
        body = self.api.get(self.path, labelSelector=selector(self.site.owner, key))
        for pod in body.get("items") or ():
            if key_of(pod) == key:
                self._tell(pod, "Ended", f"Weft ends attempt {key[1]} of {key[0]}")
                self.api.delete(f"{self.path}/{pod['metadata']['name']}", grace_s=ENDING_S)

    def _owner(self, job: JobId) -> Object | None:
        """The WeftJob that a job was applied as, in whose id is part of the object's own."""
        for written in self.weft_jobs().values():
            meta = written["metadata"]
            if job.endswith(f"-{meta['uid'].replace('-', '')[:UID_DIGITS]}"):
                named = {"name": meta["name"], "uid": meta["uid"]}
                return {"apiVersion": JOBS_API, "kind": KIND, **named, "controller": True}
        return None

    def _tell(self, pod: Object, reason: str, text: str) -> None:
        """An event on a pod, where we may make some: for people, and nothing depends on it."""
        if not self._tells:
            return
        meta = pod["metadata"]
        named = {"namespace": self.site.namespace, "name": meta["name"], "uid": meta["uid"]}
        event = event_on({"apiVersion": "v1", "kind": "Pod", **named}, reason, text)
        try:
            self._create(events_path(self.site.namespace), event)
        except ApiError as error:
            self._tells = not error.rights
            log.info("pod=%s has no event %s: %s", meta["name"], reason, error.what)

    @property
    def _hint(self) -> str:
        """What gives the rights that a tenant's namespace lacks."""
        where = self.site.namespace
        return f"an administrator applies deploy/kubernetes/tenant.yaml for namespace {where!r}"

    def _start(self, jobs: Watching) -> None:
        try:
            jobs.start()
        except ApiError as error:
            if error.code != MISSING:
                raise
            raise EngineError(
                f"the cluster has no WeftJobs: {error.what}",
                hint="an administrator applies deploy/helm/weft/crds/weftjob.yaml",
            ) from error

    def _make_service(self) -> None:
        path = f"/api/v1/namespaces/{self.site.namespace}/services"
        try:
            self.api.get(f"{path}/{SERVICE}")
        except ApiError as error:
            if error.code != MISSING:
                raise
            self._create(path, headless_service())

    def _make_templates(self, gang: Gang) -> None:
        """Of the claims of its pods, where devices are claimed; they stay for the next ones."""
        path = templates_path(self.site.namespace)
        asked = {(part.device or self.site.devices[0], len(part.gpus)) for part in gang.parts}
        for device, count in sorted(asked - self._templates):
            if class_of(device) and count:
                self._create(path, claim_template(device, count))
                self._templates.add((device, count))

    def _create(self, path: str, body: Object, *, dry: bool = False) -> Object | None:
        """None if it is there already."""
        try:
            return self.api.create(path, body, dry=dry)
        except ApiError as error:
            if error.code == CONFLICT and error.reason == "AlreadyExists":
                return None
            raise
