"""Numbers with the right plural."""

from __future__ import annotations


def say_gpus(count: float) -> str:
    """`1 GPU`, `2 GPUs`, `1.5 GPUs`, `10,000 GPUs`."""
    number = f"{int(count):,}" if float(count).is_integer() else f"{count:g}"
    return f"{number} GPU{'s' * (count != 1)}"
