"""The names in a script, without a parser; texts, comments and patterns are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator

TOKEN = re.compile(
    r"""
      (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<text> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
    | (?P<regex> (?<![\w)\]}])(?<![\w)\]}]\ )  # after a value, a slash divides
        / (?![*/]) (?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+ / [a-z]* )
    | (?P<property> (?<!\.)\??\.\s*[A-Za-z_$][\w$]* )
    | (?P<name> [A-Za-z_$][\w$]* )
    | (?P<mark> [`{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
TEMPLATE = re.compile(r"(?:\\.|(?!\$\{)[^`\\])*(?P<end>`|\$\{)", re.DOTALL)


def names(script: str) -> Iterator[tuple[int, str]]:
    """Where each variable, parameter or function is named; properties after a dot are not."""
    open_: list[str] = []  # of each brace whether a template goes on after it
    at = 0
    while token := TOKEN.search(script, at):
        at = token.end()
        if token["name"]:
            yield token.start(), token["name"]
        mark = token["mark"]
        if mark == "{":
            open_.append("block")
        elif mark == "`" or (mark == "}" and open_ and open_.pop() == "template"):
            rest = TEMPLATE.match(script, at)
            if rest is None:
                msg = f"a template does not end: {script[at : at + 60]}"
                raise ValueError(msg)
            at = rest.end()
            if rest["end"] == "${":
                open_.append("template")
