"""Make the reference pages from the code: `python docs/make_reference.py [--check]`.

With --check nothing is written; a page that is stale, missing or left over fails the run.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from api_page import api_page
from data_page import data_page
from engines_page import engines_page
from pages import PAPERS, ROOT, link, page_of, source_of
from pages import REFERENCE as HERE
from typer.core import TyperGroup
from typer.models import ArgumentInfo, OptionInfo
from weft_job_crd import weft_job_crd
from which_policy import which_policy_html, which_policy_page

from weft.cli.main import commands
from weft.core.events.event import EVENTS
from weft.core.plan.about import About
from weft.core.spec.parameters import parameters
from weft.core.spec.part_spec import write_value
from weft.core.spec.registry import build, find, names
from weft.formulas.metrics import METRICS
from weft.run_terms import RunTerms

GUIDE = HERE.parent / "how-to" / "job-files.md"
CRD = ROOT / "deploy" / "helm" / "weft" / "crds" / "weftjob.yaml"
MADE = "<!-- Made by docs/make_reference.py; edit the code instead. -->"
FIELDS = ("Paper", "Objective", "Needs", "Controls", "Cost", "Deviations")
TYPES = {
    "bool": "`true` or `false`",
    "int": "whole number",
    "float": "number",
    "float | None": "number or `none`",
    "int | None": "whole number or `none`",
    "tuple[float, ...]": "numbers joined by `/`",
    "tuple[str, ...]": "words joined by `/`",
    "collections.abc.Mapping[str, float]": "`name=number` joined by `/`",
}


def main() -> int:
    """Write the pages, or say which are stale."""
    pages = {HERE / name: text for name, text in all_pages().items()} | part_pages()
    pages[GUIDE] = guide_page()
    pages[CRD] = weft_job_crd("Made by docs/make_reference.py; edit the code instead.")
    made = [*(HERE / "policies").glob("*.md"), *(HERE / "wrappers").glob("*.md")]
    made += [p for p in PAPERS.glob("*/*/README.md") if p.read_text().startswith(MADE)]
    left_over = set(made) - set(pages)
    stale = [p for p, text in pages.items() if not p.is_file() or p.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in sorted([*stale, *left_over]):
            print(f"stale: {path.relative_to(ROOT)}; run `make docs`")
        return 1 if stale or left_over else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages[path])
    for path in left_over:
        path.unlink()
    return 0


def all_pages() -> dict[str, str]:
    """Every page under docs/reference but those of policies and wrappers."""
    return {
        "api.md": api_page(MADE),
        "cite.md": cite_page(),
        "cli.md": cli_page(),
        "engines.md": engines_page(MADE),
        "events.md": events_page(),
        "policies/README.md": policy_index(),
        "research-data.md": data_page(MADE),
        "result.md": result_page(),
        "which-policy.html": which_policy_html(),
        "which-policy.md": which_policy_page(MADE),
    }


def part_pages() -> dict[Path, str]:
    """The pages of policies and of wrappers that are papers."""
    wrappers = [name for name in names("wrapper") if of_a_paper(name)]
    return {
        **{page_of("policies", n, find("policy", n)): policy_page(n) for n in names("policy")},
        **{page_of("wrappers", n, find("wrapper", n)): wrapper_page(n) for n in wrappers},
    }


# ---- metrics


def result_page() -> str:
    """The page as it is, with a row a metric between its marks."""
    rows = [f"| `{m.name}` | {m.over} | {cell(m.help)} |" for m in METRICS]
    return fill_table(HERE / "result.md", "<!-- metrics:", "| field | over | definition |", rows)


def guide_page() -> str:
    """The guide to job files as it is, with a row for each field that `RunTerms` declares."""
    rows = [
        f"| {_written(each.name)} | {each.metadata['meaning']} | {each.metadata['without']} |"
        for each in fields(RunTerms)
        if each.metadata
    ]
    return fill_table(GUIDE, "<!-- fields:", "| field | meaning | without it |", rows)


def _written(name: str) -> str:
    return f"`{name[:-2]}`, in the API `{name}`" if name.endswith("_s") else f"`{name}`"


def fill_table(page: Path, mark: str, head: str, rows: list[str]) -> str:
    """A page with other rows in the table behind a mark."""
    text = page.read_text()
    begin, end = text.index(mark), text.index("<!-- end -->")
    line = text[begin:].partition("\n")[0]
    table = "\n".join([line, head, "|---|---|---|", *rows, ""])
    return text[:begin] + table + text[end:]


# ---- policies


def policy_index() -> str:
    index = HERE / "policies" / "README.md"
    lines = [
        MADE,
        "# Policies\n",
        "One page per policy, made from its module. `weft list policy` prints the same table.",
        "A policy is typed as `NAME` or `NAME:KEY=VALUE,KEY=VALUE`.\n",
        "| policy | what it does | paper | reads |",
        "|---|---|---|---|",
    ]
    for name in names("policy"):
        part = find("policy", name)
        about: About = part().about
        reads = flags(about.needs) or "nothing"
        page = link(index, page_of("policies", name, part))
        lines.append(f"| [{name}]({page}) | {summary(part)} | {about.paper} | {reads} |")
    lines += [
        "\nReads: `remaining` is an estimate of remaining time, see",
        "[choose a predictor](../../how-to/choose-a-predictor.md); `history` is the GPU-seconds of",
        "finished jobs; `model` is the name of the model a job trains.",
        "\n## GPUs left idle\n",
        "No GPU is idle while a job in the cluster could use it, under every policy but these in",
        "their default form; `weft.testing.check_policy` holds each to it, and to what the rules",
        "around it add. Policies with rounds start nobody between them.\n",
        "| policy or rule | why a GPU may be idle that a job could use |",
        "|---|---|",
    ]
    for name in names("policy"):
        if why := find("policy", name)().about.idles:
            page = link(index, page_of("policies", name, find("policy", name)))
            lines.append(f"| [{name}]({page}) | {why} |")
    for name, why in idle_wrappers().items():
        page = link(index, page_of("wrappers", name, find("wrapper", name)))
        lines.append(f"| {f'[{name}]({page})' if of_a_paper(name) else name} | {why} |")
    return "\n".join([*lines, *signatures()]) + "\n"


def signatures() -> list[str]:
    """What each published system was measured to be better at, as kept by its benchmark."""
    kept = json.loads((HERE.parents[1] / "benchmarks" / "signatures.json").read_text())
    rows = []
    for name, signature in kept.items():
        for rival, gains in signature["gains"].items():
            seen, fresh = (
                ", ".join(f"{gain:g}" for gain in some)
                for some in (gains, signature.get("fresh", {}).get(rival, ()))
            )
            against = rival.replace("|", "\\|")
            rows.append(
                f"| {name} | {signature['workload']} | {signature['objective']} | {against} "
                f"| {signature['margins'][rival]:g} | {seen} | {fresh} |"
            )
    return [
        "\n## What each system is good at\n",
        "Small workloads of the kind that a system was made for: three seeds, and three fresh",
        "ones on which nobody had run it before. It is so many times as good in the objective as",
        "the other policy; tests hold each to its margin.",
        "`python -m benchmarks.signatures` measures it, with `--seeds 11 12 13` the others.\n",
        "Where a claim does not show, and why:\n",
        "- `themis` beats `tiresias` in the worst finish-time fairness only where jobs are longer",
        "  than leases: a job of seconds waits for the end of one, many times its own length.",
        "- `allox` stops no job: on a fresh seed two gangs of 8 GPUs waited for 200 hours while",
        "  smaller ones went on starting: worse than `fifo`.",
        "- `astraea` starves a gang on a fresh seed: leases end apart, so that its GPUs are never",
        "  free at once, and its tenant's jobs wait behind it.",
        "- `hived` and `quota` are the same where no gang meets fragmented cells: fresh seeds.",
        "- `cassini` gains where phases of jobs that share a link fit; in one draw none did.",
        "- `fgd` and `best-fit` fill these few nodes alike; in its paper's 1,213 nodes 95.2 and",
        "  92.9 % are given. `fgd` here fills nodes by its scores alone, as its authors do.",
        "- `singularity` and `priority|srtf` both keep all premium hours in three of six draws.",
        "- `shockwave` is as good as `gavel` in fairness (0.99 to 1.42), better in makespan;",
        "  `smd` is not worth more than `optimus` for every seed.",
        "- CES is how nodes sleep (`--sleep-nodes`).\n",
        "| policy | workload | objective | against | margin | measured | on fresh seeds |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]


# Wrappers that keep GPUs only under rules.
RULES = {
    "hived": "hived:cells=red@gpu=1",
    "lend": "lend:own=red=1",
    "quota": "quota:limits=red=1",
    "reserve": "reserve:windows=w=n1",
}


def idle_wrappers() -> dict[str, str]:
    """Why a GPU may be idle for the sake of each wrapper that keeps any."""
    whys = {
        name: build("policy", f"{RULES.get(name, name)}|srtf").about.idles
        for name in names("wrapper")
    }
    return {name: why for name, why in whys.items() if why}


def cite_page() -> str:
    """How to cite Weft and the papers, by the policies and wrappers that stand for them."""
    by_paper: dict[str, list[str]] = {}
    for kind, folder in (("policy", "policies"), ("wrapper", "wrappers")):
        for name in names(kind):
            part = find(kind, name)
            _, fields = docstring_fields(sys.modules[part.__module__].__doc__ or "")
            if not fields.get("Paper", "none").startswith("none"):
                page = page_of(folder, name, part)
                by_paper.setdefault(fields["Paper"], []).append(
                    f"[{name}]({link(HERE / 'cite.md', page)})"
                )
    return "\n".join(
        [
            MADE,
            "# How to cite\n",
            "Cite Weft as [`CITATION.cff`](../../CITATION.cff) says, with its version: GitHub and",
            "`cffconvert` make BibTeX of it. Beside it cite the papers of what you ran:\n",
            "| what you ran | its paper |",
            "|---|---|",
            *(f"| {', '.join(parts)} | {cell(paper)} |" for paper, parts in by_paper.items()),
            "",
        ]
    )


def policy_page(name: str) -> str:
    part = find("policy", name)
    about: About = part().about
    habits = [
        f"| Decides | {'on every event' if about.every is None else f'every {about.every:g} s'} |",
        f"| Declares | needs {flags(about.needs) or 'nothing'};"
        f" controls {flags(about.controls) or 'nothing beyond whole devices'} |",
        f"| May starve a job | {f'yes: {about.starves}' if about.starves else 'no'} |",
        f"| May leave a GPU idle that a job could use | "
        f"{f'yes: {about.idles}' if about.idles else 'no'} |",
    ]
    return part_page("policies", name, part, name, habits)


def of_a_paper(name: str) -> bool:
    """Whether the module of a wrapper has the six fields of a policy's."""
    doc = sys.modules[find("wrapper", name).__module__].__doc__ or ""
    return all(f"\n{field} " in doc for field in FIELDS)


