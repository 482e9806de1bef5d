"""Allocations of device memory that wait, with a stand-in for the CUDA runtime and driver."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stand_in_cuda import GLIBC, Program, StandIn, build
from tests.waiting import LIMIT_S, wait_until
from weft.engines.attempts.job_folders import mark_of
from weft.node.memory.book import LONELY_S
from weft.wire.attempt import folder_of
from weft.wire.memory_waits import read_guarded, read_waits

pytestmark = GLIBC
KINDS = ("malloc", "async", "pool", "torch", "driver", "by-thread", "looked-up", "create")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def cuda(tmp_path: Path, library: Path) -> Iterator[StandIn]:
    stand_in = StandIn(tmp_path, library)
    try:
        stand_in.open_book()
        yield stand_in
    finally:
        stand_in.end()


def waits_of(cuda: StandIn) -> dict[str, float]:
    return {wait.job: wait.gb for wait in read_waits(cuda.folder)}


def until_waits(cuda: StandIn, *jobs: str) -> None:
    wait_until(lambda: set(jobs) <= waits_of(cuda).keys(), f"{', '.join(jobs)} wait")


@pytest.mark.parametrize("kind", KINDS)
def test_an_allocation_that_does_not_fit_waits_until_it_does(cuda: StandIn, kind: str) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    slot = first.ask(f"{kind} 700")
    second.send(f"{kind} 500")
    until_waits(cuda, "second")
    [wait] = read_waits(cuda.folder)

    assert not second.has_answered()
    assert wait.held == {"first": pytest.approx(0.734)}
    assert first.ask(f"free {slot}") == "0"
    assert second.answer() == "1"
    assert second.ask("error 0") == "0"


def test_a_process_waits_for_the_memory_of_its_context(cuda: StandIn) -> None:
    first, second, plain = cuda.start("first"), cuda.start("second"), cuda.start("p", guarded=False)
    slot = first.ask("malloc 995")
    second.send("context 0")
    until_waits(cuda, "second")

    assert plain.ask("context 0") == "error 2"
    assert first.ask(f"free {slot}") == "0"
    assert second.answer() == "1"


def test_the_reserve_is_for_contexts(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 980")
    second.send("context 0")

    assert second.answer() == "1"


def test_what_it_held_is_free_once_a_process_is_killed(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")

    first.end()

    assert second.answer() == "1"


def test_a_request_that_can_never_fit_is_refused_at_once(cuda: StandIn) -> None:
    only = cuda.start("only")
    only.ask("malloc 600")

    assert only.ask("malloc 500") == "error 2"
    assert only.ask("error 0") == "2"
    assert only.ask("malloc 1200") == "error 2"


def test_the_allocator_of_torch_frees_its_cache_before_it_waits(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 300")
    slot = second.ask("torch 600")
    second.ask(f"cache {slot}")

    assert second.ask("torch 650") == "2"


def test_waiting_does_not_burn_a_core(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")
    before = second.cpu_s()
    began = os.times().elapsed
    wait_until(lambda: os.times().elapsed - began > 2.0, "two seconds pass")

    assert second.cpu_s() - before < 1.0


def test_without_a_book_everything_is_as_ever(cuda: StandIn) -> None:
    cuda.close_book()
    first, second = cuda.start("first"), cuda.start("second")

    assert first.ask("malloc 700") == "1"
    assert second.ask("malloc 500") == "error 2"


def test_a_book_that_dies_leaves_none_waiting(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")

    cuda.close_book()

    assert second.answer() == "error 2"


def test_another_book_takes_the_place_of_one_that_died(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    slot = first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")

    cuda.replace_book()
    first.ask(f"free {slot}")

    assert second.answer() == "1"


def test_a_forked_child_counts_from_zero(cuda: StandIn) -> None:
    parent, other = cuda.start("parent"), cuda.start("other")
    parent.ask("malloc 600")
    assert parent.ask("fork") == "0"
    parent.ask("malloc 200")
    other.send("malloc 400")
    until_waits(cuda, "other")
    [wait] = read_waits(cuda.folder)

    assert wait.held == {"parent": pytest.approx(0.839)}


@pytest.mark.parametrize("ways", [("exec",), ("fork", "exec"), ("fork", "fork"), ("exec", "exec")])
def test_children_and_new_images_of_a_program_wait_as_it_does(
    cuda: StandIn, ways: tuple[str, ...]
) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    slot = first.ask("malloc 700")
    for way in ways:
        assert second.ask(way) == "0"
    second.send("malloc 500")
    until_waits(cuda, "second")

    assert first.ask(f"free {slot}") == "0"
    assert second.answer() == "1"


def test_what_a_program_held_before_its_new_image_is_free(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")

    assert first.ask("exec") == "0"
    assert first.ask("malloc 1") == "1"

    assert second.answer() == "1"


def test_a_program_that_drops_the_library_is_known_not_to_be_guarded(cuda: StandIn) -> None:
    """Also one that is linked statically: nothing is loaded into it."""
    first, second = cuda.start("first"), cuda.start("second")
    assert second.ask("clean") == "0"
    first.ask("malloc 700")

    assert second.ask("malloc 500") == "error 2"
    wait_until(lambda: read_guarded(cuda.folder) == {("first", 1)}, "the book knows the first")


def test_a_book_remembers_who_was_guarded_before_it(cuda: StandIn) -> None:
    first = cuda.start("first")
    first.ask("malloc 700")
    mark_of(cuda.folder, folder_of(cuda.folder, "first", 1)).parent.mkdir()
    mark_of(cuda.folder, folder_of(cuda.folder, "first", 1)).touch()
    wait_until(lambda: read_guarded(cuda.folder) == {("first", 1)}, "the book knows it")

    cuda.replace_book()
    other = cuda.start("other")
    other.ask("malloc 100")

    both = {("first", 1), ("other", 1)}
    wait_until(lambda: read_guarded(cuda.folder) == both, "another book knows it, too")


def test_a_program_that_is_not_guarded_shares_the_device_as_ever(cuda: StandIn) -> None:
    first, second = cuda.start("first", guarded=False), cuda.start("second")
    slot = first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")

    assert first.ask("malloc 500") == "error 2"
    first.ask(f"free {slot}")
    assert second.answer() == "1"


def test_the_first_call_of_a_program_may_be_the_one_that_waits(cuda: StandIn) -> None:
    """The driver is not loaded before that call: the device has no name yet."""
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 1")
    slot = first.ask("malloc 700")
    second.send("malloc 500")
    until_waits(cuda, "second")
    [wait] = read_waits(cuda.folder)

    assert wait.held == {"first": pytest.approx(0.735, abs=0.01)}
    assert first.ask(f"free {slot}") == "0"
    assert second.answer() == "1"
    assert wait.since > time.time() - LONELY_S


def test_of_those_that_wait_for_each_other_one_is_refused(cuda: StandIn) -> None:
    first, second = cuda.start("first"), cuda.start("second")
    first.ask("malloc 450")
    second.ask("malloc 450")

    first.send("malloc 400")
    second.send("malloc 400")

    assert second.answer() == "error 2"
    assert not first.has_answered()
    second.end()
    assert first.answer() == "2"


def test_one_that_stands_still_keeps_no_other_from_memory(cuda: StandIn) -> None:
    first, frozen, third = cuda.start("first"), cuda.start("frozen"), cuda.start("third")
    slot = first.ask("malloc 900")
    frozen.send("malloc 600")
    until_waits(cuda, "frozen")
    os.kill(frozen.pid, signal.SIGSTOP)
    third.send("malloc 300")
    until_waits(cuda, "third")

    first.ask(f"free {slot}")

    assert third.answer() == "1"
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.answer() == "1"


def test_a_static_address_of_another_library_is_still_the_callers(cuda: StandIn) -> None:
    """RTLD_NEXT is asked from the caller's place, although the guard stands in front of dlsym."""
    source = cuda.folder / "next.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n"
        "int cudaMalloc(void **at, unsigned long size) {\n"
        '    int (*next)(void **, unsigned long) = dlsym(RTLD_NEXT, "cudaMalloc");\n'
        '    fprintf(stderr, "next\\n");\n    return next(at, size);\n}\n'
    )
    library = cuda.folder / "next.so"
    os.system(f"cc -shared -fPIC {source} -o {library} -ldl")
    program = cuda.start("both", LD_PRELOAD=f"{cuda.library}:{library}")

    assert program.ask("malloc 100") == "1"


