"""Whose jobs they are: the user they run as, and what their controller charges them to."""

from __future__ import annotations

from dataclasses import replace

from weft.core.events.event import Finished
from weft.testing.engine_subject import Check, Script, Subject, by_script, run_script, session

WHO = "id -u"


@by_script
async def a_job_runs_as_its_tenants_user(subject: Subject, script: Script) -> None:
    """Each rank is that user; so is the job where the controller knows whose it is."""
    for tenant in subject.tenants:
        job = replace(script(f"of-{tenant.name}", 2, WHO), tenant=tenant.name)
        async with session(subject) as it:
            it.engine.check(job)
            end, printed = await run_script(it, job, await it.on(2))
        assert end == Finished(job.id, 1), end
        assert printed == dict.fromkeys(range(2), f"{tenant.uid}\n"), printed


@by_script
async def a_job_is_charged_to_its_tenant(subject: Subject, script: Script) -> None:
    """The controller has the user and the account of every job."""
    if subject.charged is None:
        return
    for tenant in subject.tenants:
        job = replace(script(f"charged-{tenant.name}", 1, "true"), tenant=tenant.name)
        async with session(subject) as it:
            end, _ = await run_script(it, job, await it.on(1))
        assert end == Finished(job.id, 1), end
        assert subject.charged(job.id) == (tenant.uid, tenant.account)


TENANTS: tuple[Check, ...] = (a_job_runs_as_its_tenants_user, a_job_is_charged_to_its_tenant)
