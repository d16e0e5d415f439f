"""The API server that envtest starts, from its flags: certificates and keys of the suite, objects in
the data directory of the `etcd` beside it or in a real etcd.
"""

from __future__ import annotations

import asyncio
import csv
import logging
import signal
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.cluster.envtest.etcd import DATA_DIR_PATH
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
_UID_GATE = "RemoteRequestHeaderUID"
_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY = b"PRIVATE KEY-----"


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
    bind, port = flags.get("bind-address", "0.0.0.0"), int(flags.get("secure-port", "6443"))
    client_ca = flags.get("client-ca-file")
    certificate, key = _serving_pair(flags)
    context = server_context(certificate, key, Path(client_ca) if client_ca else None)
    sockets = listen_sockets([bind], port)
    signing_key = _read(flags.get("service-account-signing-key-file"))
    gates = parse_feature_gates(flags.words("feature-gates"), release)
    api = build_api_server(
        ServerOptions(
            store=_find_store(flags, release),
            address=f"{bind}:{port}",
            release=release,
            service_cidr=flags.get("service-cluster-ip-range", "10.0.0.0/24"),
            node_ports=_port_range(flags.get("service-node-port-range", "30000-32767")),
            tokens=_read_tokens(flags.get("token-auth-file")),
            service_account_key=signing_key,
            service_account_keys=[
                read_account_key(_read(path)) for path in flags.words("service-account-key-file")
            ],
            issuer=flags.get("service-account-issuer", DEFAULT_ISSUER),
            api_audiences=flags.words("api-audiences"),
            ca=_read(client_ca),
            front_proxy_ca=_read(flags.get("requestheader-client-ca-file")),
            uid_headers=uid_headers(
                flags.words("requestheader-uid-headers"), FeatureSet(parse_release(release), gates)
            ),
            feature_gates=gates,
            runtime_config=parse_runtime_config(flags.words("runtime-config")),
            disabled_admission=frozenset(flags.words("disable-admission-plugins")),
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
    address = urlsplit(servers[0])
    try:
        with urllib.request.urlopen(
            f"http://{address.netloc}{DATA_DIR_PATH}", timeout=_ETCD_SECONDS
        ) as answer:
            folder = Path(answer.read().decode())
    except urllib.error.HTTPError:  # a real etcd
        hosts = ",".join(urlsplit(url).netloc for url in servers)
        prefix = flags.get("etcd-prefix", "/registry").strip("/")
        found = etcd_client.parse_etcd_address(f"etcd://{hosts}/{prefix}")
        return etcd_store.make_etcd_store(found, NOTHING, release)
    except OSError as problem:
        raise UserError(
            f"etcd does not answer at {servers[0]}: {problem}", "start etcd first"
        ) from problem
    return SqliteStore(folder / "transom.db")


def _port_range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _read(path: str) -> bytes:
    return Path(path).read_bytes() if path else b""


def read_account_key(pem: bytes) -> bytes:
    """The public key of a file, which may be a certificate or a private key."""
    if _PRIVATE_KEY in pem:
        private = load_pem_private_key(pem, None)
        return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if _CERTIFICATE not in pem:
        return pem
    public = x509.load_pem_x509_certificate(pem).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _read_tokens(path: str) -> dict[str, UserInfo]:
    """Lines of token,user,uid,"group,group"."""
    found: dict[str, UserInfo] = {}
    if path:
        with Path(path).open(newline="") as file:
            for row in csv.reader(file):
                token, user, uid, *groups = row
                names = tuple(name.strip() for name in (groups[0] if groups else "").split(","))
                members = (*filter(None, names), "system:authenticated")
                found[token] = UserInfo(user, members, uid)
    return found
