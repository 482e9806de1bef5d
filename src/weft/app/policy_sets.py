"""Sets of policies in one text: `compose:order={fifo,las},place={packed,spread}` are four."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from weft.app.policy_file import build_policy
from weft.core.errors import InvalidConfig, MakesNoSense
from weft.core.spec.part_spec import Word

MOST = 500


def expand_sets(text: str) -> list[str]:
    """Every choice of one from each `{...}`, in order; a text without braces is itself."""
    if "{" not in text or text.lstrip()[:2] == '{"' or text.lstrip() == "{":
        return [text]
    pieces = list(_pieces(text))
    count = 1
    for piece in pieces:
        count *= len(piece)
    if count > MOST:
        raise InvalidConfig(f"{text!r:.80} are {count:,} policies", hint=f"at most {MOST} at once")
    return ["".join(chosen) for chosen in product(*pieces)]


def choose_sensible(texts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Those of a set that make sense, and why the others do not; one alone is not looked at."""
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
    """Where a mark stands next, outside quotes."""
    quoted = False
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char == mark and not quoted and at >= start:
            return at
    return None
