"""Client certificates that are not good: what the client hears of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transom.http import HttpResponse, server_context
from transom.kit import pki


@pytest.fixture
def authority(tmp_path: Path) -> pki.KeyPair:
    made = pki.make_ca("kubernetes")
    pki.save_key_pair(made, tmp_path / "ca.crt", tmp_path / "ca.key")
    pki.save_key_pair(
        pki.issue_server(made, "api", [], ["127.0.0.1"]), tmp_path / "api.crt", tmp_path / "api.key"
    )
    return made


def client(folder: Path, pair: pki.KeyPair) -> ssl.SSLContext:
    pki.save_key_pair(pair, folder / "me.crt", folder / "me.key")
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    context.load_cert_chain(folder / "me.crt", folder / "me.key")
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("problem", ["authority", "usage"])
def test_alert_says_why(
    serve: Callable[..., Any],
    tmp_path: Path,
    authority: pki.KeyPair,
    problem: str,
    version: ssl.TLSVersion,
) -> None:
    running = serve(
        lambda _: HttpResponse(200, []),
        context=server_context(tmp_path / "api.crt", tmp_path / "api.key", tmp_path / "ca.crt"),
    )
    if problem == "authority":
        pair, alert = (
            pki.issue_client(pki.make_ca("kubernetes"), "admin", ["system:masters"]),
            "ALERT_UNKNOWN_CA",
        )
    else:
        pair, alert = (
            pki.issue_server(authority, "admin", [], ["127.0.0.1"]),
            "ALERT_UNSUPPORTED_CERTIFICATE",
        )
    context = client(tmp_path, pair)
    context.maximum_version = version
    with pytest.raises(ssl.SSLError) as refused:
        running.connect(context).get().answer()
    assert refused.value.reason.endswith(alert)


def test_time_is_left_to_authentication(
    serve: Callable[..., Any], tmp_path: Path, authority: pki.KeyPair
) -> None:
    running = serve(
        lambda r: HttpResponse(200, [], repr(r.peer).encode()),
        context=server_context(tmp_path / "api.crt", tmp_path / "api.key", tmp_path / "ca.crt"),
    )
    yesterday = time.time() - 2 * 86400
    pair = pki.issue_client(authority, "jane", ["dev"], days=1, now=yesterday)
    answer = running.connect(client(tmp_path, pair)).get().answer()[2].decode()
    assert answer.startswith("PeerCertificate(cn='jane', organizations=['dev'], ")
    assert f"not_after={float(int(yesterday + 86400))}" in answer
