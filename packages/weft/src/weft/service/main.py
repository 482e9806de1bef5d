"""The application, and a process that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.app.serve.live import Live, Settings
from weft.core.errors import InvalidConfig
from weft.service.access.audit import Audit, AuditLog
from weft.service.access.page_sessions import PageSessions, find_caller
from weft.service.access.rate_limit import Buckets, LimitRate, RequestTurns
from weft.service.access.tokens import TokenFile, check_host
from weft.service.access.trust import trust_warnings
from weft.service.budget.intake import Asks, Intake, RequestBudget
from weft.service.budget.purse import Purses
from weft.service.context import PREFIX, Context
from weft.service.http import replies
from weft.service.http.connections import LimitHeader, protocol_of
from weft.service.http.replies import prepare_writers
from weft.service.jobs.applied_jobs import AppliedJobs
from weft.service.jobs.searches import Searches
from weft.service.notify.mail import MailServer
from weft.service.notify.needs_notices import NeedsNotices
from weft.service.notify.webhooks import Hooks
from weft.service.routes import API, ROOT
from weft.service.routes.cluster import health
from weft.version import __version__

log = logging.getLogger(__name__)

TOKEN_FILE, HOOK_FILE, AUDIT_FILE = "tokens.json", "webhooks.json", "requests.jsonl"
SESSION_FILE = "page-sessions.json"
GOODBYE_S = 3
ENDS_WITHIN_S = 7.0  # of the ten that people and managers wait: a busy machine needs some as well
IDLE_S = 75
BACKLOG = 100  # accepted at once, before any is let go as one too many: see OWN_FILES
SWITCH_S = 0.0005  # how long a thread that reads keeps the loop waiting each time; usually 5 ms


def create_app(settings: Settings) -> FastAPI:
    """The API on a scheduler that opens and closes with it. Refuses an unsafe address."""
    folder = settings.state
    tokens = TokenFile(None if folder is None else folder / TOKEN_FILE)
    sessions = PageSessions(None if folder is None else folder / SESSION_FILE, tokens)
    check_host(settings.host, tokens)
    check_tls(settings.tls_cert, settings.tls_key)
    mail = MailServer.read(settings.smtp, settings.mail_from)
    audit = AuditLog(None if folder is None else folder / AUDIT_FILE)
    limits = settings.limits
    buckets = Buckets(limits.rate, limits.burst)

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        live = Live(settings)
        hooks = Hooks(None if folder is None else folder / HOOK_FILE, mail)
        service = Context(live, tokens, hooks, audit, sessions, buckets, settings.host)
        service.turns.open()
        await live.open()
        for warning in trust_warnings(live, tokens):
            log.warning("%s", warning)
        hooks.open(live.driver)
        notices = NeedsNotices(hooks, service.needs)
        notices.open()
        beside = [*filter(None, (notices, AppliedJobs.of(service), Searches.of(service)))]
        app.state.context = service
        service.begin_tasks()
        preparing = asyncio.create_task(service.read(partial(prepare_writers, _answers())))
        try:
            yield
        finally:
            await preparing
            await service.end_tasks()
            for work in beside:
                await work.close()
            await hooks.close()
            service.close()
            await live.close()
            audit.close()

    app = FastAPI(
        title="Weft",
        version=__version__,
        description="A deep-learning GPU-cluster scheduler.",
        lifespan=life,
        docs_url=None,  # FastAPI's own pages load scripts from the internet
        redoc_url=None,
        openapi_url=None,  # ours is made beside the loop
    )
    replies.install(app)
    _guard(app, RequestBudget.of(limits), buckets, audit, partial(find_caller, sessions, tokens))
    app.router.routes.extend(_routes())
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Every route; FastAPI would build those of an included router again at the first request."""
    again = APIRouter(prefix=PREFIX, include_in_schema=False)
    again.include_router(health.router)
    return tuple(route for router in (*ROOT, again, *API) for route in router.routes)


def _answers() -> list[Any]:
    routes = [route for router in (*ROOT, *API) for route in router.routes]
    models = [route.response_model for route in routes if isinstance(route, APIRoute)]
    return [kind for kind in dict.fromkeys(models) if isinstance(kind, type)]


def _guard(
    app: FastAPI, budget: RequestBudget, buckets: Buckets, audit: AuditLog, asks: Asks
) -> None:
    """Add what every request passes, the last of these first: it is weighed before it is read."""
    app.add_middleware(RequestTurns, buckets=buckets)
    app.add_middleware(Intake, budget=budget)
    app.add_middleware(Audit, audit=audit)
    app.add_middleware(Purses)
    app.add_middleware(LimitRate, buckets=buckets, asks=asks)
    app.add_middleware(LimitHeader, most=budget.header)
    app.add_middleware(NoSniff)


def serve(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    invite: Callable[[str], None] | None = None,
) -> None:
    """Serve until asked to stop; jobs keep running. `ready` gets the address.

    `invite` is given what another machine must run to join, where machines can.

    Raises WeftError if it cannot begin, or whatever broke the scheduler.
    """
    sys.setswitchinterval(SWITCH_S)

    collections = ShortCollections()

    def begun(address: str) -> None:
        collections.begin()
        if ready is not None:
            ready(address)

    try:
        asyncio.run(serve_async(settings, ready=begun, invite=invite))
    finally:
        collections.end()
        faulthandler.cancel_dump_traceback_later()  # of `_exit_within`: all is closed


