"""The address of the API server and our account there: a pod's service account, or a kubeconfig."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig
from weft.core.paths import expand

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HINT = "`kubectl config view --minify` shows what is in force; KUBECONFIG names another file"
PLUGIN_PATIENCE_S = 60.0
EARLY_S = 60.0  # a token is renewed so long before it ends
ROTATED_S = 60.0  # the kubelet replaces an account's token; it is read again after so long


@dataclass(slots=True)
class Access:
    """A server, a namespace, and what proves who we are.

    The proof is a `token`, a `token_file` that is read again from time to time, a client
    certificate in the TLS context, or `plugin`, a command that prints a token (clouds have such).
    """

    server: str
    tls: ssl.SSLContext | None
    namespace: str = "default"
    token: str = ""
    token_file: Path | None = None
    plugin: Mapping[str, Any] = field(default_factory=dict)
    _until: float = 0.0

    def bearer(self) -> str:
        """The token to send; empty where a certificate speaks for us."""
        if time.time() < self._until:
            return self.token
        if self.token_file is not None:
            self.token = _read(self.token_file, "the token").strip()
            self._until = time.time() + ROTATED_S
        elif self.plugin:
            self.token, self._until = run_plugin(self.plugin)
        return self.token


def find_access(kubeconfig: str = "", context: str = "") -> Access:
    """Find access by the named file, KUBECONFIG, a pod's service account, or ~/.kube/config."""
    if kubeconfig:
        return read_kubeconfig(expand(kubeconfig), context)
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        return read_kubeconfig(Path(named[0]), context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not context:
        return read_account()
    usual = Path.home() / ".kube" / "config"
    if usual.exists():
        return read_kubeconfig(usual, context)
    raise InvalidConfig(
        "no Kubernetes cluster is named",
        hint="set KUBECONFIG, write ~/.kube/config, or give --engine kubernetes:kubeconfig=FILE",
    )


def read_account(folder: Path = ACCOUNT, environ: Mapping[str, str] = os.environ) -> Access:
    """The access that every pod is given."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    at = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{at}:{port}",
        tls=_context(_read(folder / "ca.crt", "the certificate of the server")),
        namespace=_read(folder / "namespace", "the namespace").strip(),
        token_file=folder / "token",
    )


def read_kubeconfig(path: Path, context: str = "") -> Access:
    """One context of a kubeconfig, the current one unless named."""
    body = parse_yaml(_read(path, "a kubeconfig"), str(path))
    if not isinstance(body, dict):
        raise InvalidConfig(f"{path} is not a kubeconfig", hint=HINT)
    name = context or str(body.get("current-context") or "")
    chosen = _named(body, "contexts", "context", name, path)
    cluster = _named(body, "clusters", "cluster", str(chosen.get("cluster", "")), path)
    user = _named(body, "users", "user", str(chosen.get("user", "")), path)
    server = str(cluster.get("server", ""))
    if not server.startswith(("https://", "http://")):
        raise InvalidConfig(
            f"{path}: the server of cluster {chosen.get('cluster')!r} is {server!r}", hint=HINT
        )
    token_file = user.get("tokenFile")
    return Access(
        server=server.rstrip("/"),
        tls=_tls(path, cluster, user) if server.startswith("https://") else None,
        namespace=str(chosen.get("namespace") or "default"),
        token=str(user.get("token", "")),
        token_file=_beside(path, token_file) if token_file else None,
        plugin=user.get("exec") or {},
    )


def run_plugin(plugin: Mapping[str, Any]) -> tuple[str, float]:
    """The token that a credential plugin prints, and when it must be asked again."""
    command = [str(plugin["command"]), *map(str, plugin.get("args") or ())]
    extra = {str(variable["name"]): str(variable["value"]) for variable in plugin.get("env") or ()}
    asked: dict[str, Any] = {
        "apiVersion": plugin.get("apiVersion"),
        "kind": "ExecCredential",
        "spec": {},
    }
    env = {**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        done = subprocess.run(  # noqa: S603 - the user's own kubeconfig names it
            command, env=env, capture_output=True, text=True, timeout=PLUGIN_PATIENCE_S, check=True
        )
        status = json.loads(done.stdout)["status"]
        token, ends = str(status["token"]), status.get("expirationTimestamp")
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise InvalidConfig(f"{command[0]}: {lines[-1]}", hint="log in with it first") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise InvalidConfig(f"{command[0]} gave no token: {error}", hint=HINT) from error
    return token, (datetime.fromisoformat(ends).timestamp() - EARLY_S) if ends else float("inf")


def _named(body: Any, plural: str, single: str, name: str, path: Path) -> dict[str, Any]:
    entries = {entry["name"]: entry.get(single) or {} for entry in body.get(plural) or ()}
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise InvalidConfig(
            f"{path} has no {single} {name!r}; it has {known}",
            hint="name one with --engine kubernetes:context=NAME",
        )
    chosen: dict[str, Any] = entries[name]
    return chosen


def _tls(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    context = _context(_inline(path, cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _inline(path, user, "client-certificate")
    if certificate:
        # The ssl module reads certificates from files alone.
        with tempfile.TemporaryDirectory() as private:
            pair = Path(private) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(certificate + "\n" + _inline(path, user, "client-key"))
            context.load_cert_chain(pair)
    return context


def _context(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as error:
        raise InvalidConfig(f"the server's certificate authority: {error}", hint=HINT) from error


def _inline(path: Path, body: Mapping[str, Any], key: str) -> str:
    """The content of the file of that name, or of the kubeconfig itself."""
    if data := body.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, TypeError) as error:
            raise InvalidConfig(f"{path}: {key}-data is not base64: {error}", hint=HINT) from error
    return _read(_beside(path, body[key]), key) if body.get(key) else ""


def _beside(path: Path, name: object) -> Path:
    return path.parent / Path(str(name))


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} ({what}) cannot be read: {error}", hint=HINT) from error
