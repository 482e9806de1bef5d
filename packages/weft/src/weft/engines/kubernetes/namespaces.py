"""The pods of one namespace: made, watched and ended with the rights that are used there.

`namespace` is where its pods are, and `acts_as` the service account there whose rights they are
made with (default: weft). `account`, `pull_secret`, `mounts` and `secrets` are the pods' own, as
the engine's options of these names, which hold where a section says nothing.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import PRIORITIES, JobId
from weft.engines.fleet.port import Gang, Key, name_job
from weft.engines.kubernetes.api import (
    CONFLICT,
    FORBIDDEN,
    MISSING,
    Api,
    ApiError,
    Object,
    Watching,
)
from weft.engines.kubernetes.nodes import claim_template, class_of, templates_path
from weft.engines.kubernetes.pods import (
    SERVICE,
    PodSettings,
    headless_service,
    key_of,
    pods_of,
    read_mounts,
    selector,
)
from weft.engines.machine.users import read_table, sections

LONGEST_NAME, LONGEST_TEXT = 200, 1000


def event_on(about: Object, reason: str, text: str, *, warning: bool = False) -> Object:
    """An event on an object, whose name is made of what it tells: a second one is refused."""
    digest = hashlib.sha256(f"{about['uid']}/{reason}/{text}".encode()).hexdigest()[:16]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"{about['name'][:LONGEST_NAME]}.{digest}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": about,
        "reason": reason,
        "message": text[:LONGEST_TEXT],
        "type": "Warning" if warning else "Normal",
        "source": {"component": "weft"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def events_path(namespace: str) -> str:
    """The path of the events of a namespace."""
    return f"/api/v1/namespaces/{namespace}/events"


KEYS = ("namespace", "acts_as", "account", "pull_secret", "mounts", "secrets")
ACTS_AS = "weft"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def read_tenants(path: Path, others: PodSettings, state: Path) -> dict[str, PodSettings]:
    """Settings of the pods of each tenant; `others` says what a section does not."""
    tenants = sections(read_table(path, "tenants"), str(path), "tenants", KEYS, 'namespace = "ml"')
    if not tenants:
        raise InvalidConfig(f"{path} names no tenant", hint="write a section for each")
    sites: dict[str, PodSettings] = {}
    for tenant, fields in tenants.items():
        site = _site(fields, others, state, f"{path}: tenants.{tenant}")
        if other := next(
            (t for t, earlier in sites.items() if earlier.namespace == site.namespace), ""
        ):
            raise InvalidConfig(
                f"{path}: tenants {other!r} and {tenant!r} have one namespace, {site.namespace!r}",
                hint="give each its own: what separates them is the namespace",
            )
        sites[tenant] = site
    return sites


def read_names(text: str, where: str) -> tuple[str, ...]:
    """Names of objects, joined by `+`."""
    names = tuple(filter(None, text.split("+")))
    for name in names:
        if not ACCOUNT.fullmatch(name):
            raise InvalidConfig(f"{where} has {name!r}", hint="write NAME+NAME")
    return names


def read_classes(text: str) -> dict[str, str]:
    """Priority classes joined by `+`: `PRIORITY:NAME` for jobs of that one, `NAME` for others."""
    classes: dict[str, str] = {}
    for piece in filter(None, text.split("+")):
        word, _, name = piece.rpartition(":")
        if word in classes or word not in ("", *PRIORITIES) or not ACCOUNT.fullmatch(name):
            raise InvalidConfig(
                f"priority_class has {piece!r}",
                hint=f"write NAME+PRIORITY:NAME; priorities are {', '.join(PRIORITIES)}",
            )
        classes[word] = name
    return classes


def account_name(site: PodSettings) -> str:
    """The full name of the service account whose rights are used; empty for the service's own."""
    return f"system:serviceaccount:{site.namespace}:{site.acts_as}" if site.acts_as else ""


def _site(fields: Mapping[str, Any], others: PodSettings, state: Path, where: str) -> PodSettings:
    mounts = others.mounts
    if "mounts" in fields:
        mounts = read_mounts(str(fields["mounts"]), state)
    return replace(
        others,
        namespace=_name(fields, "namespace", "", NAMESPACE, where),
        acts_as=_name(fields, "acts_as", ACTS_AS, ACCOUNT, where),
        account=_name(fields, "account", others.account, ACCOUNT, where),
        pull_secret=_name(fields, "pull_secret", others.pull_secret, ACCOUNT, where),
        mounts=mounts,
        secrets=read_names(str(fields["secrets"]), f"{where}.secrets")
        if "secrets" in fields
        else others.secrets,
    )


def _name(
    fields: Mapping[str, Any], key: str, default: str, shape: re.Pattern[str], where: str
) -> str:
    if key not in fields and key != "namespace":
        return default
    name = str(fields.get(key, ""))
    if not shape.fullmatch(name):
        raise InvalidConfig(f"{where}.{key} is {name!r}", hint="a name as Kubernetes takes it")
    return name


log = logging.getLogger(__name__)

JOBS_API, KIND = "batch.weft/v1alpha1", "WeftJob"
UID_DIGITS = 16  # of an object's own id, in that of its job
ENDING_S = 1  # a kubelet ends a pod at once, but must have confirmed it: 0 would only forget it


def jobs_path(namespace: str) -> str:
    """The path of the WeftJobs of a namespace."""
    return f"/apis/{JOBS_API}/namespaces/{namespace}/weftjobs"


class Namespace:
    """A namespace with the pods of one tenant, or of all of them; `tenant` is empty then."""

    def __init__(self, api: Api, site: PodSettings, tenant: str = "") -> None:
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
        """The pods there are now; of a tenant that took our rights away, those there were."""
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
        """True if there are pods of this attempt, as far as was seen."""
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
        """The command that gives the rights that a tenant's namespace lacks."""
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
        """Make templates for its pods' claims of devices; they stay for the next ones."""
        path = templates_path(self.site.namespace)
        asked = {(part.device or self.site.devices[0], len(part.gpus)) for part in gang.parts}
        for device, count in sorted(asked - self._templates):
            if class_of(device) and count:
                self._create(path, claim_template(device, count))
                self._templates.add((device, count))

    def _create(self, path: str, body: Object, *, dry: bool = False) -> Object | None:
        try:
            return self.api.create(path, body, dry=dry)
        except ApiError as error:
            if error.code == CONFLICT and error.reason == "AlreadyExists":
                return None
            raise
