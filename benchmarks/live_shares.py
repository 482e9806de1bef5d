"""Shares that real jobs received: `python -m benchmarks.live_shares [SECONDS] [POLICY]`.

A service with the local engine and four slots; two tenants, weights 3 to 1, four jobs each that
keep running, under Gandiva_fair or another policy, such as `astraea:lease=10,check=1`. After five
minutes each tenant's part of the GPU time used must be within a tenth of its part of the
weights, if the policy reads weights. Both have less than their entitlement: changes of hands take
time.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from weft.app.serve.live import Live, Settings
from weft.app.serve.rules import Quotas
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.core.spec.registry import build
from weft.runtime.records.usage import DayUsage

ENGINE = "local:slots=4,warm=false,cpu=true,name=here"
WEIGHTS = {"ada": 3.0, "bob": 1.0}
QUANTUM_S = 10.0
JOBS = 4
CLOSE = 0.1


def main(words: list[str]) -> int:
    """Print what was received of what was due; fail if that is a tenth off for anybody."""
    seconds = float(words[0]) if words else 300.0
    quantum = min(QUANTUM_S, seconds / 12.0)
    policy = words[1] if len(words) > 1 else f"gandiva_fair:quantum={quantum:g}"
    with tempfile.TemporaryDirectory() as folder:
        used = asyncio.run(live_shares(Path(folder), seconds, policy))
    off = []
    whole, weights = sum(account.gpu_s for account in used.values()), sum(WEIGHTS.values())
    for tenant, account in sorted(used.items()):
        share, due = account.gpu_s / whole, WEIGHTS[tenant] / weights
        print(
            f"{tenant} weight {WEIGHTS[tenant]:g}: {account.gpu_s:7.1f} GPU s, "
            f"{account.entitled_s:7.1f} entitled; share {share:.3f}, due {due:.3f}; "
            f"{account.restarts} restarts"
        )
        off.append(abs(share / due - 1.0))
    if not build("policy", policy).about.weighs:
        print(f"{policy} does not read weights: what was due is for comparison")
        return 0
    return 0 if max(off) <= CLOSE else 1


async def live_shares(folder: Path, seconds: float, policy: str) -> dict[str, DayUsage]:
    """What each tenant used and was entitled to after some time of taking turns."""
    live = Live(Settings(engine=ENGINE, state=folder, policy=policy, port=0))
    await live.open()
    try:
        await live.set_quotas(Quotas(weights=WEIGHTS))
        launch = Launch(("sleep", "10000"), grace_s=2.0)
        for i in range(JOBS):
            for tenant in WEIGHTS:
                name = JobId(f"{tenant}-{i}")
                await live.driver.submit(Job(name, tenant=tenant, launch=launch))
        await asyncio.sleep(seconds)
        used = live.driver.ledger.used(live.driver.now)
        for tenant in WEIGHTS:
            for i in range(JOBS):
                await live.driver.cancel(JobId(f"{tenant}-{i}"))
    finally:
        await live.close()
    return {tenant: used[tenant] for tenant in WEIGHTS}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
