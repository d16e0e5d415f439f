"""Pairs of certificates and keys, also unusable ones: nothing asks for a password."""

from __future__ import annotations

import os
import pty
import select
import ssl
import sys
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as formats

import transom
from transom.kit.pki import KeyPair, issue_server, make_ca
from transom.kit.tls_pairs import load_certificate_files, load_certificate_pair

SOURCES = Path(transom.__file__).parent
LIMIT = 20.0


@pytest.fixture(scope="module")
def pair() -> KeyPair:
    return issue_server(make_ca("test"), "shop.example", ["shop.example"], [])


@pytest.fixture(scope="module")
def encrypted(pair: KeyPair) -> bytes:
    key = formats.load_pem_private_key(pair.key, None)
    hidden = formats.BestAvailableEncryption(b"secret")
    return key.private_bytes(formats.Encoding.PEM, formats.PrivateFormat.PKCS8, hidden)


def test_a_pair_is_loaded(pair: KeyPair, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate_pair(context, pair.certificate, pair.key)
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    load_certificate_files(context, tmp_path / "tls.crt", tmp_path / "tls.key")
    with pytest.raises(FileNotFoundError):
        load_certificate_files(context, tmp_path / "none")


def test_an_unusable_pair_is_an_ssl_error(pair: KeyPair, encrypted: bytes) -> None:
    other = make_ca("other").key
    for key in (encrypted, other, b"", b"\xff\x00", pair.certificate):
        with pytest.raises(ssl.SSLError):
            load_certificate_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair.certificate, key)


def test_nobody_is_asked_for_a_password_on_a_terminal(
    pair: KeyPair, encrypted: bytes, tmp_path: Path
) -> None:
    (tmp_path / "tls.pem").write_bytes(pair.certificate + b"\n" + encrypted)
    code = (
        "import ssl, sys\nfrom transom.kit.tls_pairs import load_certificate_files\n"
        "try: load_certificate_files(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), sys.argv[1])\n"
        "except ssl.SSLError: print('refused')"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", code, str(tmp_path / "tls.pem")])
    shown, end = b"", time.monotonic() + LIMIT
    while b"refused" not in shown and b"phrase" not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                break
    os.close(terminal)  # ends a process that asks
    os.waitpid(process, 0)
    assert b"refused" in shown and b"phrase" not in shown, shown


def test_no_other_module_loads_pairs() -> None:
    users = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if ".load_cert_chain(" in path.read_text()
    ]
    assert users == ["kit/tls_pairs.py"]
