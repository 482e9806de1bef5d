"""What turns a published file into the one that Weft reads; a digest in files.tsv checks it."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime

PHILLY_ORIGIN = datetime(2017, 9, 4)  # noqa: DTZ001 - the trace has local times without a zone
SCHEMA = (
    "id,user,tenant,submit_s,num_gpus,gpu_type,duration_s,"
    "state,attempts,cpus,mem_gb,num_instances,extra"
)


def copy(published: bytes, _: str) -> bytes:
    """Return the published bytes."""
    return published


def text(published: bytes, _: str) -> bytes:
    """Return the text with Unix line ends."""
    return published.replace(b"\r\n", b"\n")


def member(published: bytes, name: str) -> bytes:
    """Return the file `name` of a tar archive, with a line end after its last line."""
    content = _unpack(published, name)
    return content if content.endswith(b"\n") else content + b"\n"


def itp_clusters(published: bytes, _: str) -> bytes:
    """Join the ten tables of Microsoft's ITP clusters, with short job ids."""
    lines = ["cluster,job_id,submission_time,duration,num_gpu"]
    for number in range(1, 11):
        for line in _unpack(published, f"cluster{number:02}.csv").decode().splitlines()[1:]:
            job, rest = line.split(",", 1)
            lines.append(f"{number},{job[:13]},{rest}")
    return _join(lines)


def philly_subset(published: bytes, _: str) -> bytes:
    """Sort the Philly jobs of Sia's repository by time of submission."""
    jobs = (
        f"{row['timestamp']},{row['cluster']},{row['num_gpus']},{row['duration']},{row['gpu_time']}"
        for row in _philly(published)
    )
    return _join(["timestamp,vc,num_gpus,duration,gpu_time", *jobs])


def philly_normalized(published: bytes, _: str) -> bytes:
    """Write the Philly jobs of Sia's repository in the columns that all traces share."""
    lines = [SCHEMA]
    for number, row in enumerate(_philly(published)):
        submitted = datetime.fromisoformat(row["timestamp"]) - PHILLY_ORIGIN
        job = f"philly-{number:06},,{row['cluster']},{submitted.total_seconds():.0f}"
        lines.append(f"{job},{row['num_gpus']},,{float(row['duration']):.0f},,,,,,")
    return _join(lines)


PARTS = (copy, text, member, itp_clusters, philly_subset, philly_normalized)
TRANSFORMS: dict[str, Callable[[bytes, str], bytes]] = {part.__name__: part for part in PARTS}


def _philly(published: bytes) -> Iterator[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(published.decode()))
    yield from sorted(rows, key=lambda row: row["timestamp"])


def _unpack(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(name)
        assert file is not None, f"{name} is no file"
        return file.read()


def _join(lines: list[str]) -> bytes:
    return "\n".join([*lines, ""]).encode()
