"""The API server that envtest starts, from its flags: certificates and keys of the suite, objects in
the data directory of the `etcd` beside it or in a real etcd.
"""

from __future__ import annotations

import asyncio
import csv
import http.client
import ipaddress
import logging
import os
import signal
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from transom.apiserver.core.access_options import AccessOptions
from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.cluster.envtest.etcd import DATA_DIR_PATH, MARKER
from transom.cluster.envtest.flags import GoFlags
from transom.cluster.options import parse_feature_gates, parse_runtime_config
from transom.http import HttpServer, server_context
from transom.http.server import listen_sockets
from transom.kit import logs
from transom.kit.lazy import lazy_import
from transom.kit.process import run_event_loop
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.serviceaccounts import DEFAULT_ISSUER
from transom.node.settings import RELEASES
from transom.store.api import Store
from transom.store.sealing import NOTHING
from transom.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from transom.cluster.data import etcd_store
    from transom.store.etcd import client as etcd_client
else:
    etcd_store = lazy_import("transom.cluster.data.etcd_store")
    etcd_client = lazy_import("transom.store.etcd.client")

log = logging.getLogger("transom.cluster")

_STOP_SECONDS = 2.0
_ETCD_SECONDS = 5.0
_LONGEST_PATH = 4096
_MAX_PORT = 65535
_SMALLEST_RANGE = 8
_UID_GATE = "RemoteRequestHeaderUID"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY = b"PRIVATE KEY-----"
_COLUMNS = 3  # the columns of a token file before the groups

T = TypeVar("T")


def serve_envtest_api_server(flags: GoFlags, release: str) -> None:
    """Serves until SIGTERM or SIGINT."""
    logs.set_up_logging()
    chosen = release or list(RELEASES)[-1]
    if chosen not in RELEASES:
        raise UserError(f"unknown release {chosen!r}", f"choose one of {', '.join(RELEASES)}")
    run_event_loop(_serve(flags, chosen))


async def _serve(flags: GoFlags, release: str) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    bind, port = flags.get("bind-address", "0.0.0.0"), _parse(flags, "secure-port", "6443", _port)
    client_ca = flags.get("client-ca-file")
    certificate, key = _serving_pair(flags)
    context = server_context(certificate, key, Path(client_ca) if client_ca else None)
    sockets = listen_sockets([bind], port)
    signing_key = _parse(flags, "service-account-signing-key-file", "", _read_signing_key)
    gates = parse_feature_gates(flags.words("feature-gates"), release)
    api = build_api_server(
        ServerOptions(
            address=f"{bind}:{port}",
            release=release,
            service_cidr=_parse(flags, "service-cluster-ip-range", "10.0.0.0/24", _service_range),
            node_ports=_parse(flags, "service-node-port-range", "30000-32767", _port_range),
            tokens=_parse(flags, "token-auth-file", "", read_tokens),
            service_account_key=signing_key,
            service_account_keys=[
                _parse_value("service-account-key-file", path, _read_account_key)
                for path in flags.words("service-account-key-file")
            ],
            issuer=flags.get("service-account-issuer", DEFAULT_ISSUER),
            api_audiences=flags.words("api-audiences"),
            ca=_read(client_ca),
            front_proxy_ca=_parse(flags, "requestheader-client-ca-file", "", _read_authority),
            uid_headers=uid_headers(
                flags.words("requestheader-uid-headers"), FeatureSet(parse_release(release), gates)
            ),
            feature_gates=gates,
            runtime_config=parse_runtime_config(flags.words("runtime-config")),
            disabled_admission=frozenset(flags.words("disable-admission-plugins")),
            access=AccessOptions(anonymous=_parse(flags, "anonymous-auth", "true", _boolean)),
            store=_find_store(flags, release),
        )
    )
    await api.start()
    server = HttpServer(api.handler, context, bodies=api.handler)
    await server.serve(sockets)
    log.info("serving Kubernetes %s on https://%s:%d for envtest", RELEASES[release], bind, port)
    await stopping.wait()
    await server.stop(_STOP_SECONDS)
    await api.stop()


def uid_headers(names: Sequence[str], features: FeatureSet) -> Sequence[str]:
    """Checks --requestheader-uid-headers as kube-apiserver does."""
    if not names:
        return names
    if not features.enabled(_UID_GATE):
        raise UserError(
            f'--requestheader-uid-headers requires the "{_UID_GATE}" feature to be enabled',
            f"set --feature-gates={_UID_GATE}=true, in 1.32 or a later release",
            EXIT_USAGE,
        )
    if "x-remote-uid" not in [name.lower() for name in names]:
        raise UserError(
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid "
            "header - API aggregation will not work",
            "add X-Remote-Uid",
            EXIT_USAGE,
        )
    return names


