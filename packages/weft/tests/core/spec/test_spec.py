"""Specs of parts: the short form, the structured form, and what connects them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packages.weft.tests.core.spec.every_type import EveryType

from weft.core.codec.event_lines import event_line, read_event
from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig, UnknownName, WeftError
from weft.core.events.event import PolicyChanged
from weft.core.spec.parameters import parameters, read_values, read_word
from weft.core.spec.part_spec import PartSpec, Word, parse, read_plain
from weft.core.spec.registry import build, find, names, read_spec
from weft.pieces.wrap.no_preempt import NoPreempt
from weft.pieces.wrap.tenants.quota import Quota
from weft.policies.fifo import Fifo


def written(text: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (part.name.text, {key.text: value.text for key, value in part.params})
        for part in parse(text)
    ]


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("las", "las", {}),
        ("las:", "las", {}),
        ("las:by=time", "las", {"by": "time"}),
        (" las : by = time , quantum=5 ", "las", {"by": "time", "quantum": "5"}),
        ("a:x=1=2", "a", {"x": "1=2"}),
        ("a:x=", "a", {"x": ""}),
        ("a:x=b:c", "a", {"x": "b:c"}),
        ("a:x=1,,y=2,", "a", {"x": "1", "y": "2"}),
        ('a:x="1,2|3",y=2', "a", {"x": '"1,2|3"', "y": "2"}),
    ],
)
def test_a_part_is_a_name_and_pairs(text: str, name: str, params: dict[str, str]) -> None:
    assert written(text) == [(name, params)]


def test_wrappers_stand_before_what_they_wrap() -> None:
    assert written("quota:limits=a=8/b@k=4|priority|sia:p=-1") == [
        ("quota", {"limits": "a=8/b@k=4"}),
        ("priority", {}),
        ("sia", {"p": "-1"}),
    ]


POINTED = {
    "las:by=time,fast": (
        "cannot read 'fast'\n"
        "  las:by=time,fast\n"
        "              ^^^^\n"
        "  hint: parameters are written name:key=value,key=value"
    ),
    "firm||las": (
        "a name is missing\n"
        "  firm||las\n"
        "       ^\n"
        "  hint: write name:key=value, wrappers before it with |"
    ),
    "las:by=time,by=time": (
        "'by' is there twice\n"
        "  las:by=time,by=time\n"
        "              ^^\n"
        "  hint: name every parameter once"
    ),
    'gavel:in_turn="a,round=5': (
        'this quote is not closed\n  gavel:in_turn="a,round=5\n                ^'
    ),
    "firm|strf": (
        "no policy named 'strf'; did you mean 'srtf'?\n"
        "  firm|strf\n"
        "       ^^^^\n"
        f"  hint: `weft list policy` shows all {len(names('policy'))}"
    ),
    "stedy|srtf": (
        "no wrapper named 'stedy'; did you mean 'steady'?\n"
        "  stedy|srtf\n"
        "  ^^^^^\n"
        f"  hint: `weft list wrapper` shows all {len(names('wrapper'))}"
    ),
    "firm|las:quantm=5": (
        "policy 'las' has no parameter 'quantm'; did you mean 'quantum'?\n"
        "  firm|las:quantm=5\n"
        "           ^^^^^^\n"
        "  hint: it has by, place, quantum, rule, thresholds"
    ),
    "las:quantum=5,thresholds=1/x": (
        "policy 'las': thresholds='1/x' is not numbers joined by '/'\n"
        "  las:quantum=5,thresholds=1/x\n"
        "                           ^^^"
    ),
    "las:by=tim": (
        "policy 'las': by='tim' is not one of its choices; did you mean 'time'?\n"
        "  las:by=tim\n"
        "         ^^^\n"
        "  hint: choose gpu-time or time"
    ),
    '{"name": "las",}': (
        "not JSON: illegal trailing comma before end of object\n"
        '  {"name": "las",}\n'
        "                ^"
    ),
}


@pytest.mark.parametrize("text", POINTED)
def test_an_error_points_at_the_character(text: str) -> None:
    with pytest.raises(WeftError) as caught:
        build("policy", text)

    if not text.startswith("{"):  # the words are Python's own, which differ between versions
        assert str(caught.value) == POINTED[text]
    else:
        assert str(caught.value).startswith("not JSON: ")
        assert text in str(caught.value)


def test_a_lone_misspelt_name_needs_no_pointer() -> None:
    with pytest.raises(UnknownName) as caught:
        build("policy", "strf")

    assert "^" not in str(caught.value)


def test_only_policies_have_wrappers() -> None:
    with pytest.raises(InvalidConfig, match="only a policy can have wrappers, not a predictor"):
        build("predictor", "firm|none")
    with pytest.raises(InvalidConfig, match="predictor 'none' has wrappers"):
        build("predictor", PartSpec("none", wrappers=(PartSpec("firm"),)))


STRUCTURED = PartSpec(
    "fifo",
    {"backfill": True},
    (PartSpec("quota", {"limits": {"a": 8.0, "b@k": 4.0}}), PartSpec("no_preempt")),
)


@pytest.mark.parametrize(
    "described",
    [
        "quota:limits=a=8/b@k=4|no_preempt|fifo:backfill=true",
        STRUCTURED,
        {
            "name": "fifo",
            "params": {"backfill": True},
            "wrappers": [{"name": "quota", "params": {"limits": {"a": 8, "b@k": 4}}}, "no_preempt"],
        },
        '{"name": "fifo", "params": {"backfill": "yes"}, "wrappers":'
        ' [{"name": "quota", "params": {"limits": "a=8/b@k=4"}}, {"name": "no_preempt"}]}',
    ],
)
def test_all_forms_describe_the_same(described: Any) -> None:
    assert read_spec("policy", described) == STRUCTURED
    assert build("policy", described) == Quota(
        NoPreempt(Fifo(backfill=True)), {"a": 8.0, "b@k": 4.0}, {}
    )


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"params": {}}, "name is None, expected a text"),
        ({"name": "las", "parms": {}}, "a part has no field 'parms'"),
        ({"name": "las", "params": []}, "params is .*, expected fields"),
        ({"name": "las", "params": {"by": 3}}, "policy 'las': by=3 is not one of its choices"),
        ({"name": "las", "params": {"quantum": True}}, "quantum=True is not a number"),
        ({"name": "las", "params": {"quantum": 10**400}}, "is not a number"),
        ({"name": "las", "params": {"thresholds": 3}}, "thresholds=3 is not numbers"),
        ({"name": "las", "params": {"quantm": 3}}, "no parameter 'quantm'; did you mean 'quantum'"),
        ({"name": "las", "wrappers": "firm"}, "wrappers is 'firm', expected a list"),
        ({"name": "las", "wrappers": [3]}, r"wrappers\[0\] is 3, expected a name or fields"),
        (
            {"name": "las", "wrappers": [{"name": "firm", "wrappers": ["quota"]}]},
            r"wrappers\[0\].wrappers is .*, expected nothing",
        ),
        (3, "a part is 3, expected a name or fields"),
    ],
)
def test_a_wrong_structure_is_answered_by_its_field(described: Any, expected: str) -> None:
    with pytest.raises(InvalidConfig, match=expected):
        read_spec("policy", described)


def test_logs_hold_the_structured_form_and_old_ones_are_read() -> None:
    event = PolicyChanged(STRUCTURED)

    line = event_line(1.0, event)

    assert json.loads(line)["policy"] == {
        "name": "fifo",
        "params": {"backfill": True},
        "wrappers": [
            {"name": "quota", "params": {"limits": {"a": 8.0, "b@k": 4.0}}},
            {"name": "no_preempt"},
        ],
    }
    assert read_event(line) == (1.0, event)
    old = "quota:limits=a=8/b@k=4|firm|fifo:backfill=1"
    _, read = read_event(json.dumps({"at": 1.0, "event": "PolicyChanged", "policy": old}))
    assert isinstance(read, PolicyChanged)
    assert read_spec("policy", read.policy) == STRUCTURED


def test_wrappers_are_known_by_the_names_that_they_had_before() -> None:
    now = read_spec("policy", "skip_failing|no_preempt|srtf")

    assert read_spec("policy", "spare|firm|srtf") == now
    assert read_spec("policy", {"name": "srtf", "wrappers": ["spare", {"name": "firm"}]}) == now
    assert build("policy", "spare|firm|srtf") == build("policy", now)
    assert PartSpec("las", wrappers=(PartSpec("firm"),)).without("no_preempt") == PartSpec("las")
    assert not {"firm", "spare"} & {*names("wrapper")}


def test_a_log_with_a_part_that_is_gone_is_read() -> None:
    _, event = read_event('{"at":1.0,"event":"PolicyChanged","policy":"gone:x=3|mine:y=a/b"}')

    assert event == PolicyChanged(PartSpec("mine", {"y": "a/b"}, (PartSpec("gone", {"x": "3"}),)))


def test_outer_wrappers_go_on_and_off() -> None:
    inner = PartSpec("las", wrappers=(PartSpec("mine"), PartSpec("no_preempt")))

    around = inner.inside(PartSpec("quota"), PartSpec("priority"))

    assert around.text == "quota|priority|mine|no_preempt|las"
    assert around.without("quota", "priority", "no_preempt") == inner
    assert inner.without("mine", "no_preempt") == PartSpec("las")


# ---- round trips over every part there is, with any parameters


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Any value of a parameter's type."""
    if get_origin(wanted) is Literal:
        return st.sampled_from(get_args(wanted))
    return VALUES[str(wanted)]


