"""The variables of the service's environment that jobs get: those on a list, and those named.

A service is often started with secrets in its environment: cloud keys, database passwords, tokens.
Jobs are other people's programs. So nothing is handed on unless a job needs it to find programs,
libraries and devices.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from weft.core.errors import InvalidConfig
from weft.core.model.launch import SECRET

ALLOWED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "HOSTNAME"),
        *("LANG", "LANGUAGE", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "HF_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "CUBLAS_WORKSPACE_CONFIG"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    }
)
FAMILIES = (
    *("LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "PYTHON", "CONDA_"),
    *("OMP_", "MKL_", "KMP_", "OPENBLAS_", "HF_", "JAX_", "XLA_", "TF_", "TRITON_", "CUDNN_"),
    # Where MPI lies and whether root may start it: Lightning asks it wherever mpi4py is installed.
    *("OMPI_", "OPAL_", "PMIX_", "PRTE_", "UCX_", "I_MPI_", "HPCX_"),
)
OURS = "WEFT_"


def filter_environment(extra: Collection[str] = ()) -> dict[str, str]:
    """The part of this process's environment that jobs get.

    `extra` names variables beside the list.
    """
    return select_allowed(os.environ, extra)


def select_allowed(environ: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """Variables on the list that do not look like secrets, and those named in `extra`."""
    return {name: value for name, value in environ.items() if name in extra or _harmless(name)}


def check_names(names: Collection[str]) -> None:
    """Raise InvalidConfig for a name that is no variable's, or is the service's own."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise InvalidConfig(
                f"{name!r} is not the name of a variable",
                hint="--pass-env takes names only; jobs set values with --env NAME=VALUE",
            )
        if name.startswith(OURS):
            raise InvalidConfig(
                f"{name} is the service's own and is not handed to jobs",
                hint="give jobs a variable of another name",
            )


def _harmless(name: str) -> bool:
    listed = name in ALLOWED or name.startswith(FAMILIES)
    return listed and not SECRET.search(name)
