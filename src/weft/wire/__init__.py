"""What a training process, its agent and its node say to each other. Standard library only.

A rank is started with the variables of `weft.wire.environment`. It connects to the Unix stream
socket of its job's agent and both sides write one JSON object a line, defined in
`weft.wire.messages`. Checkpoints are fenced by attempt with `weft.wire.fence`. The node's stage
tokens have a socket of their own and the messages of `weft.wire.tokens`.
"""

from __future__ import annotations