def _serving_pair(flags: GoFlags) -> tuple[Path, Path]:
    if "tls-cert-file" in flags:
        return Path(flags.get("tls-cert-file")), Path(flags.get("tls-private-key-file"))
    folder = Path(flags.get("cert-dir", "/var/run/kubernetes"))
    certificate, key = folder / "apiserver.crt", folder / "apiserver.key"
    if not certificate.exists():
        raise UserError(
            f"there is no serving certificate {certificate}",
            "set --cert-dir, or --tls-cert-file and --tls-private-key-file",
            EXIT_USAGE,
        )
    return certificate, key


def _find_store(flags: GoFlags, release: str) -> Store:
    servers = flags.words("etcd-servers")
    if not servers:
        raise UserError("--etcd-servers must be specified", "start etcd first", EXIT_USAGE)
    address = _parse_value("etcd-servers", servers[0], _etcd_address)
    # No proxy: etcd is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{DATA_DIR_PATH}", timeout=_ETCD_SECONDS) as answer:
            folder = data_folder(answer.read(_LONGEST_PATH + 1), servers[0])
    except urllib.error.HTTPError:  # a real etcd
        hosts = ",".join(urlsplit(url).netloc for url in servers)
        prefix = flags.get("etcd-prefix", "/registry").strip("/")
        found = etcd_client.parse_etcd_address(f"etcd://{hosts}/{prefix}")
        return etcd_store.make_etcd_store(found, NOTHING, release)
    except (OSError, http.client.HTTPException) as problem:
        raise UserError(
            f"etcd does not answer at {servers[0]}: {problem}", "start etcd first"
        ) from problem
    return SqliteStore(folder / "transom.db")


def data_folder(answer: bytes, server: str) -> Path:
    """The folder for the objects. Only the program beside this one may name one: another server
    could name any folder of this account.
    """
    try:
        folder = Path(os.fsdecode(answer))
        status = (folder / MARKER).lstat()
        trusted = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    except (OSError, ValueError):
        trusted = False
    if len(answer) > _LONGEST_PATH or not trusted:
        raise UserError(
            f"the server at {server} is not the etcd of transom envtest",
            "start the etcd in the folder of this program, with the same account",
        )
    return folder


def _etcd_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port is None:
        raise ValueError("must be http://HOST:PORT")
    return parts.netloc


# ---- values of flags ----


def _parse(flags: GoFlags, name: str, default: str, parse: Callable[[str], T]) -> T:
    return _parse_value(name, flags.get(name, default), parse)


def _parse_value(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except (ValueError, TypeError) as problem:
        raise UserError(
            f'invalid argument "{text}" for "--{name}" flag: {problem}',
            "change the flag",
            EXIT_USAGE,
        ) from problem


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= _MAX_PORT:
        raise ValueError(f"must be between 0 and {_MAX_PORT}, inclusive")
    return port


def _port_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    found = _port(first), _port(last or first)
    if found[0] > found[1]:
        raise ValueError("the first port is larger than the last")
    return found


def _service_range(text: str) -> str:
    for part in text.split(","):
        if ipaddress.ip_network(part).num_addresses < _SMALLEST_RANGE:
            raise ValueError(f"must have at least {_SMALLEST_RANGE} IP addresses")
    return text


def _read_authority(path: str) -> bytes:
    pem = _read(path)
    if path:
        x509.load_pem_x509_certificates(pem)
    return pem


def _read_signing_key(path: str) -> bytes:
    pem = _read(path)
    if path:
        load_pem_private_key(pem, None)
    return pem


def _read_account_key(path: str) -> bytes:
    return read_account_key(_read(path))


def _read(path: str) -> bytes:
    return Path(path).read_bytes() if path else b""


def read_account_key(pem: bytes) -> bytes:
    """The public key of a file, which may be a certificate or a private key."""
    if _PRIVATE_KEY in pem:
        private = load_pem_private_key(pem, None)
        return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if _CERTIFICATE not in pem:
        load_pem_public_key(pem)
        return pem
    public = x509.load_pem_x509_certificate(pem).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_tokens(path: str) -> dict[str, UserInfo]:
    """Lines of token,user,uid,"group,group". Raises ValueError."""
    found: dict[str, UserInfo] = {}
    for row in csv.reader(_read(path).decode().splitlines()):
        if not row:
            continue
        if len(row) < _COLUMNS:
            raise ValueError(
                f"a row must have at least {_COLUMNS} columns (token, user name, user "
                f"uid), found {len(row)}"
            )
        token, user, uid, *groups = row
        if not token:
            log.warning("empty token has been found in %s", path)
            continue
        names = tuple(name.strip() for name in (groups[0] if groups else "").split(","))
        members = (*filter(None, names), "system:authenticated")
        found[token] = UserInfo(user, members, uid)
    return found
