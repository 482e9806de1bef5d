"""Begin to watch this process for Weft, then run the environment's own sitecustomize."""

import sys

HERE = __file__.rpartition("/")[0]

if sys.version_info >= (3, 7):  # noqa: UP036 - older ones read this file too
    try:
        from _weft_watch import begin  # type: ignore[import-not-found]  # it is beside us

        begin()
    except Exception as error:
        sys.stderr.write("weft: this process is not watched: " + repr(error) + "\n")

# The program sees its path as if we were not there; its children begin with PYTHONPATH again.
sys.path[:] = [path for path in sys.path if path != HERE]
for folder in (HERE, HERE + "/_weft_watch"):
    sys.path_importer_cache.pop(folder, None)
# What is imported by our name from now on is the program's, or is not there.
OURS = sys.modules.pop(__name__)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
