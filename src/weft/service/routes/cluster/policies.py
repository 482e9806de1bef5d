"""The policies there are."""

from __future__ import annotations

import inspect
import sys
from functools import cache

from fastapi import APIRouter

from weft.app.taxonomy_index import read_entries
from weft.core.plan.about import Controls
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import write_value
from weft.core.spec.registry import find
from weft.frozen import frozen
from weft.service.context import PROBLEMS, Anyone, Service
from weft.service.http.json_body import Json
from weft.service.responses.watch import PolicyEntries, PolicyEntry

router = APIRouter(tags=["cluster"], responses=PROBLEMS)


@router.get("/policies", response_model=PolicyEntries)
async def policies(service: Service, who: Anyone) -> Json:  # noqa: ARG001 - any token will do
    """All policies with their paper, objective and parameters, and the current one."""
    pages = await service.read(read_policy_pages)
    supports = service.driver.engine.supports
    entries = [_entry(page, supports) for page in pages]
    return Json(PolicyEntries(active=service.live.policy.text, policies=entries))


def _entry(page: PolicyPage, supports: Controls) -> PolicyEntry:
    missing = page.controls & ~supports
    names = ", ".join(flag.name.lower() for flag in missing if flag.name)
    return PolicyEntry(
        name=page.name,
        summary=page.summary,
        said=page.sections,
        sections=page.sections,
        parameters=page.settable,
        tags=list(page.tags),
        refused=f"it sets {names}, which this engine cannot honour" if names else "",
    )


# What policies are, as their modules say: the paper, what they optimise, their parameters.

FIELDS = ("Paper", "Objective", "Needs", "Controls", "Cost", "Deviations")


@frozen
class PolicyPage:
    """One policy. `settable` are its parameters by name, with their defaults as people write them.

    `controls` is what it sets of an allocation.
    """

    name: str
    summary: str
    sections: dict[str, str]
    settable: dict[str, str]
    tags: tuple[str, ...]
    controls: Controls


@cache
def read_policy_pages() -> tuple[PolicyPage, ...]:
    """Every policy, in the order of names."""
    pages = []
    for entry in read_entries("policy"):
        part = find("policy", entry.name)
        sections = docstring_fields(inspect.getdoc(sys.modules[part.__module__]) or "")
        settable = {key: write_value(value) for key, (_, value) in parameters(part).items()}
        pages.append(
            PolicyPage(
                entry.name, entry.summary, sections, settable, entry.tags, part().about.controls
            )
        )
    return tuple(pages)


def docstring_fields(doc: str) -> dict[str, str]:
    """The fields of a policy's module docstring, each on one line."""
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in doc.splitlines():
        word, _, rest = line.partition(" ")
        if word in FIELDS:
            current = sections.setdefault(word, [])
            line = rest
        elif line and not line.startswith(" "):
            current = None
        if current is not None and line.strip():
            current.append(line.strip())
    return {field: " ".join(lines) for field, lines in sections.items()}