async def serve_async(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    until: Awaitable[object] | None = None,
    invite: Callable[[str], None] | None = None,
) -> None:
    """As `serve`, inside a loop; ends when `until` does, too."""
    app = create_app(settings)
    listening = _listen(settings.host, settings.port)
    async with app.router.lifespan_context(app):
        config = uvicorn.Config(
            app,
            http=protocol_of(settings.limits),
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GOODBYE_S,
            timeout_keep_alive=IDLE_S,
            backlog=BACKLOG,
            server_header=False,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        server = ApiServer(config)
        driver = app.state.context.driver
        watch = asyncio.create_task(_end_with(driver.wait(), server))
        task = asyncio.create_task(_end_with(until, server)) if until is not None else watch
        try:
            with server.ending_on_signals():
                if ready is not None:
                    ready(_address(settings, listening))
                if invite is not None and driver.engine.invitation:
                    invite(driver.engine.invitation)
                await server.serve(sockets=[listening])
        finally:
            watch.cancel()
            task.cancel()
            broken = await asyncio.gather(watch, task, return_exceptions=True)
    if isinstance(broken[0], Exception):
        raise broken[0]


class ApiServer(uvicorn.Server):
    """A server that ends at SIGINT and SIGTERM and lets us close the rest in good order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: `ending_on_signals` handles them."""
        yield

    @contextlib.contextmanager
    def ending_on_signals(self) -> Iterator[None]:
        """The signals end the server; they are not raised again once it has ended.

        What does not close then, such as a disk or a database that does not answer, is given up
        after `ENDS_WITHIN_S`: jobs go on, and the next start finds them, as after a crash.
        """
        loop = asyncio.get_running_loop()

        def end(number: int, frame: FrameType | None) -> None:
            # Python calls this also while the loop itself waits for something.
            _exit_within(ENDS_WITHIN_S)
            loop.call_soon_threadsafe(self.handle_exit, number, frame)

        before = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not in the main thread, as in tests
                before[number] = signal.signal(number, end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@cache
def _exit_within(limit_s: float) -> None:
    """End this process then, wherever it is; the kernel gives back what it has locked."""

    def exit_now() -> None:
        log.error("not closed within %g s of the signal; ending as a crash would", limit_s)
        faulthandler.dump_traceback()
        os._exit(1)

    late = threading.Timer(limit_s, exit_now)
    late.daemon = True
    late.start()
    faulthandler.dump_traceback_later(limit_s + 1.0, exit=True)  # if no thread gets to run Python


async def _end_with(waiting: Awaitable[object], server: uvicorn.Server) -> None:
    """A service without its scheduler must end, so that the service manager notices."""
    try:
        await waiting
    finally:
        server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named, so that asyncio sends every part of an answer at once (TCP_NODELAY): without it
        # each answer waited 40 ms for the client's delayed acknowledgement.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)  # clients that get the address may connect at once
    except (OSError, OverflowError) as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port}: {error}",
            hint="is a service running there already? choose another --port",
        ) from error
    return listening


def _address(settings: Settings, listening: socket.socket) -> str:
    scheme = "http" if settings.tls_cert is None else "https"
    host = settings.host
    port = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}"


# Garbage collections that no request waits for.

LONG_S = 0.02


class ShortCollections:
    """While a service runs, a collection does not look through what has been there for long."""

    def __init__(self) -> None:
        self._began = 0.0  # when the one under way did, in CPU seconds of its thread

    def begin(self) -> None:
        """Leave out what is there now: looking through it again took 90 ms each time.

        What is there after a long collection later, as of thousands of jobs, is not looked through
        again either. It goes when nothing refers to it; only circles among it would stay.
        """
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Let the process that served look through everything again."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)
            gc.unfreeze()

    def _note(self, phase: str, _: dict[str, Any]) -> None:
        """Called by Python before and after each."""
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > LONG_S:
            gc.freeze()


# Whether a certificate and its key can be served with, said before anything is started.


def check_tls(cert: Path | None, key: Path | None) -> bool:
    """True if TLS is asked for; InvalidConfig if it is and cannot be."""
    if cert is None and key is None:
        return False
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise InvalidConfig(
            f"TLS needs a certificate and its key, and there is no {missing}",
            hint="give both, or neither",
        )
    for path in (cert, key):
        if not path.is_file():
            raise InvalidConfig(f"there is no file {path} to serve TLS with")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfig(
            f"cannot serve TLS with {cert} and {key}: {error}",
            hint="both are PEM files, and the key is the certificate's own, without a passphrase",
        ) from error
    return True


# ---- What every answer says to browsers


NOSNIFF = (b"x-content-type-options", b"nosniff")


class NoSniff:
    """Tells browsers to take every answer for what it says it is: jobs name themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                if NOSNIFF not in headers:
                    message = {**message, "headers": [*headers, NOSNIFF]}
            await send(message)

        await self._app(scope, receive, add)
