"""Begin to watch this process for Weft, then run the environment's own sitecustomize."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _begin() -> None:
    try:
        from _weft_watch import begin  # type: ignore[import-not-found]  # it is beside us

        begin()
    except Exception as error:
        sys.stderr.write(f"weft: this process is not watched: {error!r}\n")


def _run_own() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_begin()
# The program sees its path as if we were not there; its children begin with PYTHONPATH again.
sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != HERE]
_run_own()
