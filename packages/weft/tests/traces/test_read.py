from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from weft.core.errors import TraceError
from weft.traces.options import DrawRequest
from weft.traces.read import find, load, workload, workloads

TEXT = "id,submit_s,num_gpus,duration_s\n" + "".join(f"j{i},{i},1,9\n" for i in range(3))
IDS = ["j0", "j1", "j2"]


def ids(path: Path) -> list[str]:
    return [job.id for job, _ in load(path)]


def tar(path: Path, mode: str, **files: str) -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            info = tarfile.TarInfo(f"folder/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_gzip_under_any_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.compress(TEXT.encode(), mtime=0))

    assert ids(path) == IDS


def test_zip_with_a_read_me_beside(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README.md", "words")
        archive.writestr("data/jobs.csv", TEXT)

    assert ids(path) == IDS


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar(tmp_path: Path, mode: str) -> None:
    assert ids(tar(tmp_path / "trace", mode, jobs=TEXT, notes="words")) == IDS


def test_a_folder_of_one_format_is_one_trace(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").write_text(TEXT.replace("j", "k"))
    (tmp_path / "notes.txt").write_text("words")

    assert ids(tmp_path) == ["j0", "k0", "j1", "k1", "j2", "k2"]


def test_a_folder_of_two_formats_is_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "b.csv").write_text("job_id,submission_time,duration,num_gpu\na,5,60,64\n")

    with pytest.raises(TraceError, match=r"holds several traces: .*weft-csv.* and itp-csv"):
        load(tmp_path)


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())

    assert ids(path) == IDS


def test_repeated_ids_get_a_number(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(TEXT.replace("j1", "j0"))

    trace = load(path)

    assert [job.id for job, _ in trace] == ["j0", "j0#2", "j2"]
    assert trace.report.warnings == ("1 repeated job ids got a number",)


def test_a_file_without_a_cluster_gets_one_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,submit_s,num_gpus,duration_s\na,0,20,80\nb,100,1,80\n")

    trace = load(path)

    assert trace.cluster == "3x8:v100"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"id,submit_s,num_gpus,duration_s\n", "no jobs in the file"),
        (b"hello,world\n1,2\n", "no known trace format; it begins 'hello,world'"),
        (b"\x00\xff\x00\x01" * 100, "no known trace format"),
        (b"id,submit_s,num_gpus,duration_s\n\xff\xfe,0,1,2\n", "expected UTF-8 text"),
        (b"id,submit_s,num_gpus,duration_s\na,0,0,5\n", "no jobs left of 1 rows (1 no GPU)"),
        (gzip.compress(TEXT.encode() * 500, mtime=0)[:-60], "the file is truncated"),
        (gzip.compress(b"", mtime=0)[:9], "the file is truncated"),
        (b"PK\x03\x04 and nothing more", "damaged archive"),
        (gzip.compress(TEXT.encode(), mtime=0)[:30] + b"\x00" * 40, "damaged archive"),
    ],
)
def test_a_broken_file_is_answered(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)

    with pytest.raises(TraceError) as error:
        load(path)

    assert message in str(error.value)
    assert str(path) in error.value.what or "broken" in error.value.what
    assert error.value.hint
    assert "\n" not in error.value.what + error.value.hint


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")

    with pytest.raises(TraceError) as error:
        load(path)

    assert "philly-json" in error.value.hint
    assert "weft-csv" in error.value.hint


def test_a_name_or_a_path_finds_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(TEXT)

    drawn, read = find("tiny-20"), find(str(path))

    assert (len(drawn), len(read)) == (20, 3)


def test_a_misspelt_workload_is_suggested() -> None:
    with pytest.raises(TraceError, match="did you mean 'philly'"):
        find("phily", DrawRequest())


def test_a_format_is_not_a_workload() -> None:
    with pytest.raises(Exception, match="is a file format, not a workload"):
        workload("muri-csv")


def test_workloads_are_listed_with_their_origin() -> None:
    listed = dict(workloads())

    assert {"philly", "venus", "pai", "kalos", "gavel", "tiny-20", "scale-1m"} <= set(listed)
    assert all(about and "\n" not in about for about in listed.values())


def test_a_share_that_no_device_could_count_is_an_error_that_names_the_file_and_the_field(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit_s,num_gpus,duration_s\na,0,0.0001,60\n")

    with pytest.raises(TraceError, match=r"jobs\.csv.*share: 0\.0001"):
        load(path)


@pytest.mark.parametrize(
    "content",
    [
        "id,submit_s,num_gpus,duration_s\na,0,1,9\nb,3,x,50\nc,4,1,7.5\n",
        "name,time,application,num_replicas,batch_size\nbert-0,5.5,bert,x,384\n",
        "timestamp,duration,num_gpus,gpu_time\n2017-13-45 00:00:10,60,2,120\n",
    ],
)
def test_a_file_with_an_error_in_it_is_closed_while_the_error_is_told(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)

    with pytest.raises(TraceError) as raised:
        load(path)

    handles = Path("/proc/self/fd").iterdir()
    open_files = [handle.readlink() for handle in handles if os.path.lexists(handle)]
    assert path not in open_files
    assert raised.value


@pytest.mark.parametrize("path", ["/proc/self/mem", "/dev/zero"])
def test_a_file_that_cannot_be_read_to_its_end_is_refused_by_name(path: str) -> None:
    with pytest.raises(TraceError, match=f"^{path}: "):
        find(path)
