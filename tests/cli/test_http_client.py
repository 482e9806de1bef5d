from __future__ import annotations

import pytest

from tests.cli.stand_in import stand_in
from weft.cli.connect.client import RequestRefused, ServiceClient, ServiceUnreachable
from weft.core.errors import EngineError, InvalidConfig
from weft.service.responses.answers import JobList, Made, Nodes
from weft_client.connection import at


def test_it_reads_address_and_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in({"GET /nodes": (200, {"nodes": []})}) as service:
        monkeypatch.setenv("WEFT_URL", service.url + "/")
        monkeypatch.setenv("WEFT_TOKEN", "secret")

        answer = ServiceClient().get(Nodes, "/nodes", state=None, limit=3)

    assert answer == Nodes(nodes=[])
    assert service.asked[0].token == "Bearer secret"
    assert service.asked[0].query == {"limit": "3"}


def test_where_nobody_answers_the_hint_is_to_start_a_service() -> None:
    with pytest.raises(
        ServiceUnreachable, match=r"no service answers at http://127.0.0.1:1"
    ) as raised:
        ServiceClient("http://127.0.0.1:1").get(JobList, "/jobs")

    assert "`weft serve`" in raised.value.hint
    assert not ServiceClient("http://127.0.0.1:1").healthy()


def test_who_needs_a_token_is_told_of_a_variable_and_not_of_headers() -> None:
    problem = {"error": "a token is needed", "hint": "send `Authorization: Bearer TOKEN`"}
    with (
        stand_in({"GET /jobs": (401, problem)}) as service,
        pytest.raises(RequestRefused, match="a token is needed") as raised,
    ):
        ServiceClient(service.url, "").get(JobList, "/jobs", tenant="vision")

    assert raised.value.hint.startswith("set WEFT_TOKEN")


@pytest.mark.parametrize(
    ("status", "hint"), [(401, "set WEFT_TOKEN"), (403, "may not do this"), (429, "in a moment")]
)
def test_a_refusal_without_a_hint_gets_one(status: int, hint: str) -> None:
    with (
        stand_in({"GET /jobs": (status, {"error": "no"})}) as service,
        pytest.raises(RequestRefused, match="no") as raised,
    ):
        ServiceClient(service.url, "").get(JobList, "/jobs")

    assert raised.value.status == status
    assert hint in raised.value.hint


@pytest.mark.parametrize(("status", "says"), [(404, "not found"), (405, "method not allowed")])
def test_what_an_older_service_has_not_is_named(status: int, says: str) -> None:
    with (
        stand_in({"GET /jobs/a/metrics": (status, {"error": says})}) as service,
        pytest.raises(
            RequestRefused, match=rf"{service.url} knows no GET /jobs/a/metrics"
        ) as raised,
    ):
        ServiceClient(service.url, "").get(JobList, "/jobs/a/metrics")

    assert (raised.value.status, "upgrade the older" in raised.value.hint) == (status, True)


def test_a_wrong_field_is_named_with_the_closest_one() -> None:
    problem = {
        "error": "unknown field; did you mean 'gpus'?",
        "hint": "fields: ...",
        "field": "gpu",
    }
    with (
        stand_in({"POST /jobs": (422, problem)}) as service,
        pytest.raises(RequestRefused, match="gpu: unknown field") as raised,
    ):
        ServiceClient(service.url, "").post(Made, "/jobs", {"gpu": 1})

    assert raised.value.field == "gpu"
    assert raised.value.hint == "fields: ..."
    assert service.asked[0].body == {"gpu": 1}


def test_a_fault_of_the_service_is_not_the_users() -> None:
    with (
        stand_in({"GET /jobs": (500, b"boom")}) as service,
        pytest.raises(EngineError, match="500: boom"),
    ):
        ServiceClient(service.url, "").get(JobList, "/jobs")


def test_what_answers_must_be_weft() -> None:
    with (
        stand_in({"GET /jobs": (200, b"<html>")}) as service,
        pytest.raises(EngineError, match="is not Weft"),
    ):
        ServiceClient(service.url, "").get(JobList, "/jobs")


@pytest.mark.parametrize("url", ["localhost:7878", "ftp://x", "file:///etc/passwd", "http://"])
def test_an_address_must_be_one(url: str) -> None:
    with pytest.raises(InvalidConfig, match="not the address of a service"):
        ServiceClient(url)


def test_ids_with_odd_characters_stay_one_part_of_the_path() -> None:
    assert at("jobs", "../a b?c", "logs") == "/jobs/..%2Fa%20b%3Fc/logs"


@pytest.mark.parametrize("status", [429, 503], ids=["too often", "while it closes"])
def test_who_is_told_to_ask_later_waits_and_asks_again(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("weft_client.connection.time.sleep", slept.append)
    answers = {"GET /nodes": [(status, {"error": "not now"}), (200, {"nodes": []})]}

    with stand_in(answers) as service:
        service.retry_after = "2"
        answer = ServiceClient(service.url, "").get(Nodes, "/nodes")

    assert answer == Nodes(nodes=[])
    assert slept == [2.0]


def test_a_long_wait_is_left_to_the_person() -> None:
    with (
        stand_in({"GET /nodes": (429, {"error": "too many jobs"})}) as service,
        pytest.raises(RequestRefused, match="too many jobs"),
    ):
        service.retry_after = "60"
        ServiceClient(service.url, "").get(Nodes, "/nodes")
