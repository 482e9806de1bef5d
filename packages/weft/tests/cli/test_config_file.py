"""The options of `weft serve` in a file."""

from __future__ import annotations

import tomllib
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from weft.cli.commands.cluster.serve import serve
from weft.cli.main import cli
from weft.cli.options.serve import NOT_HERE, ConfigFile, as_toml, defaults_of, options_of
from weft.core.errors import InvalidConfig


def read(folder: Path, text: str, name: str = "weft.toml") -> dict[str, Any]:
    path = folder / name
    path.write_text(text)
    return defaults_of(ConfigFile.read(path), options_of(serve))


def printed(*args: str) -> dict[str, Any]:
    ran = CliRunner().invoke(cli, ["serve", *args, "--print-config"])
    assert ran.exit_code == 0, ran.output
    return tomllib.loads(ran.stdout)


def test_every_option_may_be_in_the_file() -> None:
    known = set(signature(serve).parameters) - {"context", *NOT_HERE}

    assert set(options_of(serve)) == known


def test_values_have_the_options_names_and_files_are_relative_to_the_file(tmp_path: Path) -> None:
    text = read(
        tmp_path,
        'port = 99\nstate = "st"\ntls-cert = "/etc/c.pem"\npass-env = ["A", "B"]\nverbose = true\n',
    )

    assert text == {
        "port": 99,
        "state": str(tmp_path / "st"),
        "tls_cert": "/etc/c.pem",
        "pass_env": ["A", "B"],
        "verbose": True,
    }


def test_yaml_does_as_well(tmp_path: Path) -> None:
    assert read(tmp_path, "port: 99\npolicy: las\n", "weft.yaml") == {"port": 99, "policy": "las"}


def test_the_command_line_wins_and_the_rest_is_as_ever(tmp_path: Path) -> None:
    (tmp_path / "weft.toml").write_text('port = 99\npolicy = "las"\n[users.a]\nuid = 61001\n')
    file = str(tmp_path / "weft.toml")

    options = printed("--config", file, "--port", "1234")

    assert (options["port"], options["policy"], options["host"]) == (1234, "las", "127.0.0.1")
    assert options["users"] == {"a": {"uid": 61001}}
    assert printed("--port", "1234", "--config", file) == options


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('port = 99\npass-env = ["A"]\n[users."a.b"]\nuid = 61001\n')
    first = printed("--config", str(tmp_path / "one.toml"))

    (tmp_path / "two.toml").write_text(as_toml(first))

    assert printed("--config", str(tmp_path / "two.toml")) == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "weft.toml:1: there is no option 'prot'; did you mean 'port'?"),
        ('\n\nport = "x"', 'weft.toml:3: port is "x", expected a whole number'),
        ("port = true", "weft.toml:1: port is true, expected a whole number"),
        ("port = 70000", "weft.toml:1: port is 70000, expected at most 65535"),
        ("slots = -1", "weft.toml:1: slots is -1, expected at least 0"),
        ('verbose = "yes"', 'weft.toml:1: verbose is "yes", expected true or false'),
        ("pass-env = [1]", "weft.toml:1: pass-env is [1], expected a text"),
        ("[port]\nx = 1", "weft.toml:1: port is"),
        ("state = 3", "weft.toml:1: state is 3, expected a path"),
        ("port = \nslots = 1", "weft.toml is not TOML: Invalid value (at line 1"),
        ("config = 1", "there is no option 'config'"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_key(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidConfig) as error:
        read(tmp_path, text)

    assert message in str(error.value)


def test_a_mistake_ends_the_command_before_anything_starts(tmp_path: Path) -> None:
    for text, message in (("prot = 1", "no option 'prot'"), ("[users.a]\nuidd = 1", "'uidd'")):
        (tmp_path / "weft.toml").write_text(text)

        ran = CliRunner().invoke(cli, ["serve", "--config", str(tmp_path / "weft.toml")])

        assert ran.exit_code == 2
        assert message in ran.stderr
        assert "weft.toml" in ran.stderr


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*none\.toml"):
        ConfigFile.read(tmp_path / "none.toml")


def test_a_unit_of_ones_own_serves_with_the_options_that_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))

    ran = CliRunner().invoke(cli, ["serve", "--install", "--port", "7900"])

    options = tmp_path / "my config/weft/serve.toml"
    unit = tmp_path / "my config/systemd/user/weft.service"
    assert ran.exit_code == 0, ran.output
    assert "systemctl --user enable --now weft.service" in ran.output
    assert ConfigFile.read(options).values["port"] == 7900
    assert f'"serve" "--config" "{options}"' in unit.read_text()
    assert options.stat().st_mode & 0o077 == 0