def test_a_book_ends_once_its_engine_and_all_jobs_are_gone(cuda: StandIn) -> None:
    """As after kill -9 of a service: nothing tells the book, whose record grows old."""
    cuda.close_book()
    record = cuda.folder / "record.json"
    command = [sys.executable, "-m", "weft.node.memory", str(cuda.socket), "--alone-s", "1"]
    command += ["--state", str(cuda.folder), "--record", str(record)]
    with subprocess.Popen(command) as book:
        wait_until(cuda.socket.is_socket, "the book listens")
        program = cuda.start("job")
        assert program.ask("malloc 100") == "1"
        record.unlink()
        with pytest.raises(subprocess.TimeoutExpired):
            book.wait(4.0)  # a job is there

        program.end()

        assert book.wait(LIMIT_S) == 0
        assert not cuda.socket.exists()


@pytest.mark.parametrize("seed", range(2))
def test_random_programs_all_come_to_their_end(cuda: StandIn, seed: int) -> None:
    """Kills, freezes and a lost book among them; none waits for memory that is free."""
    draw = random.Random(seed)
    programs = [cuda.start(f"job-{number}") for number in range(6)]
    slots: dict[Program, list[str]] = {program: [] for program in programs}
    busy: set[Program] = set()
    for _ in range(100):
        program = draw.choice(programs)
        if program in busy and not program.has_answered():
            chance = draw.random()
            if chance < 0.05:
                program.end()
                busy.discard(program)
                programs[programs.index(program)] = fresh = cuda.start(program.job)
                slots[fresh] = []
            elif chance < 0.1:
                os.kill(program.pid, signal.SIGSTOP)
                os.kill(program.pid, signal.SIGCONT)
            elif chance < 0.12:
                cuda.close_book()
                cuda.open_book()
            continue
        if program in busy:
            take_answer(program, slots, busy)
        if slots[program] and draw.random() < 0.5:
            assert program.ask(f"free {slots[program].pop()}") == "0"
        else:
            program.send(f"{draw.choice(KINDS)} {draw.choice((1, 50, 200, 400))}")
            busy.add(program)
    for program in programs:  # those that do not wait give all back, so all others get theirs
        end_all(program, programs, slots, busy)

    assert cuda.held() == 0


def take_answer(program: Program, slots: dict[Program, list[str]], busy: set[Program]) -> None:
    answer = program.answer()
    busy.discard(program)
    if not answer.startswith("error"):
        slots[program].append(answer)


def end_all(
    program: Program, programs: list[Program], slots: dict[Program, list[str]], busy: set[Program]
) -> None:
    """Free everything, of the others too, until this one has its answer and has freed it."""

    def free_idle() -> bool:
        for other in programs:
            if other in busy and other.has_answered():
                take_answer(other, slots, busy)
            while other not in busy and slots[other]:
                assert other.ask(f"free {slots[other].pop()}") == "0"
        return program not in busy

    wait_until(free_idle, f"{program.job} ends")
