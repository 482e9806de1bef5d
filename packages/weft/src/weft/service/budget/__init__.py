"""One budget per request, spent before anything is parsed.

What a request weighs is counted as it arrives: the bytes of its header (`connection`), then the
bytes, the nesting and the values of its body (`intake`). Every request passes here, so no route
can forget it. What a body would grow into is counted before it is built (`sizes`), what it makes
the loop do is paid from its purse (`purse`) and measured turn by turn (`turns`), and work whose
cost cannot be counted is done by a process with limits of its own (`aside`).
"""
