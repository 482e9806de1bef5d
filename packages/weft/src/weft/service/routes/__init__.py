"""One module a subject, with a `router`. A new one is a file here and a line below."""

from __future__ import annotations

from fastapi import APIRouter

from weft.service.routes.cluster import (
    cluster,
    events,
    health,
    history,
    metrics,
    needs,
    timeline,
    what_if,
)
from weft.service.routes.jobs import (
    artifacts,
    batches,
    curves,
    job_files,
    jobs,
    logs,
    sessions,
    slurm_client,
    why,
)
from weft.service.routes.people import (
    accounting,
    admin,
    audit,
    pages,
    reservations,
    sign_in,
    verdict,
)

# Below the API's prefix, in the order in which they are documented.
API: tuple[APIRouter, ...] = (
    jobs.router,
    batches.router,
    job_files.router,
    why.router,
    what_if.router,
    logs.router,
    curves.router,
    artifacts.router,
    sessions.router,
    slurm_client.router,
    cluster.router,
    needs.router,
    events.router,
    timeline.router,
    history.router,
    accounting.router,
    admin.router,
    reservations.router,
    audit.router,
    verdict.router,
    sign_in.router,
)
# Where machines and people look for them.
ROOT: tuple[APIRouter, ...] = (health.router, metrics.router, pages.router)
