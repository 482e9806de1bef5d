"""Where the API server is, from the files that people have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.engines.kubernetes.access import find_access, read_kubeconfig

CONFIG = """
current-context: lab
clusters:
- name: lab
  cluster: {server: "http://127.0.0.1:8001/k8s/"}
- name: cloud
  cluster: {server: "http://cloud.example"}
users:
- name: ann
  user: {token: secret}
- name: file
  user: {tokenFile: token}
contexts:
- name: lab
  context: {cluster: lab, user: ann, namespace: vision}
- name: files
  context: {cluster: lab, user: file}
- name: cloud
  context: {cluster: cloud, user: ann}
- name: broken
  context: {cluster: nowhere, user: ann}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    return path


def test_the_current_context_names_server_namespace_and_token(config: Path) -> None:
    access = read_kubeconfig(config)

    assert (access.server, access.namespace) == ("http://127.0.0.1:8001/k8s", "vision")
    assert access.bearer() == "secret"


def test_a_token_is_read_from_the_file_beside_the_kubeconfig(config: Path) -> None:
    (config.parent / "token").write_text("from a file\n")

    assert read_kubeconfig(config, "files").bearer() == "from a file"


def test_a_context_that_is_not_there_is_answered_with_those_that_are(config: Path) -> None:
    with pytest.raises(InvalidConfig, match="no context 'none'; it has broken, cloud, files, lab"):
        read_kubeconfig(config, "none")
    with pytest.raises(InvalidConfig, match="no cluster 'nowhere'"):
        read_kubeconfig(config, "broken")


def test_a_file_that_is_no_kubeconfig_is_refused_by_name(tmp_path: Path) -> None:
    for text in ("- 1", "{", "current-context: x"):
        (tmp_path / "config").write_text(text)
        with pytest.raises(InvalidConfig, match="config"):
            read_kubeconfig(tmp_path / "config")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_kubeconfig(tmp_path / "missing")


def test_the_environment_names_the_file_and_nothing_at_all_is_told(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{config}{os.pathsep}{tmp_path / 'other'}")

    assert find_access().namespace == "vision"
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(InvalidConfig, match="no Kubernetes cluster is named"):
        find_access()
