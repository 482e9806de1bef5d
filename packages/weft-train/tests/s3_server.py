"""A server that speaks S3, for tests: moto's, in a process of its own on loopback."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from real_ranks import free_port, wait_until

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@contextmanager
def running_s3(bucket: str) -> Iterator[dict[str, str]]:
    """The variables that a client needs to use it; `bucket` is there and empty."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    at = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _made(f"{at}/{bucket}"), "a bucket")
        yield {**KEYS, "AWS_ENDPOINT_URL": at, "AWS_DEFAULT_REGION": "us-east-1"}
    finally:
        server.kill()
        server.wait()


def _made(url: str) -> bool:
    request = urllib.request.Request(url, method="PUT")
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
