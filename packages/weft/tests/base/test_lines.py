from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base import messages as wire
from weft.base.errors import WireError
from weft.base.lines import LONGEST

numbers = st.floats(allow_nan=False)
any_message: st.SearchStrategy[wire.FromRank] = st.one_of(
    st.builds(wire.Hello, st.text(), st.integers(), st.integers(0, 99), st.integers(1, 1 << 22)),
    st.builds(wire.Report, st.dictionaries(st.text(), numbers)),
    st.builds(wire.Saved, st.integers(), st.integers(), st.text()),
    st.builds(wire.Notice, st.sampled_from(["info", "warning"]), st.text()),
    st.builds(wire.Leaving, st.sampled_from(["done", "stopped", "error"]), st.text()),
)


@given(any_message)
def test_a_message_comes_back_as_it_was_sent(message: wire.FromRank) -> None:
    line = wire.FROM_RANK.encode(message)

    assert line.count(b"\n") == 1
    assert wire.FROM_RANK.decode(line) == message


@pytest.mark.parametrize("message", [wire.Welcome(), wire.Stop(30.0), wire.Adjust(64, 3)])
def test_an_agents_message_comes_back_as_it_was_sent(message: wire.FromAgent) -> None:
    assert wire.FROM_AGENT.decode(wire.FROM_AGENT.encode(message)) == message


@given(st.lists(any_message, max_size=8), st.data())
def test_messages_survive_any_cutting_of_the_stream(
    messages: Sequence[wire.FromRank], data: st.DataObject
) -> None:
    stream = b"".join(map(wire.FROM_RANK.encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader, heard = wire.from_rank(), list[wire.FromRank]()

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        heard += reader.feed(stream[start:end])

    assert heard == list(messages)


def test_a_loss_that_is_not_a_number_is_still_json() -> None:
    line = wire.FROM_RANK.encode(wire.Report({"loss": math.nan, "noise": math.inf}))

    json.loads(line, parse_constant=pytest.fail)
    heard = wire.FROM_RANK.decode(line)

    assert isinstance(heard, wire.Report)
    assert math.isnan(heard.values["loss"])
    assert heard.values["noise"] == math.inf


def test_a_reader_ignores_what_a_newer_writer_added() -> None:
    assert wire.FROM_AGENT.decode('{"type":"sing","song":1}') is None
    assert wire.FROM_AGENT.decode('{"type":"stop","grace_s":3,"kindly":true}') == wire.Stop(3.0)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"hello\n", "not a JSON line"),
        (b"\xff\xfe{}", "not a JSON line"),
        (b"[1]", '"type"'),
        (b'{"type":7}', '"type"'),
        (b'{"type":"stop"}', "no field 'grace_s'"),
        (b'{"type":"stop","grace_s":"soon"}', "grace_s is 'soon', expected float"),
        (b'{"type":"adjust","per_gpu":1.5}', "per_gpu is 1.5, expected int"),
        (b'{"type":"adjust","per_gpu":true}', "per_gpu is True"),
    ],
)
def test_a_malformed_line_is_named(line: bytes, what: str) -> None:
    with pytest.raises(WireError, match=what.replace("(", r"\(")) as caught:
        wire.FROM_AGENT.decode(line)

    assert line.decode(errors="replace").strip()[:5] in str(caught.value)


def test_a_stream_without_lines_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(WireError, match="longer than"):
        list(wire.from_rank().feed(b"x" * (LONGEST + 1)))


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
kind_names = st.sampled_from(["hello", "report", "saved", "notice", "leaving", "unknown"])
FIELDS = ("job", "attempt", "rank", "pid", "values", "step", "epoch", "path", "level", "text")


@given(kind_names, st.dictionaries(st.sampled_from(FIELDS), plain_values))
def test_whatever_a_rank_sends_is_a_message_or_a_wire_error(
    kind: str, body: dict[str, object]
) -> None:
    line = json.dumps({"type": kind, **body})

    try:
        wire.FROM_RANK.decode(line)
    except WireError as error:
        assert len(str(error)) < 1000


@pytest.mark.parametrize("line", ["[" * 100_000, '{"type":"report","values":[1]}', "\xff", "{}"])
def test_what_is_no_message_is_a_wire_error(line: str) -> None:
    with pytest.raises(WireError):
        wire.FROM_RANK.decode(line)
