"""Flags of the API server that envtest starts."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from transom.cluster.envtest.etcd import MARKER, EtcdStandIn
from transom.cluster.envtest.flags import parse_go_flags
from transom.cluster.envtest.serving import (
    data_folder,
    read_account_key,
    read_tokens,
    serve_envtest_api_server,
    uid_headers,
)
from transom.kit.pki import make_ca
from transom.kit.user_errors import UserError
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet


def test_uid_headers_need_their_feature_gate() -> None:
    names = ("X-Id", "x-remote-uid")
    assert uid_headers(names, FeatureSet(parse_release("1.33"))) == names
    enabled = {"RemoteRequestHeaderUID": True}
    assert uid_headers(names, FeatureSet(parse_release("1.32"), enabled)) == names
    assert uid_headers((), FeatureSet(parse_release("1.20"))) == ()
    for release in ("1.20", "1.31", "1.32"):
        with pytest.raises(UserError, match='requires the "RemoteRequestHeaderUID" feature'):
            uid_headers(names, FeatureSet(parse_release(release)))


def test_uid_headers_include_the_standard_one() -> None:
    with pytest.raises(UserError, match="without specifying the standard X-Remote-Uid header"):
        uid_headers(("X-Id",), FeatureSet(parse_release("1.33")))


def test_keys_of_service_accounts() -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert read_account_key(pem) == public
    assert read_account_key(public) == public


def test_only_a_marked_folder_of_this_account_holds_objects(tmp_path: Path) -> None:
    """Another server could name the folder of a cluster."""
    answer = str(tmp_path).encode()
    with pytest.raises(UserError, match="not the etcd of transom envtest"):
        data_folder(answer, "http://e:1")
    (tmp_path / MARKER).symlink_to("/dev/null")
    with pytest.raises(UserError, match="not the etcd of transom envtest"):
        data_folder(answer, "http://e:1")
    (tmp_path / MARKER).unlink()
    (tmp_path / MARKER).touch()
    assert data_folder(answer, "http://e:1") == tmp_path
    for odd in (b"", b"\0", b"/" * 5000, b"\xff\xfe"):
        with pytest.raises(UserError, match="not the etcd of transom envtest"):
            data_folder(odd, "http://e:1")


@contextmanager
def web_server(
    status: int, headers: dict[str, str], body: bytes
) -> Iterator[tuple[int, list[str]]]:
    requested: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, requested
    server.shutdown()
    thread.join()
    server.server_close()


def start(*flags: str) -> None:
    serve_envtest_api_server(parse_go_flags(flags), "1.36")


def certificate(folder: Path) -> str:
    """A serving certificate in a folder."""
    made = make_ca("ca")
    (folder / "apiserver.crt").write_bytes(made.certificate)
    (folder / "apiserver.key").write_bytes(made.key)
    return f"--cert-dir={folder}"


def test_a_proxy_is_not_asked_for_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        web_server(200, {}, b"/") as (proxy, requested),
        web_server(200, {}, b"/") as (etcd, direct),
    ):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(UserError, match="not the etcd of transom envtest"):
            start(
                certificate(tmp_path),
                "--secure-port=0",
                f"--etcd-servers=http://127.0.0.1:{etcd}",
            )
    assert (requested, direct) == ([], ["/transom/data-dir"])


BAD: list[tuple[str, str]] = [
    ("secure-port", "x"),
    ("secure-port", "99999"),
    ("service-node-port-range", "9-1"),
    ("service-node-port-range", "a-b"),
    ("service-cluster-ip-range", "10.0.0.0/31"),
    ("service-cluster-ip-range", "x"),
    ("token-auth-file", "JUNK"),
    ("service-account-key-file", "JUNK"),
    ("service-account-signing-key-file", "JUNK"),
    ("requestheader-client-ca-file", "JUNK"),
    ("anonymous-auth", "perhaps"),
    ("etcd-servers", "http://127.0.0.1:x"),
    ("etcd-servers", "file:///etc"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_wrong_values_name_their_flag(name: str, value: str, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"\xff,\n")
    flags = {
        "secure-port": "0",
        "etcd-servers": "http://127.0.0.1:1",
        name: value.replace("JUNK", str(junk)),
    }
    words = [f"--{flag}={text}" for flag, text in flags.items()]
    with pytest.raises(UserError, match=f'for "--{name}" flag: '):
        start(certificate(tmp_path), *words)


def test_token_files(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text('\n,empty,u\ntok,ann,1,"a, b"\nother,bob,2\n')
    found = read_tokens(str(file))
    assert {token: (user.name, user.uid) for token, user in found.items()} == {
        "tok": ("ann", "1"),
        "other": ("bob", "2"),
    }
    assert found["tok"].groups == ("a", "b", "system:authenticated")
    file.write_text("tok,ann\n")
    with pytest.raises(ValueError, match="at least 3 columns"):
        read_tokens(str(file))


async def test_a_slow_client_of_etcd_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.cluster.envtest.etcd._SECONDS", 0.0)
    server = await asyncio.start_server(EtcdStandIn(Path("/d")).answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"GET / HT")
    assert await reader.read() == b""
    writer.close()
    server.close()
