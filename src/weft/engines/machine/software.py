"""How an environment is made and activated: lines for bash, run where the job runs. Pure."""

from __future__ import annotations

from shlex import quote

from weft.core.model.launch import Software, SoftwareKind

REQUIREMENTS = (".txt", ".in")
MISSING = "{ echo %s >&2; exit 1; }"


def preparation(software: Software | None) -> str:
    """What is done once before the job, at every start; empty for nothing."""
    if software is None or software.kind is not SoftwareKind.UV:
        return ""
    name = quote(software.name)
    if not software.name.endswith(REQUIREMENTS):
        return f"{_need('uv')}\nuv sync --quiet --project {name}"
    return (
        f"{_need('uv')}\n{_folder(software)}\n"
        '[ -x "$weft_env/bin/python" ] || uv venv --quiet "$weft_env"\n'
        f'VIRTUAL_ENV="$weft_env" uv pip install --quiet -r {name}'
    )


def activation(software: Software | None) -> str:
    """What every process of the job begins with; empty for nothing."""
    if software is None:
        return ""
    name = quote(software.name)
    match software.kind:
        case SoftwareKind.VENV:
            return _source(f"{name}/bin/activate", f"no virtual environment in {software.name}")
        case SoftwareKind.CONDA:
            return f'{_need("conda")}\neval "$(conda shell.bash hook)"\nconda activate {name}'
        case SoftwareKind.UV if software.name.endswith(REQUIREMENTS):
            return f'{_folder(software)}\n. "$weft_env/bin/activate"'
        case SoftwareKind.UV:
            made = f"uv has made no environment in {software.name}"
            return _source(f"{name}/.venv/bin/activate", made)
        case SoftwareKind.IMAGE:
            return ""  # entered by `weft.engines.machine.containers`


def _source(path: str, otherwise: str) -> str:
    return f"[ -f {path} ] || {MISSING % quote(otherwise)}\n. {path}"


def _need(program: str) -> str:
    return (
        f"command -v {program} >/dev/null || {MISSING % quote(f'{program} is not installed here')}"
    )


def _folder(software: Software) -> str:
    """Where the environment of a file of requirements is: the same file, the same folder."""
    digest = f"$(sha256sum {quote(software.name)} | cut -c1-16)"
    return f'weft_env="${{XDG_CACHE_HOME:-$HOME/.cache}}/weft/uv/{digest}"'
