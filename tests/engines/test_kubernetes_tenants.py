"""Tenants on a real API server: a namespace each, with the rights of its own service account."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.kubernetes import DEPLOY, KubernetesCluster
from tests.engines.contract import engine_of_pods
from weft.core.errors import EngineError, InvalidConfig
from weft.core.events.event import Finished, Started, StartFailed
from weft.core.model.job import Job
from weft.engines.kubernetes.access import read_kubeconfig
from weft.engines.kubernetes.api import FORBIDDEN, Api, ApiError
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.engine_subject import EngineSession, session, shell_job, shell_subject

pytestmark = pytest.mark.slow
TENANTS = ("vision", "nlp")


@pytest.fixture
def tenants(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Path]:
    """Two namespaces as an administrator makes them, and the file that names them."""
    manifests = [tmp_path / f"{tenant}.yaml" for tenant in TENANTS]
    text = (DEPLOY / "tenant.yaml").read_text()
    for tenant, manifest in zip(TENANTS, manifests, strict=True):
        manifest.write_text(text.replace("vision", tenant))
        kubernetes.kubectl("apply", "-f", str(manifest))
    path = tmp_path / "tenants.toml"
    path.write_text("\n".join(f'[{tenant}]\nnamespace = "{tenant}"' for tenant in TENANTS))
    yield path
    for tenant in TENANTS:  # nobody ends a namespace here: its controller does not run
        kubernetes.kubectl("-n", tenant, "delete", "pods", "--all", "--grace-period=1")
        for kind in ("rolebinding", "role", "serviceaccount"):
            kubernetes.kubectl("-n", tenant, "delete", kind, "--all")


def engine(cluster: KubernetesCluster, tenants: Path, state: Path) -> KubernetesEngine:
    return engine_of_pods(cluster, state, tenants=str(tenants))


@pytest.fixture
def made(kubernetes: KubernetesCluster, tenants: Path, tmp_path: Path) -> KubernetesEngine:
    return engine(kubernetes, tenants, tmp_path / "state")


def job_of(tenant: str, script: str = "true") -> Job:
    return replace(shell_job(f"of-{tenant}", 1, script), tenant=tenant)


def session_of(made: KubernetesEngine) -> AbstractAsyncContextManager[EngineSession]:
    return session(shell_subject(lambda: made, where="$NODE_NAME"))


def test_the_pods_of_a_tenant_are_in_its_namespace(
    kubernetes: KubernetesCluster, made: KubernetesEngine
) -> None:
    async def life() -> None:
        async with session_of(made) as it:
            for tenant in TENANTS:
                await it.start(job_of(tenant))
                assert await it.told(Started) == Started(job_of(tenant).id, 1)
                assert isinstance(await it.told(Finished), Finished)
            for tenant in TENANTS:
                pods = kubernetes.api.get(f"/api/v1/namespaces/{tenant}/pods")["items"]
                assert [pod["metadata"]["annotations"]["weft/tenant"] for pod in pods] == [tenant]
            assert kubernetes.api.get("/api/v1/namespaces/weft/pods")["items"] == []
            with pytest.raises(InvalidConfig, match="tenant 'audio' has no namespace"):
                made.check(job_of("audio"))

    asyncio.run(life())


def test_a_tenants_jobs_have_its_secrets_which_the_service_cannot_read(
    kubernetes: KubernetesCluster, tenants: Path, tmp_path: Path
) -> None:
    tenants.write_text(tenants.read_text().replace("[nlp]", 'secrets = "wandb"\n[nlp]'))
    for tenant in TENANTS:
        value = f"--from-literal=WANDB_API_KEY=of-{tenant}"
        kubernetes.kubectl("-n", tenant, "create", "secret", "generic", "wandb", value)
    made = engine(kubernetes, tenants, tmp_path / "state")

    async def life() -> None:
        async with session_of(made) as it:
            for tenant in TENANTS:
                await it.start(job_of(tenant, f'echo "key=$WANDB_API_KEY" > {tmp_path}/{tenant}'))
                assert isinstance(await it.told(Finished), Finished)

    asyncio.run(life())

    assert (tmp_path / "vision").read_text() == "key=of-vision\n"
    assert (tmp_path / "nlp").read_text() == "key=\n"


def test_the_service_may_only_act_as_the_account_of_the_tenant(
    kubernetes: KubernetesCluster, tenants: Path
) -> None:
    access = read_kubeconfig(kubernetes.kubeconfig)
    tenant = "system:serviceaccount:vision:weft"

    with closing(Api(access, acts_as=tenant)) as api:
        assert api.get("/api/v1/namespaces/vision/pods")["items"] == []
        for path in ("/api/v1/namespaces/nlp/pods", "/api/v1/namespaces/vision/secrets"):
            with pytest.raises(ApiError, match=f'User "{tenant}" cannot list'):
                api.get(path)
    for other in ("system:serviceaccount:vision:default", "admin"):
        with closing(Api(access, acts_as=other)) as api:
            with pytest.raises(ApiError, match="cannot impersonate") as refused:
                api.get("/api/v1/namespaces/vision/pods")
            assert refused.value.code == FORBIDDEN
    with closing(Api(access)) as api, pytest.raises(ApiError, match="cannot list"):
        api.get("/api/v1/namespaces/vision/pods")


def test_rights_that_are_missing_are_told_by_tenant_at_the_start(
    kubernetes: KubernetesCluster, tenants: Path, tmp_path: Path
) -> None:
    kubernetes.kubectl("-n", "nlp", "delete", "rolebinding", "weft-acts-as")

    with pytest.raises(EngineError, match=r"(?s)tenant 'nlp'.*tenant\.yaml.*'nlp'"):
        asyncio.run(engine(kubernetes, tenants, tmp_path / "state").nodes())


def test_a_tenant_that_takes_its_rights_back_does_not_stop_the_others(
    kubernetes: KubernetesCluster, made: KubernetesEngine
) -> None:
    async def life() -> None:
        async with session_of(made) as it:
            await made.nodes()
            kubernetes.kubectl("-n", "nlp", "delete", "rolebinding", "weft")

            await it.start(job_of("nlp"))
            assert "tenant.yaml" in (await it.told(StartFailed)).reason
            await it.start(job_of("vision"))
            assert isinstance(await it.told(Finished), Finished)

    asyncio.run(life())
