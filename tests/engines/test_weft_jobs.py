"""WeftJobs on a real API server: applied by kubectl, run by a service, shown and cancelled."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.kubernetes import KubernetesCluster, why_no_custom_resources
from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.core.errors import EngineError, WeftError
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.service.responses.admin import QuotaAnswer
from weft.service.responses.answers import JobList

pytestmark = pytest.mark.slow
CRD = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "weft" / "crds" / "weftjob.yaml"


class Person:
    """Somebody with kubectl in the namespace of the service."""

    def __init__(self, cluster: KubernetesCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder

    def kubectl(self, *words: str) -> str:
        return self._cluster.kubectl("-n", "weft", *words)

    def apply(self, name: str, **spec: Any) -> None:
        file = self._folder / f"{name}.yaml"
        meta = {"name": name}
        body = {"apiVersion": "batch.weft/v1alpha1", "kind": "WeftJob", "metadata": meta}
        file.write_text(yaml.safe_dump({**body, "spec": spec}))
        self.kubectl("apply", "-f", str(file))

    def status(self, name: str) -> dict[str, Any]:
        shown = json.loads(self.kubectl("get", "weftjob", name, "-o", "json"))
        return dict(shown.get("status") or {})

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase", ""))

    def await_phase(self, name: str, phase: str) -> None:
        wait_until(lambda: self.phase(name) == phase, f"{name} is {phase}")

    def condition(self, name: str, kind: str) -> dict[str, str]:
        shown = self.status(name).get("conditions") or ()
        return next((dict(each) for each in shown if each["type"] == kind), {})

    def events(self, name: str) -> dict[str, str]:
        chosen = f"--field-selector=involvedObject.kind=WeftJob,involvedObject.name={name}"
        listed = json.loads(self.kubectl("get", "events", chosen, "-o", "json"))["items"]
        return {event["reason"]: event["message"] for event in listed}

    def names(self) -> list[str]:
        return self.kubectl("get", "weftjobs", "-o", "name").split()


@pytest.fixture
def person(kubernetes: KubernetesCluster, tmp_path: Path) -> Person:
    if why := why_no_custom_resources():
        pytest.skip(why)
    kubernetes.kubectl("apply", "-f", str(CRD))
    kubernetes.kubectl("wait", "--for=condition=established", "crd/weftjobs.batch.weft")
    return Person(kubernetes, tmp_path)


@pytest.fixture
def service(kubernetes: KubernetesCluster, person: Person, tmp_path: Path) -> Iterator[Service]:
    options = f"kubeconfig={kubernetes.kubeconfig},image=none,mounts={tmp_path}+/,address=pod"
    spec = f"kubernetes:{options},python={sys.executable},weft_jobs=true"
    made = Service(tmp_path / "state", ("--engine", spec, "--policy", "fifo"))
    made.start()
    yield made
    for name in person.names():
        with suppress(WeftError):  # gone meanwhile
            person.kubectl("delete", name, "--wait=false")
    wait_until(lambda: not person.names(), "all WeftJobs are gone")
    made.end()


def test_a_job_is_applied_run_shown_and_told(service: Service, person: Person) -> None:
    person.apply("net", run="echo hello", gpus=2, kinds=["a100"])

    person.await_phase("net", "Succeeded")
    person.kubectl("wait", "--for=condition=complete", "weftjob/net", "--timeout=600s")

    status = person.status("net")
    job = service.job(status["job"])
    assert (job.state, job.tenant, job.name) == ("succeeded", "default", "net")
    assert (status["phase"], status["asked"], status["attempts"]) == ("Succeeded", 2, 1)
    assert status["startedAt"] <= status["endedAt"]
    assert {"Submitted", "Succeeded"} <= set(person.events("net"))
    header, row = person.kubectl("get", "weftjobs", "net").splitlines()
    assert header.split() == ["NAME", "STATE", "GPUS", "WHY", "AGE"]
    assert row.split()[:2] == ["net", "Succeeded"]


def test_who_waits_and_who_runs_is_shown_and_deletion_cancels(
    service: Service, person: Person
) -> None:
    person.apply("runs", run="exec sleep 1000", gpus=2, kinds=["a100"])
    person.await_phase("runs", "Running")
    person.apply("waits", run="true", gpus=2, kinds=["a100"])
    person.await_phase("waits", "Pending")

    running, waiting = person.status("runs"), person.status("waits")
    assert (running["nodes"], running["gpus"]) == (["a1"], 2)
    assert waiting["nodes"] == []
    assert "a100" in waiting["reason"]
    assert person.condition("runs", "Running")["status"] == "True"
    assert "2 GPUs on a1" in person.events("runs")["Running"]
    pods = json.loads(person.kubectl("get", "pods", "-o", "json"))["items"]
    (meta,) = (pod["metadata"] for pod in pods if pod["status"]["phase"] == "Running")
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("WeftJob", "runs", True)

    person.kubectl("delete", "weftjob", "runs", "--wait=false")
    wait_until(lambda: person.names() == ["weftjob.batch.weft/waits"], "it is gone once it left")

    assert service.job(running["job"]).state == "cancelled"
    person.await_phase("waits", "Succeeded")


def test_a_job_above_its_tenants_quota_waits_says_so_and_runs_when_it_may(
    service: Service, person: Person
) -> None:
    service.client.put(QuotaAnswer, "/quotas", {"limits": {"default": 1}})
    person.apply("within", run="exec sleep 1000", gpus=1, kinds=["a100"])
    person.await_phase("within", "Running")

    person.apply("above", run="true", gpus=1, kinds=["a100"])

    wait_until(lambda: "quota" in person.status("above").get("reason", ""), "that is shown")
    assert person.phase("above") == "Pending"
    service.client.put(QuotaAnswer, "/quotas", {"limits": {"default": 2}})
    person.await_phase("above", "Succeeded")
    assert person.phase("within") == "Running"


def test_a_job_above_the_namespaces_own_quota_says_so_and_runs_once_it_is_lifted(
    kubernetes: KubernetesCluster, service: Service, person: Person
) -> None:
    quota, none = "/api/v1/namespaces/weft/resourcequotas", {"pods": "0"}
    kubernetes.api.create(quota, {"metadata": {"name": "few"}, "spec": {"hard": none}})
    kubernetes.api.merge(f"{quota}/few/status", {"status": {"hard": none, "used": none}})
    try:
        person.apply("net", run="true")

        wait_until(lambda: "exceeded quota" in json.dumps(person.status("net")), "that is shown")
    finally:
        kubernetes.api.delete(f"{quota}/few")

    person.await_phase("net", "Succeeded")


def test_a_bad_spec_is_told_by_field_and_runs_once_it_is_corrected(
    service: Service, person: Person
) -> None:
    with pytest.raises(WeftError, match=r"spec\.retries: Invalid value"):  # by the schema
        person.apply("net", run="true", retries="many")
    bad: list[tuple[dict[str, Any], str]] = [
        ({"command": ["a", "|", "b"]}, "no shell reads it"),
        ({"run": "true", "gpus": {"min": 3, "max": 2}}, "gpus: min 3 is above max 2"),
        ({"run": "true", "tenant": "other"}, "tenant: its tenant is that of the namespace"),
        ({"run": "true", "kinds": ["h100"]}, "h100"),
    ]
    for number, (spec, message) in enumerate(bad):
        name = f"bad-{number}"
        person.apply(name, **spec)
        person.await_phase(name, "Rejected")
        accepted = person.condition(name, "Accepted")
        assert accepted["status"] == "False"
        assert message in accepted["message"]
        assert message in person.events(name)["Rejected"]
    assert service.client.get(JobList, "/jobs").jobs == []

    person.apply("bad-1", run="true", gpus={"min": 1, "max": 2})

    person.await_phase("bad-1", "Succeeded")


def test_an_unknown_field_is_named_with_the_closest_one(service: Service, person: Person) -> None:
    body = {"metadata": {"name": "net"}, "spec": {"run": "true", "gpu": 1}}
    person._cluster.api.create("/apis/batch.weft/v1alpha1/namespaces/weft/weftjobs", _whole(body))

    person.await_phase("net", "Rejected")

    assert "unknown field 'gpu'; did you mean 'gpus'?" in person.status("net")["reason"]


def test_a_spec_that_changes_too_late_changes_nothing_and_says_so(
    service: Service, person: Person
) -> None:
    person.apply("net", run="exec sleep 1000")
    person.await_phase("net", "Running")
    job = person.status("net")["job"]

    person.apply("net", run="exec sleep 2000")

    wait_until(
        lambda: person.condition("net", "Accepted")["reason"] == "SpecChanged", "that is shown"
    )
    assert person.status("net")["job"] == job
    assert "SpecChanged" in person.events("net")
    assert service.job(job).command[-1] == "exec sleep 1000"


def test_a_killed_service_submits_nothing_twice_and_cancels_what_was_deleted_meanwhile(
    service: Service, person: Person
) -> None:
    person.apply("stays", run="exec sleep 1000")
    person.apply("goes", run="exec sleep 1000")
    for name in ("stays", "goes"):
        person.await_phase(name, "Running")
    jobs = {name: person.status(name)["job"] for name in ("stays", "goes")}
    service.end(signal.SIGKILL)
    person.apply("late", run="true")
    person.kubectl("delete", "weftjob", "goes", "--wait=false")
    # As if the service had been killed between its submission and the word of it.
    gone = {"status": {"job": None, "phase": None}}
    path = "/apis/batch.weft/v1alpha1/namespaces/weft/weftjobs/stays/status"
    person._cluster.api.merge(path, gone)

    service.start()

    wait_until(lambda: person.names() == ["weftjob.batch.weft/late", "weftjob.batch.weft/stays"])
    person.await_phase("late", "Succeeded")
    person.await_phase("stays", "Running")
    listed = service.client.get(JobList, "/jobs").jobs
    assert sorted(job.name for job in listed) == ["goes", "late", "stays"]
    assert person.status("stays")["job"] == jobs["stays"]
    assert person.status("stays")["attempts"] == 1
    assert service.job(jobs["goes"]).state == "cancelled"


def test_a_cluster_without_the_definition_is_refused_with_what_to_apply(
    kubernetes: KubernetesCluster, person: Person, tmp_path: Path
) -> None:
    person.kubectl("delete", "crd", "weftjobs.batch.weft")
    engine = KubernetesEngine(
        tmp_path / "state",
        image="none",
        kubeconfig=str(kubernetes.kubeconfig),
        mounts="/",
        address="pod",
        weft_jobs=True,
    )

    with pytest.raises(EngineError, match=r"(?s)no WeftJobs.*crds/weftjob\.yaml"):
        asyncio.run(engine.nodes())


def _whole(body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "batch.weft/v1alpha1", "kind": "WeftJob", **body}
