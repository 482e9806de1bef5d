"""Programs that are started in every way that Python knows."""

from __future__ import annotations

from tests.watcher.programs.program import HURRY, Program, plain

ALONE = "import os, sys\nprint(sys.path, sys.flags, len(os.listdir('/proc/self/fd')))\n"
PATHS = plain("""
import sys, os
steps(); print(sys.path, sys.flags)
print(sorted(path for path in sys.path_importer_cache if not path.startswith(sys.base_prefix)))
print(sorted(name for name in os.environ if name not in ("WEFT_WATCH", "PYTHONPATH")))
""")


def started(*options: str, **more: object) -> Program:
    """A stepping program with options of Python."""
    return plain("import sys; steps(); print(sys.flags, sys.warnoptions)", options=options, **more)


PROGRAMS = {
    "is-isolated": Program(ALONE, options=("-I",)),
    "has-no-site": Program("print('works')", options=("-S",)),
    "has-no-variables": Program(ALONE, options=("-E",)),
    "has-no-site-and-is-isolated": Program(ALONE, options=("-I", "-S", "-E")),
    "has-no-user-site": started("-s"),
    "writes-no-bytecode": started("-B"),
    "is-optimised": started("-OO"),
    "makes-errors-of-warnings": started("-W", "error", "-bb"),
    "is-in-development": started("-X", "dev", "-W", "error"),
    "is-unbuffered": started("-u"),
    "is-safe": started("-P", env={"PYTHONPATH": "."}),
    "traces-its-memory": started("-X", "tracemalloc=5"),
    "is-in-ascii": started(env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}),
    "shows-its-path": PATHS,
    "shows-its-path-twice": Program(PATHS.code, env={"PYTHONPATH": ".:/nowhere:."}),
    "has-no-sitecustomize": Program(
        "import sys; print('sitecustomize' in sys.modules)\nimport sitecustomize\n",
        env={"PYTHONPATH": ""},
        options=("-P",),
    ),
    "has-a-sitecustomize": plain(
        "import sitecustomize; print(sitecustomize.OWN, sitecustomize.__spec__.name); steps()",
        files={"sitecustomize.py": HURRY + "OWN = __name__\nprint('begun', __file__)\n"},
    ),
    "has-a-sitecustomize-that-fails": plain(
        "import sys; print('sitecustomize' in sys.modules); steps()",
        files={"sitecustomize.py": "raise ValueError('mine')\n"},
    ),
    "has-a-sitecustomize-that-misses-a-module": plain(
        "steps()", files={"sitecustomize.py": "import nowhere_to_be_found\n"}
    ),
    "has-a-sitecustomize-that-exits": plain(
        "steps()", files={"sitecustomize.py": "import os; os._exit(5)\n"}
    ),
    "has-a-sitecustomize-package": plain(
        "import sitecustomize; print(sitecustomize.__path__, sitecustomize.more.X); steps()",
        files={
            "sitecustomize.py": "",
            "sitecustomize/__init__.py": "from . import more\n",
            "sitecustomize/more.py": "X = 1\n",
        },
    ),
    "has-a-usercustomize": plain("steps()", files={"usercustomize.py": "print('user')\n"}),
    "has-modules-named-as-pythons": plain(
        "import json, socket, typing, select, functools\n"
        "print(json.MINE, socket.MINE, typing.MINE, select.MINE, functools.MINE); steps()",
        files={
            f"{name}.py": "MINE = 1\n"
            for name in ("json", "socket", "typing", "select", "functools")
        },
        env={"PYTHONPATH": ""},
    ),
    "is-interactive": Program(
        "",
        options=("-i",),
        env={"PYTHONSTARTUP": "begin.py"},
        files={"begin.py": "print('begins'); from tools import *\n"},
        stdin="steps()\ndescriptors()\n1 / 0\n__name__\nexit(3)\n",
    ),
    "is-a-module": Program(
        "",
        command=("-m", "package.work"),
        files={
            "package/__init__.py": "",
            "package/work.py": "from tools import *; steps(); descriptors()\n",
        },
    ),
    "is-a-folder": Program(
        "",
        command=("folder",),
        files={
            "folder/__main__.py": "import sys; print(sys.path[0]); from tools import *; steps()\n"
        },
    ),
    "is-an-argument": Program(
        "", command=("-c", "import sys; print(sys.argv, sys.path[0] == ''); 1 / 0", "-x", "y")
    ),
    "is-read-from-its-input": Program(
        "", command=("-",), stdin="from tools import *\nsteps()\n1/0\n"
    ),
    "has-no-home": plain("steps()", env={"HOME": "/nowhere"}),
    "has-a-home-that-is-read-only": plain("steps()", env={"HOME": "/proc"}),
    "has-an-empty-home": plain("steps()", env={"HOME": ""}),
    "has-no-place-for-temporary-files": plain("steps()", env={"TMPDIR": "/nowhere"}),
    "hides-what-it-makes": plain("import os; os.umask(0o777); steps()"),
    "keeps-bytecode-elsewhere": plain("steps()", env={"PYTHONPYCACHEPREFIX": "/nowhere"}),
    "is-of-a-rank-that-is-no-number": plain("steps()", env={"RANK": "first"}),
    "has-an-attempt-that-is-no-number": plain("steps()", env={"WEFT_ATTEMPT": "first"}),
    "has-an-agent-of-a-strange-name": plain("steps()", env={"WEFT_AGENT": "x" * 300}),
    "runs-interpreters-within": plain("""
import _xxsubinterpreters as interpreters
steps()
for _ in range(3):
    inner = interpreters.create()
    interpreters.run_string(inner, "from tools import *; steps(); descriptors()")
    interpreters.destroy(inner)
steps()
"""),
    "forgets-its-variables": plain("import os; steps(); os.environ.clear(); steps()"),
    "forgets-its-modules": plain("""
import sys
steps()
for name in list(sys.modules):
    if "watch" in name or "tqdm" in name: del sys.modules[name]
steps(); import gc; gc.collect(); steps()
"""),
    "forgets-its-finders": plain("import sys; import tqdm; sys.meta_path.clear(); steps()"),
    "asks-whether-a-module-is-there": plain("""
import importlib.util
print([importlib.util.find_spec("tqdm.std").name for _ in range(3)])
steps(); import importlib, tqdm.std; importlib.reload(tqdm.std); steps()
"""),
    "imports-in-threads": plain("""
import threading
threads = [threading.Thread(target=steps) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""),
    "misses-what-it-imports": plain(
        "import tqdm", files={"tqdm/std.py": "import nowhere_to_be_found\n"}
    ),
    "fails-as-it-imports": plain("import tqdm", files={"tqdm/std.py": "1 / 0\n"}),
    "exits-as-it-imports": plain("import tqdm", files={"tqdm/std.py": "raise SystemExit(4)\n"}),
    "refuses-sockets": plain("""
import sys
def refuse(event, arguments):
    if event.startswith("socket"): raise RuntimeError("no network here")
sys.addaudithook(refuse); steps(); steps()
"""),
}
