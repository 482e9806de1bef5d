"""HTTPS with a certificate of one's own, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.serving import STILL, Running
from weft.app.serve.live import Settings
from weft.cli.connect.client import ServiceClient, Untrusted
from weft.core.errors import InvalidConfig
from weft.service.main import create_app
from weft.service.responses.answers import JobList

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl: apt-get install openssl"
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=weft", "-addext", names]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return cert, key


def test_commands_talk_to_a_service_whose_certificate_they_are_told_to_trust(
    signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Running(Settings(STILL, port=0, tls_cert=signed[0], tls_key=signed[1]))
    address = service.begin()

    assert address.startswith("https://127.0.0.1:")
    with pytest.raises(Untrusted, match="is not trusted"):
        ServiceClient(address).get(JobList, "/jobs")
    monkeypatch.setenv("WEFT_CA", str(signed[0]))
    assert ServiceClient(address).get(JobList, "/jobs").jobs == []
    monkeypatch.delenv("WEFT_CA")
    command = [sys.executable, "-m", "weft", "--ca", str(signed[0]), "jobs"]
    done = subprocess.run(command, env={"WEFT_URL": address}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    plain = ServiceClient(address.replace("https", "http"))
    with pytest.raises(InvalidConfig, match="no service answers"):
        plain.get(JobList, "/jobs")
    service.end()


def test_a_certificate_file_that_holds_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    monkeypatch.setenv("WEFT_CA", str(tmp_path / "ca.pem"))

    with pytest.raises(InvalidConfig, match=r"WEFT_CA is .*ca\.pem"):
        ServiceClient("https://127.0.0.1:1")


def test_what_cannot_be_served_with_is_said_at_the_start(
    signed: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = signed
    other = tmp_path / "other.pem"
    command = ["openssl", "genrsa", "-out", str(other), "2048"]
    subprocess.run(command, check=True, capture_output=True)

    for wrong, message in (
        (Settings(STILL, tls_cert=cert), "there is no --tls-key"),
        (Settings(STILL, tls_key=key), "there is no --tls-cert"),
        (Settings(STILL, tls_cert=cert, tls_key=tmp_path / "gone"), "there is no file"),
        (Settings(STILL, tls_cert=cert, tls_key=other), "cannot serve TLS"),
    ):
        with pytest.raises(InvalidConfig, match=message):
            create_app(wrong)
