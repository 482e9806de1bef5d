"""Make the environment in `.venv`, a line with a bar for each stage; pip's own words go into a log.

python .ci/environment.py up | report | test | all | pins
.venv/bin/python .ci/environment.py core    # inside it, an environment without any extra
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

VENV = Path(os.environ.get("VENV", ".venv"))
LOG = VENV / "set-up.log"
PINS = Path("tests/constraints.txt")
EXTRAS = {
    "up": "papers,serve,train",
    "report": "papers,report,serve,train",
    "test": "test",
    "all": "dev",
}
WITHOUT_TORCH = ("test",)
# For Linux PyPI has PyTorch with 3 GB of libraries for GPUs; PyTorch's own index has it without.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
COMPILE = "apt-get install gcc python3-dev, then .venv/bin/python packages/weft/build_native.py"
HEAD = """# The versions of the last tests, as `make pins` wrote them; users may have others.
# What `make up` installs:
"""
NEXT = "# And what `make test` and `make test-all` install besides:"
WIDTH = 24
NAMED = re.compile(r"^\s*(?:Collecting|Requirement already satisfied:) ([\w.-]+)", re.MULTILINE)
GOT = re.compile(
    r"^\s*(?:Downloading|Using cached) (?:\S*/)?([^-\s/]+)-\S+ \(([\d.]+) (kB|MB|GB)\)",
    re.MULTILINE,
)
INSTALLING = re.compile(r"^Installing collected packages: (.*)", re.MULTILINE)
MEGABYTES = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}
# What a log shows, and the sentence that says what is missing.
REASONS = {
    r"No space left on device": "the disk is full",
    r"Failed to establish a new connection|NameResolutionError|Temporary failure in name|"
    r"Network is unreachable|ProxyError|Connection refused|timed out": (
        "no package index can be reached, and pip needs one even if its cache is full; without a "
        "network, PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER installs from a folder of wheels"
    ),
    r"requested \(constraint\) (\S+)": (
        r"no package index that pip can reach has \1, which tests/constraints.txt asks for; "
        "without a network, PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER installs from a folder of wheels"
    ),
    r"Permission denied|Read-only file system": "this folder cannot be written",
    r"ensurepip is not available|No module named '?ensurepip": (
        "this Python cannot make environments: apt-get install python3-venv"
    ),
}


class Bar:
    """One line on the terminal that fills up; without a terminal it only ever grows."""

    def __init__(self, name: str) -> None:
        self.live, self.shown, self.began = sys.stdout.isatty(), 0, time.monotonic()
        self.head = f"{name:<26} ["
        self.write("" if self.live else self.head)
        self.show(0.0)

    def write(self, text: str) -> None:
        """Print without ending the line."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def show(self, part: float, detail: str = "") -> None:
        """Fill the bar up to `part` of it, never back."""
        filled = max(self.shown, min(WIDTH, int(part * WIDTH)))
        if self.live:
            line = f"{self.head}{'#' * filled}{'.' * (WIDTH - filled)}] {detail}"
            room = shutil.get_terminal_size().columns - 1
            self.write(f"\r{line[:room]:<{room}}")
        else:
            self.write("#" * (filled - self.shown))
        self.shown = filled

    def end(self, detail: str) -> None:
        """Complete the line, the bar too unless the stage failed."""
        if detail != "failed":
            detail = f"{detail}{', ' if detail else ''}{time.monotonic() - self.began:.0f} s"
        self.show(0.0 if detail == "failed" else 1.0, detail)
        self.write("\n" if self.live else f"] {detail}\n")


def read_pins(level: str) -> set[str]:
    """Names of the packages that `level` installs: the file's first part for `up`, or all."""
    first, rest = PINS.read_text().split(NEXT)
    text = first if level in ("up", "report") else first + rest
    return set(re.findall(r"^([\w-]+)==", text, re.M))


def how_far(log: str, pins: set[str], installed: int) -> float:
    """The part of pip's work that is done: most of it is finding and downloading."""
    names = {name.lower().replace("_", "-").replace(".", "-") for name in NAMED.findall(log)}
    part = 0.7 * len(names & pins) / max(1, len(pins))
    if installing := INSTALLING.search(log):
        return 0.7 + 0.3 * min(1.0, installed / len(installing[1].split(",")))
    return part


def megabytes(log: str) -> float:
    """How much pip says that it downloaded."""
    return sum(float(size) * MEGABYTES[unit] for _, size, unit in GOT.findall(log) if size)


def count_installed(since: float) -> int:
    """Packages that were put into the environment after that time."""
    folders = VENV.glob("lib/python*/site-packages/*.dist-info")
    return sum(changed_at(folder) > since for folder in folders)


