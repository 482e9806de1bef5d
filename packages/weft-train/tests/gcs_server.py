"""A server that speaks Google's storage API, for tests: an emulator in a process on loopback."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from real_ranks import free_port, wait_until

# Without asking by gRPC of which kind a bucket is, which no emulator answers.
PLAIN = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


@contextmanager
def running_gcs(bucket: str) -> Iterator[dict[str, str]]:
    """The variables that a client needs to use it; `bucket` is there and empty."""
    port = free_port()
    words = ["start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    command = [sys.executable, "-m", "gcp_storage_emulator", *words, f"--default-bucket={bucket}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    at = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(f"{at}/storage/v1/b/{bucket}"), "a bucket")
        yield {"STORAGE_EMULATOR_HOST": at, "FSSPEC_GS_TOKEN": "anon", **PLAIN}
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
