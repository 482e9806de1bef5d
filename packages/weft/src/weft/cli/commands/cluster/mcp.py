"""`weft mcp`: what an assistant may ask of the service, by the Model Context Protocol.

JSON-RPC, a line a message, on standard input and output. Everything but `submit` only looks, and
that shows the plan first: it queues the job when it is asked again with `confirm`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from weft.cli.commands.jobs.jobs import select_jobs
from weft.cli.connect.client import ServiceClient
from weft.cli.view.errors import user_errors
from weft.core.errors import WeftError
from weft.frozen import frozen
from weft.service.responses.answers import Explanation, Made
from weft.service.responses.json_values import plain
from weft.version import __version__
from weft_client.connection import at

PROTOCOL = "2025-06-18"
MOST = 100  # jobs that a list tells, the last submitted
TOLD = ("id", "name", "tenant", "user", "state", "reason", "gpus", "kinds", "submitted", "started")
NO_METHOD, BAD_PARAMS = -32601, -32602
JOB = {"job": {"type": "string", "description": "A job's id, name or unique prefix."}}
FILE = {"file": {"type": "object", "description": "The fields of a job file: command, gpus, ..."}}


@frozen
class Tool:
    """Something that can be asked for; `fields` are those of its arguments, as JSON Schema."""

    about: str
    fields: Mapping[str, Mapping[str, Any]]
    needs: tuple[str, ...]
    do: Callable[[ServiceClient, Mapping[str, Any]], Any]


def mcp() -> None:
    """Serve assistants over the Model Context Protocol, on standard input.

    Assistants can list jobs, explain why one waits, plan, compare what-ifs, and submit after a
    confirmation. Set WEFT_URL and WEFT_TOKEN to the service and to the token that they use.
    """
    with user_errors():
        client = ServiceClient()
    for line in sys.stdin:
        answer = reply(client, line)
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def reply(client: ServiceClient, line: str) -> dict[str, Any] | None:
    """The answer to a message; None for a notification."""
    try:
        asked = json.loads(line)
        method, number = asked["method"], asked.get("id")
    except (ValueError, KeyError, TypeError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "not JSON-RPC"}}
    if number is None:
        return None
    head = {"jsonrpc": "2.0", "id": number}
    params = asked.get("params") or {}
    if method == "tools/call":
        return {**head, **_call(client, params)}
    known: dict[str, Callable[[], Any]] = {
        "initialize": lambda: _introduce(params),
        "ping": dict,
        "tools/list": lambda: {"tools": [_describe(*tool) for tool in TOOLS.items()]},
    }
    if method not in known:
        return {**head, "error": {"code": NO_METHOD, "message": f"no method {method!r}"}}
    return {**head, "result": known[method]()}


def _introduce(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params.get("protocolVersion", PROTOCOL),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "weft", "version": __version__},
    }


def _describe(name: str, tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", "properties": tool.fields, "required": [*tool.needs]}
    looks = name != "submit"
    hints = {"readOnlyHint": looks, "destructiveHint": False}
    return {"name": name, "description": tool.about, "inputSchema": schema, "annotations": hints}


def _call(client: ServiceClient, params: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = params.get("name", ""), params.get("arguments") or {}
    tool = TOOLS.get(name)
    if tool is None:
        return _refuse(f"there is no tool {name!r}; there are {', '.join(TOOLS)}")
    if missing := [need for need in tool.needs if need not in arguments]:
        return _refuse(f"{name} needs {', '.join(missing)}")
    try:
        text, failed = json.dumps(tool.do(client, arguments), default=plain), False
    except WeftError as error:
        text, failed = str(error), True
    return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


def _refuse(text: str) -> dict[str, Any]:
    return {"error": {"code": BAD_PARAMS, "message": text}}


def _list(client: ServiceClient, arguments: Mapping[str, Any]) -> Any:
    jobs, _ = select_jobs(client, arguments.get("state") or "", "", everything=False)
    return [{field: plain(job)[field] for field in TOLD} for job in jobs[-MOST:]]


def _explain(client: ServiceClient, arguments: Mapping[str, Any]) -> Any:
    return client.get(Explanation, at("jobs", arguments["job"], "explain"))


def _plan(client: ServiceClient, arguments: Mapping[str, Any]) -> Any:
    from weft.service.responses.watch import Planned

    return client.post(Planned, "/plan", arguments["file"])


def _what_if(client: ServiceClient, arguments: Mapping[str, Any]) -> Any:
    from weft.cli.commands.cluster.what_if import ask_what_if

    return ask_what_if(client, {"start": "now", **arguments})


def _submit(client: ServiceClient, arguments: Mapping[str, Any]) -> Any:
    if arguments.get("confirm") is not True:
        ask = "nothing is queued yet: show this to the person, then call again with confirm=true"
        return {"plan": _plan(client, arguments), "next": ask}
    return client.post(Made, "/jobs", arguments["file"])


TOOLS: Mapping[str, Tool] = {
    "list_jobs": Tool(
        f"Jobs with their state and why they wait: the last {MOST}, including a few that have "
        f"ended.",
        {"state": {"type": "string", "description": "Such as running or pending."}},
        (),
        _list,
    ),
    "explain": Tool(
        "Why a job waits, which jobs hold what it needs, and when it may start.",
        JOB,
        ("job",),
        _explain,
    ),
    "plan": Tool("What would happen to a job now; nothing is queued.", FILE, ("file",), _plan),
    "what_if": Tool(
        "When jobs start and end from now on if something were different.",
        {
            "policy": {"type": "string"},
            "nodes": {"type": "string", "description": "More machines, such as 2x8:a100."},
            "limits": {"type": "object", "description": "GPUs a tenant may hold, by tenant."},
        },
        (),
        _what_if,
    ),
    "submit": Tool(
        "Queue a job. Without confirm=true it only shows the plan.",
        {**FILE, "confirm": {"type": "boolean"}},
        ("file",),
        _submit,
    ),
}