def changed_at(file: Path) -> float:
    """When it was changed; 0.0 if pip has just taken it away, to put another there."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def explain(log: str) -> str:
    """Return what is missing, in one sentence."""
    for pattern, sentence in REASONS.items():
        if found := re.search(pattern, log):
            return found.expand(sentence)
    errors = [line for line in log.splitlines() if line.lower().startswith("error: ")]
    return errors[-1][7:] if errors else "pip failed"


def pip(stage: str, level: str, *arguments: str, optional: bool = False) -> None:
    """Install into the environment; exit with a sentence and the log's path if that fails."""
    bar, since, pins = Bar(stage), time.time(), read_pins(level)
    command = [str(VENV / "bin/python"), "-m", "pip", "install", "--no-compile", "--no-input"]
    command += ["--progress-bar=off", "--disable-pip-version-check", *arguments]
    env = {**os.environ, "PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    begin = LOG.stat().st_size if LOG.exists() else 0
    with LOG.open("ab") as out:
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
    while True:
        ended = running.poll() is not None
        log = LOG.read_bytes()[begin:].decode(errors="replace")
        files = GOT.findall(log)
        now = "" if INSTALLING.search(log) or not files else " ".join(files[-1])
        bar.show(how_far(log, pins, count_installed(since)), now)
        if ended:
            break
        time.sleep(0.3)
    if running.returncode == 0:
        bar.end(f"{megabytes(log):.0f} MB downloaded")
    elif optional:
        bar.end("not to be had, so from the index of the other packages")
    else:
        bar.end("failed")
        sys.exit(f"{explain(log)}\nthe log: {LOG}")


def make_venv() -> None:
    """An empty environment, unless there is one whose Python runs."""
    python = VENV / "bin/python"
    if python.exists() and not subprocess.run([python, "-c", ""], check=False).returncode:
        return
    bar = Bar(f"an environment in {VENV}")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True, check=False
    )
    if made.returncode:
        bar.end("failed")
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(explain(made.stdout + made.stderr))
    bar.end("")


def wants_cpu_build() -> bool:
    """Whether PyTorch without GPUs will do and the user has not configured where pip looks."""
    if sys.platform != "linux" or shutil.which("nvidia-smi"):
        return False
    ask = [str(VENV / "bin/python"), "-m", "pip", "config", "list"]
    chosen = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    has_torch = any(VENV.glob("lib/python*/site-packages/torch-*.dist-info"))
    return not has_torch and not re.search(r"(index-url|find-links|no-index)=", chosen)


def projects(level: str) -> list[str]:
    """Our distributions, each editable; the first has the extras."""
    first = Path("packages/weft")
    left_out = {first, *([Path("packages/weft-train")] if level in WITHOUT_TORCH else [])}
    found = {path.parent for path in Path("packages").glob("*/pyproject.toml")}
    paths = [f"./{first}[{EXTRAS[level]}]", *(f"./{path}" for path in sorted(found - left_out))]
    return [word for path in paths for word in ("--editable", path)]


def install(level: str) -> None:
    """Everything of one level."""
    make_venv()
    pinned = ("--constraint", str(PINS))
    if level not in WITHOUT_TORCH and wants_cpu_build():
        fast = ("--timeout=10", "--retries=0", "--index-url", CPU_INDEX)
        pip("PyTorch without GPUs", "up", *fast, *pinned, "torch", optional=True)
    names = {"up": "Weft, service and PyTorch", "report": "reports", "test": "Weft and its tests"}
    names["all"] = "frameworks and engines"
    pip(names[level], level, *pinned, *projects(level))
    ask = [str(VENV / "bin/python"), "-c", "from weft.native import why_not; print(why_not)"]
    why_not = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    if "without a C compiler" in why_not:
        print(f"{why_not.strip()}, so it is slower: {COMPILE}")


def write_pins() -> None:
    """Take the newest versions that go together, as an environment without pins gets them."""
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        parts: list[list[str]] = [[]]
        for level in ("up", "all"):
            command = [python, "-m", "pip", "install", "--no-compile", *projects(level)]
            subprocess.run(command, check=True)
            freeze = [python, "-m", "pip", "freeze", "--exclude-editable"]
            lines = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
            pins = {re.sub(r"\+.*", "", line).lower().replace("_", "-") for line in lines.split()}
            parts.append(sorted(pins.difference(*parts)))
    PINS.write_text(HEAD + "\n".join([*parts[1], NEXT, *parts[2]]) + "\n")


def make_core() -> None:
    """An environment of links in `core` of it: what Weft needs without extras, and type stubs."""
    core = VENV / "core"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", core], check=True)
    (site,) = core.glob("lib/python*/site-packages")
    names, known = ["weft", "types-PyYAML"], {"weft"}
    for name in names:  # it grows
        installed = metadata.distribution(name)
        wanted = [word for word in installed.requires or () if "extra ==" not in word]
        for path in (installed.files or ()) if name != "weft" else ():
            top = path.parts[0]
            if top != ".." and not top.endswith((".dist-info", "__pycache__", ".pth")):
                link = site / top
                if not link.is_symlink():
                    link.symlink_to(Path(str(installed.locate_file(top))).resolve())
        found = [re.match(r"[\w.-]+", word)[0].lower() for word in wanted]
        fresh = [other for other in dict.fromkeys(found) if other not in known]
        known.update(fresh)
        names += [other for other in fresh if is_installed(other)]


def is_installed(name: str) -> bool:
    """Whether the distribution is there; another platform's requirement is not."""
    try:
        return bool(metadata.distribution(name))
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    if sys.argv[1] == "pins":
        write_pins()
    elif sys.argv[1] == "core":
        make_core()
    else:
        install(sys.argv[1])
