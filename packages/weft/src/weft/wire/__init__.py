"""Messages between an engine, an agent and its node, and how they find processes.

Standard library only. What a rank speaks with its agent is in `weft.base`.
"""

from __future__ import annotations
