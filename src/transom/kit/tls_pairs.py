"""Loads certificates with their keys into TLS contexts: the only place that does.

OpenSSL asks for the password of an encrypted key on the terminal, or on standard input, and blocks
the whole process meanwhile. Secrets and kubeconfigs of users can contain such keys: here they are
errors.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def load_certificate_files(
    context: ssl.SSLContext, certificate: str | Path, key: str | Path | None = None
) -> None:
    """Raises ssl.SSLError if they cannot be used, and other OSErrors for the files. Without `key`,
    the first file has both.
    """
    context.load_cert_chain(certificate, key, password=_no_password)


def load_certificate_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """A pair from memory. Raises ssl.SSLError if it cannot be used."""
    with tempfile.NamedTemporaryFile(
        prefix="transom-"
    ) as pem:  # OpenSSL reads keys from files only
        pem.write(certificate + b"\n" + key)
        pem.flush()
        load_certificate_files(context, pem.name)


def _no_password() -> bytes:
    return b""
