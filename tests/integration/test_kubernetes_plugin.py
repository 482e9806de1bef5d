"""Credential plugins of a kubeconfig: commands that print a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.engines.kubernetes.access import read_kubeconfig

CONFIG = """
current-context: cloud
clusters:
- name: cloud
  cluster: {server: "http://cloud.example"}
users:
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: COMMAND
      args: ["now"]
      env: [{name: WHO, value: ann}]
contexts:
- name: cloud
  context: {cluster: cloud, user: plugin}
"""
PLUGIN = """#!/bin/sh
[ -n "$FAIL" ] && { echo "log in first" >&2; exit 1; }
echo x >>"$(dirname "$0")/asked"
echo '{"status": {"token": "'"$WHO-$1"'", "expirationTimestamp": "2999-01-01T00:00:00Z"}}'
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    path = tmp_path / "config"
    path.write_text(CONFIG.replace("COMMAND", str(plugin)))
    return path


def test_a_plugin_is_asked_once_while_its_token_holds(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = read_kubeconfig(config)

    assert [access.bearer(), access.bearer()] == ["ann-now", "ann-now"]
    assert (config.parent / "asked").read_text() == "x\n"
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(InvalidConfig, match="log in first"):
        read_kubeconfig(config).bearer()
