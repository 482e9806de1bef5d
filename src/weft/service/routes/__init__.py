"""One module a subject, with a `router`. A new one is a file here and a line below."""

from __future__ import annotations

from fastapi import APIRouter

from weft.service.routes import (
    accounting,
    admin,
    audit,
    cluster,
    events,
    health,
    jobs,
    line,
    logs,
    metrics,
    pages,
    reservations,
    sessions,
    sign_in,
    watch,
    why,
)

# Below the API's prefix, in the order in which they are documented.
API: tuple[APIRouter, ...] = (
    jobs.router,
    why.router,
    line.router,
    logs.router,
    sessions.router,
    cluster.router,
    events.router,
    watch.router,
    accounting.router,
    admin.router,
    reservations.router,
    audit.router,
    sign_in.router,
)
# Where machines and people look for them.
ROOT: tuple[APIRouter, ...] = (health.router, metrics.router, pages.router)
