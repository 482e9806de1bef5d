"""Truth of the reason that a job was given, by what its kind claims.

`holds` gives a sentence that says what is not so; empty where the reason is true, None where it
claims nothing that a log could show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.core.model.job import Job
from weft.core.plan.reasons import Blocker
from weft.judge.devices import gpus_of
from weft.judge.lives import Life
from weft.judge.replay import PlayedLog
from weft.judge.rules import fits_idle_devices, held_by, kept_from, limits, over_limit
from weft.plural import say_gpus

Facts = Mapping[str, object]
SLACK = 1e-6
STEADY_SLACK_S = 2.0  # real clocks


def false_part(replay: PlayedLog, life: Life, blocker: Blocker, stated: Facts) -> str | None:
    """Say what is false in a reason; empty if nothing is, None if that cannot be seen."""
    check = CLAIMS.get(blocker)
    return None if check is None else check(replay, life, stated)


def _too_few(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    if not fits_idle_devices(replay, life.job, frozenset()):
        return ""
    return "enough devices are free for it"


def _kept(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    if not fits_idle_devices(replay, life.job, kept_from(replay, life.job)):
        return ""
    return "devices that are kept for no one else are free for it"


def _quota(replay: PlayedLog, life: Life, stated: Facts) -> str:
    job = life.job
    known = limits(replay)
    kind = str(stated.get("kind", "")).strip()
    limit = _number(stated, "limit", known.get((job.tenant, kind)))
    if limit is None:
        return "" if over_limit(replay, job) else "its tenant is below what it may hold"
    if (job.tenant, kind) in known and abs(known[job.tenant, kind] - limit) > SLACK:
        return f"its tenant may hold {say_gpus(known[job.tenant, kind])}, not {limit:g}"
    held = held_by(replay, job.tenant, kind)
    asks = replay.least_gpus(job) * job.demand.share
    if held + asks > limit + SLACK:
        return ""
    return f"its tenant holds {held:g} of {say_gpus(limit)}, and it asks for {asks:g}"


def _too_large(replay: PlayedLog, life: Life, stated: Facts) -> str:
    limit = _number(stated, "limit", limits(replay).get((life.job.tenant, "")))
    asks = replay.least_gpus(life.job) * life.job.demand.share
    if limit is None or asks > limit + SLACK:
        return ""
    return f"it asks for {say_gpus(asks)}, which its tenant may hold"


def _guarantee(replay: PlayedLog, life: Life, stated: Facts) -> str:
    own = _number(stated, "quota", None)
    held = held_by(replay, life.job.tenant)
    asks = replay.least_gpus(life.job) * life.job.demand.share
    if own is None or held + asks > own + SLACK:
        return ""
    room = fits_idle_devices(replay, life.job, kept_from(replay, life.job))
    if not room:
        return ""
    return f"its tenant holds {held:g} of its own {say_gpus(own)}, and devices are free"


def _share(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    if any(other.job.tenant != life.job.tenant for other in replay.waiting()):
        return ""
    return "no job of another tenant waits"


def _depends(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    return "" if replay.awaited(life) else "no job that it comes after is left"


def _suspended(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del replay, stated
    return "" if life.suspended else "it is not suspended"


def _parallel(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    job = life.job
    beside = sum(
        (other.job.tenant, other.job.app) == (job.tenant, job.app)
        and (other.current is not None or other.submitted <= life.submitted)
        for other in replay.active.values()
        if other is not life
    )
    return "" if 0 < job.max_parallel <= beside else f"{beside} others of {job.app} are there"


def _failed(replay: PlayedLog, life: Life, stated: Facts) -> str:
    del stated
    return "" if life.pause_ends() > replay.now - STEADY_SLACK_S else "its pause is over"


def _steady(replay: PlayedLog, life: Life, stated: Facts) -> str:
    seconds = _number(stated, "seconds", None)
    if seconds is None:
        return ""
    del life
    for other in replay.active.values():
        if other.current is not None:
            attempt = other.attempts[other.current]
            since = max(attempt.promised, attempt.started or 0.0, attempt.changed)
            if replay.now - since <= seconds + STEADY_SLACK_S:
                return ""
    return f"no job was started or changed in the last {seconds:g} s"


def _behind(replay: PlayedLog, life: Life, stated: Facts) -> str:
    """Another job of a higher priority waits, and this one would be in its way."""
    job = life.job
    name = str(stated.get("job", ""))
    higher = [other for other in replay.waiting() if other is not life and _before(other.job, job)]
    if not higher:
        return "no job of a higher priority waits"
    named = [o for o in higher if name in (o.job.id, o.job.launch.name if o.job.launch else "")]
    if name and not name.startswith("a job of") and not named:
        return f"{name} does not wait, or has no higher priority"
    if job.preemptible and job.tier > 0:
        return "it gives way whenever a job above it can start"
    return ""


def _before(other: Job, job: Job) -> bool:
    return other.priority > job.priority


def _spot(replay: PlayedLog, life: Life, stated: Facts) -> str:
    quota = _number(stated, "quota", None)
    if quota is None:
        return ""
    held = sum(gpus_of(on) for name, on in replay.held() if replay.jobs[name].job.spot)
    asks = replay.least_gpus(life.job) * life.job.demand.share
    if held + asks > quota + SLACK:
        return ""
    return f"spot jobs hold {held:g} of the {say_gpus(quota)} that they may"


def _number(stated: Facts, name: str, otherwise: float | None) -> float | None:
    value = stated.get(name)
    return float(value) if isinstance(value, (int, float)) else otherwise


CLAIMS: Mapping[Blocker, Callable[[PlayedLog, Life, Facts], str]] = {
    **dict.fromkeys((Blocker.GPUS, Blocker.NODES, Blocker.CPUS, Blocker.MEMORY), _too_few),
    Blocker.AWAY: _too_few,
    Blocker.RESERVED: _kept,
    Blocker.QUOTA: _quota,
    Blocker.TOO_LARGE: _too_large,
    Blocker.GUARANTEE: _guarantee,
    Blocker.SHARE: _share,
    Blocker.DEPENDENCY: _depends,
    Blocker.SUSPENDED: _suspended,
    Blocker.PARALLEL: _parallel,
    Blocker.FAILED: _failed,
    Blocker.STEADY: _steady,
    Blocker.CLASS: _behind,
    Blocker.SPOT: _spot,
}
# What is said once, at the moment of a stop or a move: it is no reason to wait on.
PAST = (Blocker.GAVE_WAY, Blocker.RECLAIMED, Blocker.MOVED)
