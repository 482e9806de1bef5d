"""Sets of policies in one text, and who stands where."""

from __future__ import annotations

import pytest

from weft.app.catalogue import catalogue
from weft.app.policy_file import choose_sensible, expand_sets
from weft.core.errors import WeftError


def test_braces_are_all_combinations_in_order() -> None:
    specs = expand_sets("compose:order={fifo,las},place={packed,spread}")

    assert specs == [
        "compose:order=fifo,place=packed",
        "compose:order=fifo,place=spread",
        "compose:order=las,place=packed",
        "compose:order=las,place=spread",
    ]


@pytest.mark.parametrize("text", ["las:by=time", '{"name": "las"}', 'quota:limits="a{b}=3"|fifo'])
def test_a_text_without_a_set_is_itself(text: str) -> None:
    assert expand_sets(text) == [text]


def test_a_choice_in_quotes_may_have_commas() -> None:
    assert expand_sets('compose:order={fifo,"las:by=time,quantum=60"}')[1] == (
        'compose:order="las:by=time,quantum=60"'
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("las:by={time", "this brace is not closed"),
        ("las:by={time,}", "a choice is empty"),
        ("las:quantum={%s}" % ",".join(map(str, range(1, 502))), "are 501 policies"),  # noqa: UP031
    ],
)
def test_a_set_that_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(WeftError, match=why):
        expand_sets(text)


def test_nonsense_in_a_set_is_left_out_with_the_reason() -> None:
    kept, left_out = choose_sensible(expand_sets("compose:order={fifo,las},size={asked,sia}"))

    assert len(kept) == 3
    assert list(left_out) == ["compose:order=fifo,size=sia"]
    assert "admit=in-turn stops no job" in left_out["compose:order=fifo,size=sia"]


def test_a_set_of_nothing_but_nonsense_is_an_error() -> None:
    with pytest.raises(WeftError, match="no policy of the set makes sense"):
        choose_sensible(expand_sets("compose:order={fifo,sjf},size=sia"))


def test_a_word_that_is_no_part_is_an_error_in_a_set_too() -> None:
    with pytest.raises(WeftError, match="no order named 'fifi'"):
        choose_sensible(expand_sets("compose:order={fifo,fifi}"))


# ---- who stands where


def test_policies_are_found_by_where_they_stand() -> None:
    _, rows = catalogue("policy", ("sharing", "unknown-durations"))

    names = {row[0] for row in rows}
    assert {"gandiva", "antman"} <= names
    assert not {"lucid", "fifo"} & names


def test_parts_are_listed_with_what_they_decide() -> None:
    headings, rows = catalogue("part")

    named = {row[0] for row in rows}
    assert headings[0] == "part"
    assert {"order=tiresias", "size=sia", "place=packed", "admit=preempt", "share=lucid"} <= named


def test_a_word_that_nobody_has_is_answered_with_the_closest() -> None:
    with pytest.raises(WeftError, match="did you mean 'sharing'"):
        catalogue("policy", ("sharin",))


def test_only_what_declares_where_it_stands_is_found_by_it() -> None:
    with pytest.raises(WeftError, match="not a trace"):
        catalogue("trace", ("sharing",))
