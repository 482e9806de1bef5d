"""Plain words: what people read uses the words of the glossary, and no riddles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import ROOT, all_modules, name_file, nodes, parsed

# What to avoid, and what to say.
AVOID = {
    r"\bhand(ed|s|ing)? in\b": "submit",
    r"\bunless told\b(?! otherwise)": "by default, default: ...",
    r"\bwhyever\b": "whatever the reason",
    r"\bwithdraws?\b": "cancel",
    r"(?<=print )(.*)\band leave\.": "exit",
    r"\bnow and then\b": "from time to time, poll",
    r"\bworthless\b": "expired, revoked",
    r"\b(anyhow|besides to be)\b": "in any way",
    r"\bWhy it is so\b": "Design",
    r"\bwhoever\b": "the job that, the user who, the process that",
    r"\b(is|was|are|were|be|been|being) told\b(?! apart)": "gets, is sent, is reported, is "
    "notified",
    r"\bnobody told\b": "not declared, unknown",
    r"\bunique beginnings?\b": "unique prefix",
    r"\bsift(s|ed)?\b": "validate",
    r"\banew\b": "again, from scratch",
    r"\bfor ever\b": "forever",
    r"\bpassed over\b": "skip",
    r"\bwhat became of\b": "what happened to",
    r"\b(known|believed) of\b": "known about",
    r"\b(samples|requests|steps|messages|jobs) a second\b": "per second",
    r"\b(one|a) (row|line|file|module|column) an? "
    r"(GPU|job|node|tenant|policy|command|engine)\b": "per",
}
# In our own modules, where the subjects of sentences are jobs, nodes, ranks and services.
ACTS = (
    r"(waits?|runs?|starts|stops|shares|holds|joins|sleeps|leaves|fits|leads|grows|shrinks|moves|"
    r"gives way|is (frozen|alone|firm|late|displaced|admitted|rejected|ahead)|may not be stopped)"
)
AVOID_IN_MODULES = AVOID | {
    r"\bnobody('s)?\b (?!named)(?!says that)": "no job, no node, no one, unknown, never",
    r"\bnobody[.;:,)]": "no job, no node, no one, unknown, never",
    rf"(?<!users )(?<!user )(?<!people )(?<!person )(?<!those )\bwhom? {ACTS}\b": "the job that, "
    "jobs that, which jobs",
    r"\b(everybody|somebody|anybody)\b": "every job, everyone, someone, any user",
    r"\btake up what `save` gave\b": "restore what `save` returned",
    r"(?<!every )\bso many (?!that)": "that many",
}
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "packages").rglob("*.md"),
]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module: docstrings, help, errors."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def problems(text: str, avoid: dict[str, str] = AVOID) -> list[str]:
    return [f"say {better!r}" for wrong, better in avoid.items() if re.search(wrong, text, re.I)]


def test_modules_use_the_words_of_the_glossary() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {problem}: {' '.join(text.split())[:80]}"
        for path in all_modules()
        for line, text in texts(path)
        for problem in problems(text, AVOID_IN_MODULES)
    ]

    assert not wrong


def test_pages_use_the_words_of_the_glossary() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number} {problem}: {line.strip()[:80]}"
        for page in PAGES
        if page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")
        for number, line in enumerate(page.read_text().splitlines(), 1)
        for problem in problems(line)
    ]

    assert not wrong


def test_the_glossary_names_what_to_avoid() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", guide, re.MULTILINE)
    avoided = {row[2].strip() for row in rows}

    assert {"hand in", "unless told", "withdraw"} <= avoided


def test_a_riddle_is_found() -> None:
    assert problems("whoever has it sets WEFT_TOKEN to it")
    assert problems("An end is told when none of these is left")
    assert problems("What enters the driver is sifted") == ["say 'validate'"]
    assert not problems("Neighbours are told apart by colour")
    assert problems("Jobs that were handed in") == ["say 'submit'"]
    assert problems("Print the version and leave.") == ["say 'exit'"]
    assert not problems("Ask it to save and leave.")
    assert problems("Start every job that fits; stop nobody.", AVOID_IN_MODULES)
    assert problems("None where nobody knows", AVOID_IN_MODULES)
    assert problems("Who waits joins a job that runs", AVOID_IN_MODULES)
    assert problems("does everybody who waits without a place", AVOID_IN_MODULES)
    assert not problems("A user who waits for an answer", AVOID_IN_MODULES)
    assert not problems("Show who did what", AVOID_IN_MODULES)
    assert problems("A row a GPU") == ["say 'per'"]
    assert problems("useful samples a second") == ["say 'per second'"]
    assert problems("a gang that does not fit is passed over") == ["say 'skip'"]
    assert not problems("A pass over the data")
    assert problems("All that is known of jobs")
    assert problems("The job asking for so many GPUs", AVOID_IN_MODULES)
    assert not problems("a model is fitted every so many days", AVOID_IN_MODULES)


def test_numbers_of_gpus_take_the_right_plural() -> None:
    """`1 GPUs` is what an f-string of a number and a plural says one day."""
    wrong = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in all_modules()
        for node in nodes(path)
        if isinstance(node, ast.JoinedStr) and _counts_without_plural(node.values)
    ]

    assert not wrong, "write {say_gpus(count)} of weft.plural"


def _counts_without_plural(parts: list[ast.expr]) -> bool:
    """Whether a value is followed by `GPUs`; `2 to 8 GPUs` is a range, and right."""
    texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
    return any(
        text is None and str(after).startswith(" GPUs") and not str(before).endswith(" to ")
        for before, text, after in zip(["", *texts], texts, texts[1:], strict=False)
    )


SCRIPTS = ROOT / "packages" / "weft" / "src" / "weft" / "service" / "web" / "js"
COUNTED = re.compile(r"\$\{[^{}]*\blength\)*\} [a-z]+s\b")  # `${jobs.length} jobs`


def test_numbers_on_the_page_take_the_right_plural() -> None:
    """`beside 1 others` stood in the events of a job; `count(jobs.length, "job")` knows better."""
    wrong = [
        f"{path.name}:{number} {counted.group()}"
        for path in sorted(SCRIPTS.rglob("*.js"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (counted := COUNTED.search(line))
    ]

    assert not wrong, "write count(n, word) of format.js"


def test_a_number_without_its_plural_is_found() -> None:
    assert COUNTED.search("beside ${(one.beside ?? []).length} others")
    assert COUNTED.search("${number(lines.length)} lines")
    assert not COUNTED.search('${count(jobs.length, "job")} are left')


# Names of functions and methods that we no longer use, and what to call them.
OLD_NAMES = {
    "begin_anew": "reset",
    "copied": "pickle_state",
    "deepen_all": "deepen_sleep",
    "go_on": "resume",
    "hand_in": "submit_job",
    "hear": "on_message, or what is read",
    "lie_down_again": "resume_sleep",
    "look": "poll, or what is looked for",
    "resize_jobs": "size_cluster",
    "settle_in": "apply_spec",
    "sift": "validate",
    "stand": "pause, or what is found",
    "story": "history",
    "take_in": "apply_events",
    "take_up": "read_requests",
    "welcome": "fast_start",
}
# Names of classes and types, likewise.
OLD_TYPES = {
    "Anybody": "NoOrder",
    "Away": "Unreachable",
    "Line": "Connection, or whose line it is",
    "Nights": "SleepSimulation",
    "Room": "TokenBucket, or whose room it is",
    "Standing": "AllocationTrial",
    "Turn": "Decision, or whose turn it is",
}
# Actors of Ray that an older version started answer to this name.
STILL_CALLED = {"engines/ray/runner.py": "look", "node/agent.py": "_welcome"}
# Class names with two meanings: messages on a wire, and answers of the API, keep theirs.
ON_A_WIRE = {"base/messages.py", "service/responses", "service/requests"}
# One thing for each framework: `from weft_train.lightning import Elastic`.
FOR_FRAMEWORKS = {f"weft_train/{name}.py" for name in ("huggingface", "lightning", "ray")}


def defined(path: Path) -> Iterator[tuple[int, str]]:
    """Every function and method of a module by its line."""
    for node in nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name


def named(node: ast.stmt) -> list[str]:
    """The classes, types and constants that a statement of a module defines."""
    match node:
        case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def test_functions_have_none_of_the_names_of_before() -> None:
    wrong = [
        f"{name_file(path)}:{line} {name}: say {OLD_NAMES[name.lstrip('_')]!r}"
        for path in all_modules()
        for line, name in defined(path)
        if name.lstrip("_") in OLD_NAMES and STILL_CALLED.get(name_file(path)) != name
    ]

    assert not wrong


def test_types_have_none_of_the_names_of_before() -> None:
    wrong = [
        f"{name_file(path)}:{node.lineno} {name}: say {OLD_TYPES[name]!r}"
        for path in all_modules()
        for node in parsed(path).body
        for name in named(node)
        if name in OLD_TYPES
    ]

    assert not wrong


def test_a_type_with_an_old_name_is_found() -> None:
    tree = ast.parse("class Away: ...\nTurn = tuple[float, float]\nRoom: TypeAlias = int")

    assert [name for node in tree.body for name in named(node)] == ["Away", "Turn", "Room"]


def test_a_public_class_name_means_one_thing() -> None:
    places: dict[str, set[str]] = {}
    for path in all_modules():
        place = name_file(path)
        for node in parsed(path).body:
            wired = any(place.startswith(part) for part in ON_A_WIRE | FOR_FRAMEWORKS)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not wired:
                places.setdefault(node.name, set()).add(place)

    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_what_no_interface_documents_says_what_it_does() -> None:
    """A method that overrides one, or does what a protocol says, needs no text of its own."""
    documented, wrong = set[str](), []
    methods = [
        (f"{name_file(path)}:{method.lineno} {node.name}", method)
        for path in all_modules()
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    documented = {method.name for _, method in methods if ast.get_docstring(method)}
    wrong = [
        f"{where}.{method.name}"
        for where, method in methods
        if not method.name.startswith("_") and method.name not in documented | UNDOCUMENTED
    ]

    assert not wrong


# What libraries call, and fields of protocols whose names say it.
UNDOCUMENTED = {
    *("connection_lost", "connection_made", "data_received", "render"),
    *("bootstrap", "decide_ms", "max_local", "max_nodes", "metrics", "min_local", "node_gpus"),
}


# A docstring is read alone, in a hover or a search result.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
QUESTION = re.compile(
    r"(What|Whether|How|Where|When|Which|Who|Whom|Whose|Why)\b(?!-)"
    r"|(The same|Those|They|Of (a|an|each|the)|By the|It (is|was|has|gives)) "
)


def asks(docstring: str | None) -> bool:
    return QUESTION.match(docstring or "") is not None


def test_no_docstring_begins_with_a_question_or_leans_on_the_one_above() -> None:
    asking = [
        f"{name_file(path)}:{node.body[0].lineno} {ast.get_docstring(node)}"
        for path in all_modules()
        for node in nodes(path)
        if isinstance(node, DOCUMENTED) and asks(ast.get_docstring(node))
    ]

    assert not asking, "say what it returns or does: `Return ...`, an imperative or a noun"


def test_a_question_is_noticed() -> None:
    assert asks("What a rank of this attempt says.")
    assert asks("Whether a job waits.")
    assert asks("The same for all jobs together.")
    assert asks("Of a job on a GPU kind.")
    assert asks("Those that ended first.")
    assert asks("It is known already.")
    assert not asks("What-ifs, worked out in another process.")
    assert not asks("Handle one message from a rank.")
    assert not asks(None)