def wrapper_page(name: str) -> str:
    return part_page("wrappers", name, find("wrapper", name), f"'{name}|las'", [])


def part_page(kind: str, name: str, part: Any, spec: str, habits: list[str]) -> str:
    """The page of a policy or wrapper; `spec` is how to simulate with it."""
    title, fields = docstring_fields(sys.modules[part.__module__].__doc__ or "")
    lines = [MADE, f"# {name}\n", f"{title}\n"]
    lines += paragraphs(part)
    lines += ["", "```console", f"weft simulate tiny-20 --policy {spec}", "```\n"]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {field} | {fields[field]} |" for field in FIELDS]
    lines += [*habits, "\n## Parameters\n"]
    lines += list(parameter_rows(parameters(part))) or ["None."]
    source = source_of(part)
    shown = "/".join(part.__module__.split("."))
    lines += ["", f"Source: [{shown}.py]({link(page_of(kind, name, part), source)})"]
    return "\n".join(lines) + "\n"


def parameter_rows(known: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    if known:
        yield "| name | value | default |"
        yield "|---|---|---|"
    for name, (wanted, default) in known.items():
        yield f"| `{name}` | {type_text(wanted)} | `{value_text(default)}` |"


def docstring_fields(doc: str) -> tuple[str, dict[str, str]]:
    """The first line, and the six fields of a policy's module docstring."""
    title, _, rest = doc.partition("\n")
    fields: dict[str, str] = {}
    field = ""
    for line in rest.splitlines():
        word = line.split(" ", 1)[0]
        if word in FIELDS:
            field, line = word, line[len(word) :]
        if field:
            fields[field] = f"{fields.get(field, '')} {line.strip()}".strip()
    return title, fields


def paragraphs(part: object) -> list[str]:
    return (inspect.getdoc(part) or "").splitlines()


def summary(part: object) -> str:
    return (inspect.getdoc(part) or "").partition("\n")[0]


def flags(value: Any) -> str:
    return ", ".join(f"`{flag.name.lower()}`" for flag in type(value) if flag in value)


def type_text(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(wanted))
    text = wanted.__name__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)
    return TYPES.get(text, text.replace("|", "\\|"))


