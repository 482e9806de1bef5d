"""Values of secret variables, left out of whatever is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.model.job import Job

MASK = "***"


def secrets_of(job: Job) -> tuple[str, ...]:
    """The texts of a job that are never shown."""
    return job.launch.secret_values() if job.launch else ()


def mask(text: str, secrets: Sequence[str]) -> str:
    """The text without secrets."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def mask_all(value: Any, secrets: Sequence[str]) -> Any:
    """A JSON value with secrets masked in every text."""
    if not secrets:
        return value
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, list):
        return [mask_all(item, secrets) for item in value]
    if isinstance(value, dict):
        return {name: mask_all(item, secrets) for name, item in value.items()}
    return value


def mask_bytes(data: bytes, secrets: Sequence[str]) -> bytes:
    """Bytes of the same length, with stars where secrets were."""
    for secret in secrets:
        data = data.replace(secret.encode(), b"*" * len(secret.encode()))
    return data


def longest(secrets: Sequence[str]) -> int:
    """Bytes of the longest; 0 without any."""
    return max((len(secret.encode()) for secret in secrets), default=0)
