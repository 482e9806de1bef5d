"""Code that a rank of a job and its node share: messages, variables, fences, step times.

Standard library only, and imports of this folder alone: `weft_train` ships the very same files. A
rank is started with the variables of `environment`. It connects to the Unix stream socket of its
job's agent and both sides write one JSON object a line, defined in `messages`. Checkpoints are
fenced by attempt with `fence`. The node's stage tokens have a socket of their own and the messages
of `tokens`.
"""

from __future__ import annotations
