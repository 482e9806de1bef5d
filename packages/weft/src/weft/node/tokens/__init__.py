"""Stage tokens: jobs that share a node take turns at its disk, its cores, its GPUs and its links.

One coordinator a node, `python -m weft.node.tokens SOCKET --discipline NAME`. What it decides is
a pure state machine (`coordinator`, `book`) with the order of turns plugged in (`disciplines`);
`server` is the thin rest. `weft.base.tokens` defines the conversation.
"""

from __future__ import annotations
