"""The page of the REST API, from its own schema."""

from __future__ import annotations

from typing import Any

from weft.app.serve.live import Settings
from weft.service.main import create_app

HEAD = """# REST API

All routes are below the address that `weft serve` prints; bodies and answers are JSON. `/docs`
shows this page in a browser, `/openapi.json` describes it for programs. Send `Authorization: Bearer
TOKEN` once there are tokens ([serve](../how-to/serve.md#tokens)).

Errors are answered with a status of 400 or more and `{"error": what, "hint": what fixes it,
"field": which field}`. Times are seconds since the epoch.
"""


def api_page(made: str) -> str:
    """Routes by subject, then the fields of what they take and answer."""
    schema = create_app(Settings(engine="simulated")).openapi()
    parts = [made, HEAD]
    subjects: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            subjects.setdefault(operation["tags"][0], []).append(_route(path, method, operation))
    for subject, routes in subjects.items():
        parts += [f"## {subject.capitalize()}\n", "| route | what it does | takes | answers |"]
        parts += ["|---|---|---|---|", *routes, ""]
    parts.append("## Fields\n")
    for name, model in sorted(schema["components"]["schemas"].items()):
        if "ValidationError" not in name:  # FastAPI's own, which ours stand in for
            parts += _model(name, model)
    return "\n".join(parts).rstrip() + "\n"


def _route(path: str, method: str, operation: dict[str, Any]) -> str:
    says = " ".join(operation.get("description", "").split("\n\n")[0].split())
    query = [f"`{p['name']}`" for p in operation.get("parameters", ()) if p["in"] != "path"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    takes = ([_type(body["schema"])] if body else []) + query
    good = next(code for code in operation["responses"] if code.startswith("2"))
    content = operation["responses"][good].get("content", {})
    answers = [_type(c["schema"]) if kind == "application/json" else f"`{kind}`"
               for kind, c in content.items()]  # fmt: skip
    return f"| `{method.upper()} {path}` | {says} | {', '.join(takes)} | {', '.join(answers)} |"


def _model(name: str, model: dict[str, Any]) -> list[str]:
    says = " ".join(model.get("description", "").split())
    lines = [f"### {name}\n", f"{says}\n"]
    if fields := model.get("properties"):
        needed = set(model.get("required", ()))
        lines += ["| field | type | default |", "|---|---|---|"]
        for field, about in fields.items():
            default = "" if field in needed else _default(about)
            lines.append(f"| `{field}` | {_type(about)} | {default} |")
        lines.append("")
    return lines


def _default(about: dict[str, Any]) -> str:
    value = about.get("default")
    if value in ("", None):
        return "none" if "default" in about or "type" not in about else "empty"
    return f"`{value}`"


WORDS = {"null": "none", "integer": "whole number", "string": "text", "boolean": "true or false"}


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(choice) for choice in schema["anyOf"]))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return " or ".join(f"`{choice}`" for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    pattern = schema.get("patternProperties", {})
    inner = next(iter(pattern.values()), schema.get("additionalProperties"))
    if schema.get("type") == "object" and isinstance(inner, dict):
        return f"names to {_type(inner)}"
    return WORDS.get(schema.get("type", ""), schema.get("type", "anything"))
