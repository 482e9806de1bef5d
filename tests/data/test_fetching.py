"""Research data fetched over http and git from this machine, with all that can go wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest
from benchmarks.data import DataFile, DataSet, Repository, data_folder, data_sets, missing, need
from benchmarks.data import __main__ as command
from benchmarks.data.fetching import FetchError, Git, Https, UnreachableError, fetch

CONTENT = b"job,gpus\n" + b"".join(b"%d,%d\n" % (n, n % 8) for n in range(40_000))
PUBLIC = "traces/jobs 1,0.5.csv"
LINES = "traces/lines.csv"


@dataclass
class Server:
    """What a published repository looks like over http, and how it fails."""

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)  # bytes sent before each next reply is cut off
    ranges: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    known = Server({})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, wanted = unquote(self.path).lstrip("/"), self.headers.get("Range", "")
            known.asked.append((path, wanted))
            content = known.files.get(path)
            if content is None:
                self.send_error(404)
                return
            begin = re.fullmatch(r"bytes=(\d+)-", wanted) if known.ranges else None
            first = int(begin[1]) if begin else 0
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header(
                    "Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}"
                )
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            until = first + known.cuts.pop(0) if known.cuts else None
            self.wfile.write(content[first:until])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        known.address = f"http://127.0.0.1:{http.server_port}"
        Thread(target=http.serve_forever, daemon=True).start()
        yield known
        http.shutdown()


@pytest.fixture
def repository() -> Repository:
    return Repository("lab", "lab/artifact", "0" * 40, "MIT")


@pytest.fixture
def file(repository: Repository, server: Server) -> DataFile:
    server.files[f"{repository.address}/{repository.commit}/{PUBLIC}"] = CONTENT
    return entry("lab/jobs.csv", CONTENT, repository)


def entry(path: str, content: bytes, repository: Repository, transform: str = "copy") -> DataFile:
    digest = hashlib.sha256(content).hexdigest()
    return DataFile(path, digest, len(content), repository, PUBLIC, transform)


def https(server: Server, folder: Path) -> Https:
    return Https(folder / ".parts", server.address, pause_s=0.0)


def ignore(_: int) -> None:
    pass


# ---- over http


def test_a_file_arrives_whole_and_is_not_fetched_twice(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    counted: list[int] = []

    first = fetch(tmp_path, [file], https(server, tmp_path), counted.append)
    second = fetch(tmp_path, [file], https(server, tmp_path), ignore)

    assert first == second == []
    assert (tmp_path / file.path).read_bytes() == CONTENT
    assert len(server.asked) == 1
    assert sum(counted) == len(CONTENT)


def test_a_cut_connection_is_continued_in_the_same_run(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    server.cuts = [100_000, 50_000]
    counted: list[int] = []

    failed = fetch(tmp_path, [file], https(server, tmp_path), counted.append)

    assert failed == []
    assert (tmp_path / file.path).read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == ["", "bytes=100000-", "bytes=150000-"]
    assert sum(counted) == len(CONTENT)


def test_a_later_run_continues_where_the_first_gave_up(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    server.cuts = [100_000, 0, 0, 0]

    (failed,) = fetch(tmp_path, [file], https(server, tmp_path), ignore)

    assert f"100000 of {len(CONTENT)} bytes are here; fetch again to continue" in failed
    assert not (tmp_path / file.path).exists()
    assert fetch(tmp_path, [file], https(server, tmp_path), ignore) == []
    assert server.asked[-1][1] == "bytes=100000-"
    assert (tmp_path / file.path).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_all_again(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    server.cuts, server.ranges = [100_000], False

    assert fetch(tmp_path, [file], https(server, tmp_path), ignore) == []
    assert (tmp_path / file.path).read_bytes() == CONTENT


def test_a_wrong_digest_is_told_and_nothing_is_written(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    (name,) = server.files
    server.files[name] = CONTENT.replace(b"9", b"8")

    (failed,) = fetch(tmp_path, [file], https(server, tmp_path), ignore)

    assert "is not the file that we know" in failed
    assert file.sha256[:16] in failed
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_of_another_length_is_told(tmp_path: Path, server: Server, file: DataFile) -> None:
    (name,) = server.files
    server.files[name] = CONTENT + b"more"

    (failed,) = fetch(tmp_path, [file], https(server, tmp_path), ignore)

    assert f"{len(CONTENT) + 4} bytes, expected {len(CONTENT)}" in failed


def test_a_missing_file_is_named_and_the_others_arrive(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    gone = replace(file, path="lab/gone.csv", public_path="traces/gone.csv")

    (failed,) = fetch(tmp_path, [gone, file], https(server, tmp_path), ignore)

    assert "traces/gone.csv: 404" in failed
    assert (tmp_path / file.path).is_file()


def test_a_changed_file_of_ours_is_left_alone(
    tmp_path: Path, server: Server, file: DataFile
) -> None:
    mine = tmp_path / file.path
    mine.parent.mkdir()
    mine.write_text("my own edit")

    (failed,) = fetch(tmp_path, [file], https(server, tmp_path), ignore)

    assert "move it away and fetch again" in failed
    assert mine.read_text() == "my own edit"


def test_no_server_stops_the_run_with_one_sentence(tmp_path: Path, file: DataFile) -> None:
    nobody = Https(tmp_path / ".parts", "http://127.0.0.1:1", pause_s=0.0)

    with pytest.raises(UnreachableError, match="refused"):
        fetch(tmp_path, [file], nobody, ignore)


def test_one_published_file_makes_several_of_ours(
    tmp_path: Path, server: Server, repository: Repository
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in ("a.csv", "b.csv"):
            about = tarfile.TarInfo(name)
            about.size = len(name)
            tar.addfile(about, io.BytesIO(name.encode()))
    server.files[f"{repository.address}/{repository.commit}/{PUBLIC}"] = packed.getvalue()
    files = [
        replace(
            entry(f"lab/{name}.gz", f"{name}\n".encode(), repository, f"member {name}"),
            size=len(packed.getvalue()),
        )
        for name in ("a.csv", "b.csv")
    ]

    assert fetch(tmp_path, files, https(server, tmp_path), ignore) == []
    assert gzip.decompress((tmp_path / "lab/b.csv.gz").read_bytes()) == b"b.csv\n"
    assert all(file.is_intact(tmp_path) for file in files)
    assert len(server.asked) == 1


# ---- by git


@pytest.fixture
def published(tmp_path: Path, repository: Repository) -> Repository:
    """A repository in tmp_path/public that can be fetched by its commit."""
    place = tmp_path / "public" / repository.address
    (place / "traces").mkdir(parents=True)
    (place / PUBLIC).write_bytes(CONTENT)
    (place / LINES).write_bytes(b"a\r\nb\r\n")
    who = ("-c", "user.name=Lab", "-c", "user.email=lab@example.org")
    for step in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "Publish"]):
        subprocess.run(["git", *step], cwd=place, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, check=True, capture_output=True)
    return replace(repository, commit=head.stdout.decode().strip())


def test_git_gets_the_files_of_one_commit(tmp_path: Path, published: Repository) -> None:
    source = Git(tmp_path / ".parts", f"file://{tmp_path}/public")
    text = replace(entry("lab/lines.csv", b"a\nb\n", published, "text"), public_path=LINES)

    failed = fetch(tmp_path, [entry("lab/jobs.csv", CONTENT, published), text], source, ignore)

    assert failed == []
    assert (tmp_path / "lab/jobs.csv").read_bytes() == CONTENT
    assert (tmp_path / "lab/lines.csv").read_bytes() == b"a\nb\n"


def test_git_says_what_is_missing(tmp_path: Path, published: Repository) -> None:
    source = Git(tmp_path / ".parts", f"file://{tmp_path}/public")
    gone = replace(entry("lab/gone.csv", CONTENT, published), public_path="traces/gone.csv")
    other = replace(published, commit="f" * 40)

    (failed,) = fetch(tmp_path, [gone], source, ignore)

    assert "traces/gone.csv" in failed
    assert "does not exist" in failed
    with pytest.raises(UnreachableError, match="lab/artifact: "):
        fetch(tmp_path, [entry("lab/jobs.csv", CONTENT, other)], source, ignore)
    with pytest.raises(UnreachableError, match="nowhere/lab/artifact"):
        nowhere = Git(tmp_path / ".other", f"file://{tmp_path}/nowhere")
        fetch(tmp_path, [entry("lab/jobs.csv", CONTENT, published)], nowhere, ignore)


def test_no_git_is_told_with_the_way_around_it(
    tmp_path: Path, published: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(FetchError, match=r"git is not installed.*--by https"):
        Git(tmp_path / ".parts").read(entry("lab/jobs.csv", CONTENT, published), ignore)


# ---- the command


@pytest.fixture
def lab(
    tmp_path: Path, repository: Repository, file: DataFile, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A data folder, and one set that is known."""
    made = DataFile("lab/derived.csv", "", 10, None, "-", "derived")
    known = DataSet("lab", "lab", "Jobs", repository, "MIT", "derived.csv: by hand", (file, made))
    for module in ("benchmarks.data", "benchmarks.data.__main__"):
        monkeypatch.setattr(f"{module}.data_sets", lambda: {"lab": known})
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_command_fetches_and_then_has_nothing_left_to_do(
    lab: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "fetch lab" in missing("lab")

    codes = [command.main(["fetch", "lab", "--from", server.address]) for _ in range(2)]

    shown = capsys.readouterr().out
    assert codes == [0, 0]
    assert len(server.asked) == 1
    assert "lab: 1 of 2 files" in shown
    assert "derived.csv: by hand" in shown
    assert [path.name for path in lab.iterdir()] == ["lab"]
    assert missing("lab/jobs.csv") == ""


def test_the_command_fails_when_a_file_does(
    lab: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files.clear()

    assert command.main(["fetch", "lab", "--from", server.address]) == 1
    assert "404" in capsys.readouterr().err
    assert not (lab / "lab" / "jobs.csv").exists()


def test_the_command_lists_and_refuses_unknown_names(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["list"]) == command.main(["list", "lab"]) == 0
    shown = capsys.readouterr().out
    assert "lab/artifact; MIT" in shown
    assert f"<- {PUBLIC} (copy)" in shown
    with pytest.raises(SystemExit):
        command.main(["fetch", "labb"])
    assert "no set named labb; there are lab" in capsys.readouterr().err


def test_missing_data_is_told_with_its_origin_and_the_command(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        need("lab/jobs.csv")

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert "https://github.com/lab/artifact" in shown
    assert "`python -m benchmarks.data fetch lab`" in shown
    assert "nothing fetches derived files" in missing("lab/derived.csv")
    with pytest.raises(LookupError, match="no research data 'labb'"):
        missing("labb")


# ---- the table


def test_every_file_belongs_to_one_set_and_has_an_origin() -> None:
    sets = data_sets().values()
    paths = [file.path for data_set in sets for file in data_set.files]
    rows = (Path(command.__file__).parent / "files.tsv").read_text().splitlines()[1:]

    assert len(paths) == len(set(paths)) == len(rows)
    for data_set in sets:
        assert data_set.files
        assert data_set.licence
        assert bool(data_set.derived) == any(file.repository is None for file in data_set.files)
    sources = {file.repository for data_set in sets for file in data_set.files if file.repository}
    for source in sources | {data_set.origin for data_set in sets if data_set.origin}:
        assert re.fullmatch(r"[0-9a-f]{40}", source.commit)


@pytest.mark.data
@pytest.mark.parametrize("name", list(data_sets()))
def test_the_data_that_is_here_is_that_of_the_table(name: str) -> None:
    folder = data_folder()
    here = [file for file in data_sets()[name].files if (folder / file.path).is_file()]
    if not here:
        pytest.skip(missing(data_sets()[name].folder))

    assert [file.path for file in here if not file.is_intact(folder)] == []
