"""The program of a function's job: `python -m weft_client.run_call FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from weft_client.call import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
