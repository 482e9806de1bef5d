"""Work beside the service, for those who serve."""

from __future__ import annotations

from weft.runtime.aside.messages import Report, TookTooMuch
from weft.runtime.aside.process import AsideProcess

__all__ = ["AsideProcess", "Report", "TookTooMuch"]
