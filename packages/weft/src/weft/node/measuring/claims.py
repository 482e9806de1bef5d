"""Bounds on what a program says of itself, by what its agent sees of its processes from outside.

Programs tell steps, speeds and memory, and from these come predictions, promises and neighbours. A
step takes some CPU time, so there are no more of them than the processes had time for; and a
program has at least the memory that the driver, or without a device the kernel, saw it take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

LEAST_CPU_S = 5e-6  # of one step: Python alone takes as long for the smallest optimizer
UNSEEN_CPU_S = 2.0  # that a process may have had since it was last looked at
LESS = 0.5  # of the memory seen: less than that is not a matter of when it was looked at
PACE = ("steps", "step_s", "samples", "progress", "total_steps", "data_s")  # of the same count
SPEED = ("step_s", "data_s")
WARNING = "warning"


class ClaimBounds:
    """The claims of one attempt; what cannot be true is said once in a notice, and left out."""

    def __init__(self, cpu_time: Callable[[], float], notice: Callable[[str, str], None]) -> None:
        self._cpu_time, self._notice = cpu_time, notice
        self._said: set[str] = set()

    def allows_steps(self, steps: float) -> bool:
        """Return True if its processes had the CPU time for that many steps."""
        cpu_s = 0.0 if steps * LEAST_CPU_S <= UNSEEN_CPU_S else self._cpu_time()
        possible = steps * LEAST_CPU_S <= cpu_s + UNSEEN_CPU_S
        if not possible:
            took = f"in {cpu_s:.1f} s of CPU time"
            self._say("steps", f"its program counts {steps:.3g} steps {took}: not believed")
        return possible

    def believe(self, values: Mapping[str, float], seen_gb: float) -> dict[str, float]:
        """A report without what cannot be true; `seen_gb` is the memory that was seen."""
        believed = dict(values)
        lies = not self.allows_steps(max(values.get("steps", 0.0), 0.0))
        too_fast = values.get("step_s", 1.0) < LEAST_CPU_S  # 0 where it is not known yet
        for name in PACE if lies else SPEED if too_fast else ():
            believed.pop(name, None)
        claimed = values.get("mem_gb")
        if claimed is not None and not claimed >= seen_gb:
            believed["mem_gb"] = seen_gb
            if not claimed >= seen_gb * LESS:
                text = f"its program reports {claimed:.3g} GB of memory and has {seen_gb:.3g} GB"
                self._say("memory", f"{text}: not believed")
        return believed

    def _say(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._notice(WARNING, text)
