"""The script behind `make up` and `make test`: what it prints of pip's work and of its failures."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOG = """Collecting torch>=2.11 (from weft==0.2.0)
  Downloading torch-2.13.0-cp311-manylinux_2_28_x86_64.whl (190.5 MB)
Requirement already satisfied: Typing_Extensions in ./.venv
Collecting numpy==2.4.6
  Downloading https://host/numpy-2.4.6-cp311.whl (500 kB)
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci/environment.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bar_follows_the_packages_that_are_found_and_then_installed(script: ModuleType) -> None:
    pins = {"torch", "typing-extensions", "numpy", "scipy"}
    installing = LOG + "Installing collected packages: torch, numpy\n"

    assert script.how_far("", pins, 0) == 0.0
    assert script.how_far(LOG, pins, 0) == pytest.approx(0.7 * 3 / 4)
    assert script.how_far(installing, pins, 1) == pytest.approx(0.85)
    assert script.how_far(installing, pins, 9) == 1.0
    assert script.megabytes(LOG) == pytest.approx(191.0)


def test_a_package_that_pip_is_replacing_counts_when_it_is_there_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "lib" / "python3" / "site-packages"
    (packages / "new-1.dist-info").mkdir(parents=True)
    (packages / "replaced-1.dist-info").symlink_to("nowhere")  # listed, and gone when looked at
    monkeypatch.setattr(script, "VENV", tmp_path)

    assert script.count_installed(since=1.0) == 1


def test_without_a_terminal_a_stage_is_one_line(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = script.Bar("stage")
    for part in (0.5, 0.25, 0.75):
        bar.show(part, "some package")
    bar.end("12 MB downloaded")
    failed = script.Bar("stage")
    failed.show(0.5)
    failed.end("failed")

    well, badly = capsys.readouterr().out.splitlines()
    assert well.startswith(f"stage{' ' * 21} [{'#' * 24}] 12 MB downloaded, ")
    assert badly == f"stage{' ' * 21} [{'#' * 12}] failed"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("NewConnectionError: Temporary failure in name resolution", "PIP_FIND_LINKS"),
        ("environment not created because ensurepip is not available", "python3-venv"),
        ("user requested (constraint) typer==0.29.1\nERROR: No", "has typer==0.29.1, which"),
        ("x\nERROR: No matching distribution found for torch==9", "No matching distribution found"),
    ],
)  # fmt: skip
def test_a_failure_is_one_sentence(script: ModuleType, log: str, words: str) -> None:
    assert words in script.explain(log)
    assert "\n" not in script.explain(log)


def test_every_package_that_tests_name_is_pinned(script: ModuleType) -> None:
    project = tomllib.loads((ROOT / "packages/weft/pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(extra: str) -> set[str]:
        first, *others = extras[extra]
        included = first.removeprefix("weft[").removesuffix("]").split(",")
        parts = [others, *(names(name) if name == "test" else extras[name] for name in included)]
        words = [word for part in parts for word in part]
        return {script.re.match(r"[\w-]+", word)[0].lower() for word in words}

    wanted = names("dev") | {word.split(">")[0] for word in project["dependencies"]}
    assert names("test") < wanted
    assert (
        not wanted - script.read_pins("all") - {"weft", "weft-client", "weft-papers", "weft-train"}
    )
    assert {"torch", "fastapi"} <= script.read_pins("up") < script.read_pins("all")


def test_the_fast_tests_need_no_pytorch(script: ModuleType) -> None:
    installed = script.projects("test")

    assert "./packages/weft-papers" in installed
    assert "./packages/weft-train" not in installed
    assert "./packages/weft-train" in script.projects("all")


def test_every_target_can_be_made() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M)
    assert {"up", "test", "test-all"} <= set(targets)

    for target in targets:
        # In an environment that is not there, every rule on the way is needed.
        dry = subprocess.run(
            ["make", "-n", target, "VENV=.no-environment", "PRETTIER=true", "ESLINT=true"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert dry.returncode == 0, dry.stderr
