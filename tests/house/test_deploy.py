"""What is in `deploy/` fits the code: options, commands and files that it names are there."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from weft.cli.commands.cluster.serve import serve
from weft.cli.options.serve import ConfigFile, defaults_of, options_of
from weft.engines.kubernetes.pods import read_mounts

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_configuration_to_begin_with_is_valid_also_with_its_examples(tmp_path: Path) -> None:
    text = (DEPLOY / "weft.toml").read_text()
    commented = re.compile(r"^# (?=[a-z-]+ = |\[)", re.MULTILINE)
    whole = re.sub(r'^(host = "127.*)$', "", commented.sub("", text), flags=re.MULTILINE)
    (tmp_path / "weft.toml").write_text(whole)

    plain = defaults_of(ConfigFile.read(DEPLOY / "weft.toml"), options_of(serve))
    every = defaults_of(ConfigFile.read(tmp_path / "weft.toml"), options_of(serve))

    assert plain["state"] == "/var/lib/weft"
    assert set(every) >= {"tls_cert", "smtp", "mail_from", "users", *plain}


def test_the_unit_starts_the_service_and_leaves_its_jobs_alone() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "weft.service")
    _, command, *rest = shlex.split(unit["Service"]["ExecStart"])

    assert command == "serve"
    assert rest == ["--config", "/etc/weft/weft.toml"]
    assert unit["Service"]["KillMode"] == "process"
    assert int(unit["Service"]["LimitNOFILE"]) >= 65536


def test_the_image_copies_files_that_are_there() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()

    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]

    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []


def manifests(name: str) -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())
    return {
        f"{document['kind']}/{document['metadata']['name']}": document for document in documents
    }


def test_the_service_in_a_cluster_has_a_valid_configuration_and_mounts_what_pods_see(
    tmp_path: Path,
) -> None:
    there = manifests("weft.yaml")
    (tmp_path / "weft.toml").write_text(there["ConfigMap/weft"]["data"]["weft.toml"])

    defaults = defaults_of(ConfigFile.read(tmp_path / "weft.toml"), options_of(serve))
    pod = there["Deployment/weft"]["spec"]["template"]["spec"]

    assert defaults["engine"].startswith("kubernetes:image=")
    assert "policy" not in defaults  # the service's own default
    (default,) = read_mounts("", Path(defaults["state"]))
    claims = {volume["name"]: volume.get("persistentVolumeClaim") for volume in pod["volumes"]}
    seen = {
        mount["mountPath"]: claims[mount["name"]] for mount in pod["containers"][0]["volumeMounts"]
    }
    assert seen[default.path] == {"claimName": default.claim}
    assert f"PersistentVolumeClaim/{default.claim}" in there


def test_the_rights_are_those_of_a_namespace_and_to_read_nodes() -> None:
    there = manifests("rbac.yaml")

    cluster = [role for name, role in there.items() if name.startswith("ClusterRole/")]

    asked = [rule["resources"] for role in cluster for rule in role["rules"]]
    assert asked == [["nodes"], ["resourceslices"]]
    assert {verb for role in cluster for rule in role["rules"] for verb in rule["verbs"]} == {
        "get",
        "list",
        "watch",
    }


def test_a_tenants_account_has_the_rights_of_the_service_in_its_namespace_alone() -> None:
    own, there = manifests("rbac.yaml"), manifests("tenant.yaml")

    assert there["Role/weft"]["rules"] == own["Role/weft"]["rules"]
    assert there["Role/weft-acts-as"]["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts"],
            "resourceNames": ["weft"],
            "verbs": ["impersonate"],
        }
    ]
    assert not [name for name in there if name.startswith("Cluster")]
