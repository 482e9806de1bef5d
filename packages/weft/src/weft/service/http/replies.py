"""Answers as JSON, and errors among them: what happened, what fixes it, and which field."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, get_args

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from starlette.exceptions import HTTPException

from weft.core.errors import (
    EngineError,
    InvalidConfig,
    StoreError,
    UnknownName,
    WeftError,
    did_you_mean,
)
from weft.runtime.loop.driver import CLOSING
from weft.service.responses.answers import Problem
from weft.service.responses.json_values import plain


class Json(Response):
    """An answer as JSON; numbers that JSON has no word for are null.

    Written by pydantic, which takes a quarter of the time of `json.dumps`.
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return write_json(content)


def write_json(content: Any) -> bytes:
    """A value as JSON; numbers that JSON has no word for are null."""
    try:
        kind: Any = type(content)
        return _writer(kind).dump_json(content)
    except PydanticSerializationError:  # half of a character pair, in a text someone sent
        read = json.loads(json.dumps(content, default=plain))
        return json.dumps(_finite(read), allow_nan=False).encode("ascii")


def prepare_writers(kinds: Iterable[Any]) -> None:
    """Make what writes these types: the first answer of each waited up to a quarter of a second."""
    for kind in kinds:
        _writer(kind)


@cache
def _writer(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_finite(held) for held in value]
    return value


log = logging.getLogger(__name__)

STATUS = {UnknownName: 404, InvalidConfig: 422, EngineError: 503, StoreError: 503}


class HttpProblem(Exception):  # noqa: N818 - what is said, not what broke
    """An answer other than success; `retry_s` says when to ask again."""

    def __init__(
        self, status: int, what: str, hint: str = "", field: str = "", retry_s: float = 0.0
    ) -> None:
        super().__init__(what)
        self.status, self.what, self.hint, self.field = status, what, hint, field
        self.retry_s = retry_s


def install(app: FastAPI) -> None:
    """Let every error leave as {"error", "hint", "field"}."""
    app.add_exception_handler(HttpProblem, _answer_refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid_inside)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(WeftError, _weft)


def problem(status: int, what: str, hint: str = "", field: str = "") -> Json:
    """An answer other than success."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    body = Problem(error=what, hint=hint, field=field)
    return Json(body, status_code=status, headers=headers)


async def _answer_refused(_: Request, error: Exception) -> Json:
    assert isinstance(error, HttpProblem)
    answer = problem(error.status, error.what, error.hint, error.field)
    if error.retry_s:
        answer.headers["Retry-After"] = str(math.ceil(error.retry_s))
    return answer


async def _weft(_: Request, error: Exception) -> Json:
    assert isinstance(error, WeftError)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)
    answer = problem(status, error.what, error.hint)
    if error is CLOSING:
        answer.headers["Retry-After"] = "1"  # another is likely to take its place
    return answer


async def _http(_: Request, error: Exception) -> Json:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    plain = detail == HTTPStatus(error.status_code).phrase
    hint = "`/docs` shows what there is"
    answer = problem(error.status_code, detail.lower() if plain else detail, hint)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _invalid(request: Request, error: Exception) -> Json:
    assert isinstance(error, RequestValidationError)
    return Json(describe_invalid(error.errors(), _body_of(request)), status_code=422)


def describe_invalid(errors: Sequence[Any], model: type[BaseModel] | None) -> Problem:
    """The faults of a body for `model`, whose fields are named as below `body`."""
    first = _telling(errors)
    *outer, last = [str(part) for part in first["loc"]]
    inside = [part for part in outer[1:] if not _is_branch(part)]
    if first["type"] == "extra_forbidden":
        return _unknown(model, inside, last)
    where = inside if _is_branch(last) or not outer else [*inside, last]
    field = ".".join(where)[:200]
    if first["type"] in ("model_attributes_type", "missing") and list(first["loc"]) == ["body"]:
        hint = "send a JSON object with the header `Content-Type: application/json`"
        return Problem(error="the body is not a JSON object", hint=hint)
    what = str(first["msg"]).removeprefix("Value error, ")
    return Problem(error=f"{field}: {what}" if field else what, field=field)


async def _invalid_inside(_: Request, error: Exception) -> Json:
    """Fields that are wrong only once they are put together, as a sweep's are."""
    assert isinstance(error, ValidationError)
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])[:200]
    what = str(first["msg"]).removeprefix("Value error, ")
    return problem(422, f"{field}: {what}" if field else what, "", field)


def _body_of(request: Request) -> type[BaseModel] | None:
    """The model of the body that the route takes, as it declares it."""
    route = request.scope.get("route")
    declared = route.body_field if isinstance(route, APIRoute) else None
    return _model(declared.field_info.annotation) if declared is not None else None


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model in a type, also where something else is allowed."""
    kinds = get_args(annotation) or (annotation,)
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None
    )


def _unknown(model: type[BaseModel] | None, inside: Sequence[str], name: str) -> Problem:
    """A field that is not known, with the closest one that is."""
    for part in inside:
        info = model.model_fields.get(part) if model is not None else None
        model = _model(info.annotation) if info is not None else None
    known = list(model.model_fields) if model is not None else []
    field = ".".join([*inside, name])[:200]
    hint = f"known fields are {', '.join(known)}" if known else ""
    what = f"unknown field {field!r}{did_you_mean(name[:64], known)}"
    return Problem(error=what, hint=hint, field=field)


def _telling(errors: Sequence[Any]) -> Any:
    """The error to show: an unknown field first; of a union, the try that got furthest."""
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    if unknown:
        return unknown[0]
    deepest = max(len(error["loc"]) for error in errors)
    tried = [error for error in errors if len(error["loc"]) == deepest]
    # Of `gpus: {min: 3, max: 2}` it is no use to say that it is no integer.
    return next((error for error in tried if not error["type"].endswith("_type")), tried[0])


def _is_branch(part: str) -> bool:
    """True if a part of a location is a type that was tried, not a field."""
    return (
        part in ("Gpus", "int", "float", "str") or part[:1].isupper() or "[" in part or "-" in part
    )