TEXTS = st.text(max_size=12) | st.text(alphabet='ab",|/=: \\', max_size=8)
INTS, FLOATS = st.integers(), st.floats(allow_nan=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    str(bool): st.booleans(),
    str(Mapping[str, str]): st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3),
    str(int): INTS,
    str(float): FLOATS,
    str(str): TEXTS,
    str(int | None): st.none() | INTS,
    str(float | None): st.none() | FLOATS,
    str(tuple[float, ...]): st.lists(FLOATS, max_size=4).map(tuple),
    str(tuple[str, ...]): st.lists(TEXTS, max_size=4).map(tuple),
    str(Mapping[str, float]): st.dictionaries(TEXTS, FLOATS, max_size=4),
}


def params_of(part: type) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {}, optional={key: values(wanted) for key, (wanted, _) in parameters(part).items()}
    )


def specs(kind: str) -> st.SearchStrategy[PartSpec]:
    """Any spec of any registered part; policies with any wrappers."""
    parts = {n: find(kind, n) for n in names(kind)}
    bare = st.one_of(
        *(
            st.builds(PartSpec, st.just(name), params_of(part))
            for name, part in parts.items()
            if is_dataclass(part) and isinstance(part, type)
        )
    )
    if kind != "policy":
        return bare
    around = st.lists(specs("wrapper"), max_size=3).map(tuple)
    return st.builds(lambda spec, more: spec.inside(*more), bare, around)