def value_text(default: object) -> str:
    return write_value(default) or "none"


# ---- events


def events_page() -> str:
    lines = [
        MADE,
        "# Events\n",
        "`weft simulate ... --events FILE` writes every event as one line of JSON, in the order it",
        "happened: `at` is the time in seconds, `event` the name, then the event's own fields.",
        "A field at its default is left out. `read_event` of `weft.core.codec.event_lines` reads a",
        "line back.\n",
        "```console",
        "weft simulate tiny-20 --events events.jsonl",
        "```\n",
        "The state of the scheduler is a fold of these events, and a `Decided` event holds the",
        "whole decision, so the log is enough to follow a run step by step. A simulation writes",
        "those that can happen in one; the others are for engines that run real jobs.\n",
    ]
    for kind in EVENTS:
        lines += [f"## {kind.__name__}\n", (inspect.getdoc(kind) or "") + "\n"]
        lines += [*field_rows(kind), ""]
    return "\n".join(lines).rstrip() + "\n"


def field_rows(kind: type) -> Iterator[str]:
    hints = get_type_hints(kind)
    if fields(kind):
        yield "| field | type | default |"
        yield "|---|---|---|"
    for f in fields(kind):
        yield f"| `{f.name}` | `{plain(hints[f.name])}` | {default_text(f)} |"


