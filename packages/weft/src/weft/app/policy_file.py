"""A policy as people name it: its short form, a file that describes it, or a class in a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from typing import Any

from weft.app.files import SUFFIXES, load_yaml
from weft.core.errors import InvalidConfig, MakesNoSense, UnknownName, WeftError
from weft.core.model.cluster import Cluster
from weft.core.paths import expand
from weft.core.plan.policy import Policy
from weft.core.spec.parameters import parameters, read_word, settings
from weft.core.spec.part_spec import PartSpec, Word, parse
from weft.core.spec.registry import Described, build, find, read_spec

PYTHON = ".py:"
MOST_IN_A_SET = 500


def read_policy(text: str) -> str | PartSpec:
    """The description in a .yaml or .json file; any other text as it is."""
    path = expand(text)
    if path.suffix not in SUFFIXES:
        return text
    try:
        return read_spec("policy", load_yaml(path))
    except WeftError as error:
        if str(path) in error.what:
            raise
        raise type(error)(f"{path}: {error.what}", hint=error.hint) from error


def read_policy_to_send(text: str) -> str | PartSpec:
    """A policy with the files in it read here: a service reads no files of its clients."""
    described = read_policy(text)
    if isinstance(described, str) and PYTHON in described:
        return described
    spec = read_spec("policy", described)
    inlined = read_files(spec)
    return described if inlined == spec else inlined


def read_files(spec: PartSpec) -> PartSpec:
    """The spec with what the files hold that its parts name, in the place of their names."""
    return replace(
        _read_file("policy", spec), wrappers=tuple(_read_file("wrapper", w) for w in spec.wrappers)
    )


def check_machines(policy: Policy, cluster: Cluster) -> None:
    """Refuse a policy that cannot be used on these machines."""
    if objection := policy.about.objection(cluster):
        raise InvalidConfig(objection)


def build_policy(described: Described) -> Policy:
    """The policy that is described: a registered one, or `FILE.py:CLASS` with its parameters."""
    policy: Policy
    if isinstance(described, str) and PYTHON in described:
        policy = _from_python(described)
    else:
        policy = build("policy", read_files(read_spec("policy", described)))
    return policy


def _read_file(kind: str, spec: PartSpec) -> PartSpec:
    """One part: what its file holds are parameters of it."""
    params = dict(spec.params)
    for name, read in _files(kind, spec.name).items():
        if not (text := params.pop(name, "")):
            continue
        path = expand(text)
        try:
            in_file = read(load_yaml(path))
        except WeftError as error:
            if str(path) in error.what:
                raise
            raise type(error)(f"{path}: {error.what}", hint=error.hint) from error
        if both := sorted(in_file.keys() & params.keys()):
            raise InvalidConfig(f"{kind} {spec.name!r}: {both[0]} is in {path} as well")
        params |= {key: value for key, value in in_file.items() if value}
    return replace(spec, params=params)


def _files(kind: str, name: str) -> dict[str, Callable[[object], Mapping[str, Any]]]:
    """Parameters that name files, and how what is in them is read."""
    part = find(kind, name)
    if not is_dataclass(part):
        return {}
    return {f.name: f.metadata["file"] for f in fields(part) if "file" in f.metadata}


def _from_python(text: str) -> Policy:
    """`./mine.py:Mine:patience_h=2`: a class of a file, its fields as parameters."""
    file, _, rest = text.partition(PYTHON)
    path = expand(f"{file}.py")
    (written,) = parse(rest)
    name = written.name.text
    part = _classes(path).get(name)
    if part is None:
        raise UnknownName.among("class", name, _classes(path))
    who = f"policy {name!r}"
    known = parameters(part)
    params = {
        key.text: read_word(who, key.text, value, known[key.text][0])
        for key, value in written.params
        if key.text in known
    }
    unknown = {key.text: None for key, _ in written.params if key.text not in known}
    policy: Policy = part(**settings(who, part, {**params, **unknown}))
    return policy


def _classes(path: Path) -> dict[str, type[Any]]:
    if not path.is_file():
        raise InvalidConfig(f"there is no file {path}", hint="a policy is FILE.py:CLASS")
    module_name = f"weft_policy_file_{path.resolve().as_posix().replace('/', '_')}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise InvalidConfig(f"{path} cannot be imported")
        module = module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise InvalidConfig(f"{path} cannot be imported: {error!r}") from error
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module_name
    }


# ---- Sets of policies in one text: `compose:order={fifo,las},place={packed,spread}` are four


def expand_sets(text: str) -> list[str]:
    """Every choice of one from each `{...}`, in order; a text without braces is itself."""
    if "{" not in text or text.lstrip()[:2] == '{"' or text.lstrip() == "{":
        return [text]
    pieces = list(_pieces(text))
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > MOST_IN_A_SET:
        raise InvalidConfig(
            f"{text!r:.80} are {count:,} policies", hint=f"at most {MOST_IN_A_SET} at once"
        )
    return ["".join(chosen) for chosen in product(*pieces)]


def choose_sensible(texts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Divide a set into those that make sense and the others with reasons; one alone is kept."""
    if len(texts) == 1:
        return list(texts), {}
    kept: list[str] = []
    left_out: dict[str, str] = {}
    for text in texts:
        try:
            build_policy(text)
        except MakesNoSense as error:
            left_out[text] = error.what
        else:
            kept.append(text)
    if not kept:
        raise InvalidConfig(f"no policy of the set makes sense; {next(iter(left_out.values()))}")
    return kept, left_out


def _pieces(text: str) -> Iterator[list[str]]:
    """Plain stretches as sets of one, braces as what stands between their commas."""
    at = 0
    while (begin := _find(text, "{", at)) is not None:
        end = _find(text, "}", begin)
        nested = _find(text, "{", begin + 1)
        if end is None or (nested is not None and nested < end):
            word = Word(text, begin, begin + 1)
            raise word.point("this brace is not closed", "sets are written {this,that}")
        yield [text[at:begin]]
        words = [word.text for word in Word(text, begin + 1, end).split(",")]
        if not all(words):
            raise Word(text, begin, end + 1).point("a choice is empty", "write {this,that}")
        yield words
        at = end + 1
    yield [text[at:]]


def _find(text: str, mark: str, start: int) -> int | None:
    """The next place of a mark, outside quotes."""
    quoted = False
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char == mark and not quoted and at >= start:
            return at
    return None
