"""Whether a certificate and its key can be served with, said before anything is started."""

from __future__ import annotations

import ssl
from pathlib import Path

from weft.core.errors import InvalidConfig


def check_tls(cert: Path | None, key: Path | None) -> bool:
    """Whether TLS is asked for; InvalidConfig if it is and cannot be."""
    if cert is None and key is None:
        return False
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise InvalidConfig(
            f"TLS needs a certificate and its key, and there is no {missing}",
            hint="give both, or neither",
        )
    for path in (cert, key):
        if not path.is_file():
            raise InvalidConfig(f"there is no file {path} to serve TLS with")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfig(
            f"cannot serve TLS with {cert} and {key}: {error}",
            hint="both are PEM files, and the key is the certificate's own, without a passphrase",
        ) from error
    return True
