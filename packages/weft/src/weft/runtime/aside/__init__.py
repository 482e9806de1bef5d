"""Work beside the service, in a process with limits of CPU time and memory.

What people ask for may cost anything: a simulation, a text to parse. A process that takes too much
is ended, and the service goes on.
"""