def default_text(f: Any) -> str:
    if f.default is MISSING and f.default_factory is MISSING:
        return "always there"
    if f.default is MISSING:
        return "empty"
    return "empty" if f.default in ("", ()) else f"`{value_text(f.default)}`"


def plain(wanted: Any) -> str:
    """A type without module names, safe inside a table."""
    if isinstance(wanted, type) and not get_args(wanted):
        return wanted.__name__
    text = str(wanted)
    for module in ("collections.abc.", "weft.core.model.job.", "weft.core.model.cluster."):
        text = text.replace(module, "")
    return text.replace("|", "\\|")


# ---- command line


def cli_page() -> str:
    lines = [
        MADE,
        "# Command line\n",
        "Tables are for people, `--json` is for programs. Errors go to stderr. Exit code 0 is",
        "success, 2 a mistake in what you typed, 1 an error in a policy or in Weft.",
        "`weft --version` prints the version, `weft COMMAND --help` the same as below.\n",
    ]
    for name, command in commands().load_all().items():
        if isinstance(command, TyperGroup):
            for part, subcommand in command.commands.items():
                lines += command_lines(f"{name} {part}", subcommand.callback)
        else:
            lines += command_lines(name, command.callback)
    return "\n".join(lines).rstrip() + "\n"


def command_lines(name: str, function: Any) -> Iterator[str]:
    """Read from the signature: that is what people edit, whatever Typer makes of it."""
    hints = get_type_hints(function, include_extras=True)
    every = inspect.signature(function).parameters
    params = {name: param for name, param in every.items() if hints[name] is not typer.Context}
    declared = [(p, *get_args(hints[p])[:2], params[p].default) for p in params]
    arguments = [row for row in declared if isinstance(row[2], ArgumentInfo)]
    options = [row for row in declared if isinstance(row[2], OptionInfo)]
    yield f"## weft {name}\n"
    yield f"{inspect.getdoc(function)}\n"
    typed = {row[0]: row[2].metavar or row[0].upper() for row in arguments}
    usage = " ".join(["weft", name, *typed.values(), "[OPTIONS]"])
    if any(text == "COMMAND..." for text in typed.values()):
        usage = f"weft {name} [OPTIONS] -- COMMAND..."
    yield f"```text\n{usage}\n```\n"
    if arguments:
        yield "| argument | meaning |\n|---|---|"
    for word, wanted, info, _ in arguments:
        yield f"| `{typed[word]}` | {cell(info.help)}{choices(wanted)} |"
    if arguments:
        yield ""
    yield "| option | value | meaning | default |\n|---|---|---|---|"
    for word, wanted, info, default in options:
        opts = ", ".join(f"`{text}`" for text in written(word, info))
        yield f"| {opts} | {option_type(wanted)} | {cell(info.help)} | {option_default(default)} |"
    yield ""


def written(word: str, info: OptionInfo) -> tuple[str, ...]:
    """How an option is typed; inside Annotated the first spelling ends up as its default."""
    first = (info.default,) if isinstance(info.default, str) else ()
    return (*first, *(info.param_decls or ())) or (f"--{word.replace('_', '-')}",)


def choices(wanted: Any) -> str:
    if get_origin(wanted) is not None or not issubclass(wanted, Enum):
        return ""
    return f" One of {', '.join(f'`{choice.value}`' for choice in wanted)}."


def option_type(wanted: Any) -> str:
    inner = next((kind for kind in get_args(wanted) if kind is not type(None)), wanted)
    if get_origin(inner) is list:
        return "text, several times"
    return {bool: "", int: "whole number", float: "number", Path: "file"}.get(inner, "text")


def option_default(value: Any) -> str:
    absent = value is None or value is False or value == "" or value is inspect.Parameter.empty
    return "" if absent else f"`{value_text(value)}`"


def cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
