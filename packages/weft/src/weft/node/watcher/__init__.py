"""A folder for the front of a job's PYTHONPATH: its Python processes count their steps.

`sitecustomize` is what Python runs at start-up; it begins to watch and then runs the one that the
job's environment has of its own. Everything in this folder runs inside other people's programs, in
whatever Python they use: no thread, no descriptor kept open, nothing imported that a module of the
program may have the name of. An error costs one line in the job's output, never the program.
"""
