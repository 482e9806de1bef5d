"""What failing nodes cost: the same jobs with ever less reliable machines.

Run it with `python examples/failures.py`.
"""

from __future__ import annotations

import weft
from weft.sim.faults import Faults

MTBF_H = (0.0, 500.0, 100.0, 20.0)  # mean hours between failures of one node; 0 is never


def main() -> None:
    print(f"{'node MTBF':>10} {'avg JCT':>8} {'restarts/job':>13} {'GPU-hours/job':>14}")
    for hours in MTBF_H:
        result = weft.simulate(
            "philly",
            "srtf",
            "8x8:v100",
            jobs=300,
            load=1.0,
            faults=Faults(node_mtbf_h=hours, repair_h=2.0),
        )
        shown = f"{hours:.0f} h" if hours else "never"
        jct, restarts, gpu_hours = (
            result.mean("srtf", metric)
            for metric in ("avg_jct_h", "restarts_per_job", "gpu_hours_per_job")
        )
        print(f"{shown:>10} {jct:>6.2f} h {restarts:>13.2f} {gpu_hours:>14.1f}")


if __name__ == "__main__":
    main()
