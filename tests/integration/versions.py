"""Services of this and of earlier versions on one state folder, each in a process of its own."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
import tarfile
import tomllib
from contextlib import closing
from pathlib import Path
from random import Random
from typing import BinaryIO

import httpx

from tests.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
RELEASES = {
    "0.2.0": "efe2e014b4f4c54143e60c52b484c4f467ae2a0c"
}  # the last commit that writes the log of each
API = "/api/v1"
EVENTS = 200
SERVE = """
import sys
from pathlib import Path
from weft.app.serve.live import Settings
from weft.service.main import serve
settings = Settings(engine="simulated:cluster=2x4:a100,speed=60", state=Path(sys.argv[1]), port=0)
serve(settings, ready=lambda address: print(address, flush=True))
"""


def extract(packed: BinaryIO, folder: Path) -> None:
    """What a tar file holds, also where Python is older than 3.11.4 and knows no filter."""
    with tarfile.open(fileobj=packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)


def unpack(version: str, folder: Path) -> Path | None:
    """The sources of a release as if they were installed; None where the history lacks it."""
    command = ["git", "-C", str(ROOT), "archive", RELEASES[version]]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        return None
    extract(io.BytesIO(packed.stdout), folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    installed = folder / "src" / f"weft-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: weft\nVersion: {version}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in named.items())
        for group, named in project["entry-points"].items()
    )
    (installed / "entry_points.txt").write_text("\n".join(groups))
    return folder / "src"


def lines_of(state: Path) -> list[str]:
    """The lines of the log in a state folder, which a service may be writing."""
    with closing(sqlite3.connect(state / "events.db")) as db:
        return [line for (line,) in db.execute("SELECT json FROM events ORDER BY seq")]


class Service:
    """A service of the version in `sources`, or of this one."""

    def __init__(self, state: Path, sources: Path | None = None) -> None:
        more = {} if sources is None else {"PYTHONPATH": str(sources)}
        self._state = state
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(state)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **more},
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def refusal(self) -> str:
        """What it says, having not started."""
        _, output = self._process.communicate(timeout=LIMIT_S)
        assert self._process.returncode
        return output

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        _, output = self._process.communicate(timeout=LIMIT_S)
        assert kill or self._process.returncode == 0, output

    def events(self) -> list[str]:
        return lines_of(self._state)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=LIMIT_S, trust_env=False)

    def states(self) -> dict[str, str]:
        with self.client() as client:
            jobs = client.get(f"{API}/jobs", params={"limit": 1000}).raise_for_status().json()
        return {job["id"]: job["state"] for job in jobs["jobs"]}


def live_through(service: Service, random: Random, prefix: str, most: int = EVENTS) -> set[str]:
    """Submit, cancel, suspend and reorder jobs until there are many events; those accepted."""
    accepted: list[str] = []
    with service.client() as client:
        while len(service.events()) < most:
            act = random.choice(["submit"] * 4 + ["cancel", "suspend", "priority"])
            if act == "submit" or not accepted:
                name = f"{prefix}-{len(accepted)}"
                tenant, gpus = random.choice("ab"), random.choice([1, 1, 2, 4])
                body: dict[str, object] = {"id": name, "gpus": gpus, "tenant": tenant}
                if accepted and random.random() < 0.3:
                    body["after"] = {"any": [random.choice(accepted)]}
                body["hints"] = {"duration_s": random.choice([5.0, 30.0, 600.0, 90_000.0])}
                client.post(f"{API}/jobs", json=body).raise_for_status()
                accepted.append(name)
            elif act == "cancel":
                client.delete(f"{API}/jobs/{random.choice(accepted)}")
            elif act == "suspend":
                name = random.choice(accepted)
                client.post(f"{API}/jobs/{name}/{random.choice(['suspend', 'resume'])}")
            else:
                path = f"{API}/jobs/{random.choice(accepted)}"
                client.patch(path, json={"priority": random.randrange(5)})
    return {*accepted}
