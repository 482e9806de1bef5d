"""Weft: a deep-learning GPU-cluster scheduler, in simulation and for real."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.version import __version__

if TYPE_CHECKING:
    from weft.app.simulate.api import compare as compare
    from weft.app.simulate.api import simulate as simulate
    from weft_client import AsyncClient as AsyncClient
    from weft_client import Client as Client

__all__ = ["AsyncClient", "Client", "__version__", "compare", "simulate"]


def __getattr__(name: str) -> Any:
    # numpy and the simulator load on first use, so that `import weft` stays instant.
    if name in ("compare", "simulate"):
        from weft.app.simulate import api

        return getattr(api, name)
    if name in ("AsyncClient", "Client"):
        import weft_client

        return getattr(weft_client, name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