@pytest.mark.parametrize("kind", ["policy", "wrapper", "predictor", "engine", "perf"])
def test_every_part_survives_the_short_form_and_json(kind: str) -> None:
    @given(specs(kind))
    def check(spec: PartSpec) -> None:
        assert read_spec(kind, spec.text) == spec
        assert read_spec(kind, spec.text).text == spec.text
        assert read_spec(kind, json.loads(json.dumps(encode(spec)))) == spec
        assert read_spec(kind, decode(PartSpec, encode(spec))) == spec

    check()


@given(params_of(EveryType))
def test_every_type_of_parameter_survives_the_short_form(params: dict[str, Any]) -> None:
    (part,) = parse(PartSpec("part", params).text)

    known = parameters(EveryType)
    assert {
        key.text: read_word("part", key.text, value, known[key.text][0])
        for key, value in part.params
    } == params
    assert read_values("part", EveryType, json.loads(json.dumps(encode(params)))) == params


@given(st.text(max_size=30) | st.text(alphabet='ab",|/=: {}\\', max_size=15))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        parts = parse(text)
    except InvalidConfig as error:
        assert "\n" not in error.what or "^" in error.what
        return
    assert all(isinstance(part.name, Word) and part.name.text for part in parts)
    assert read_plain(read_plain(text).text) == read_plain(text)


def test_texts_by_name_are_written_and_read_back() -> None:
    windows = {"drain:n1": "~n1:0,2", "repair": "n2@5-9=blue"}
    spec = PartSpec("fifo", wrappers=(PartSpec("reserve", {"windows": windows}),))

    assert read_spec("policy", spec.text) == spec
    assert build("policy", spec.text).windows == windows
