"""Which processes a cluster with several API servers has, their ports, and the certificates of etcd.

Light to import: `transom up` chooses the layout before anything starts.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from transom.cluster.config import ClusterConfig
from transom.kit import pki as kit
from transom.kit.files import make_private, sync_directory
from transom.kit.lazy_dataclass import dataclass
from transom.kit.trust import check_program, find_program
from transom.kit.user_errors import UserError
from transom.node.settings import cidr_of_family
from transom.node.spec import NodeSpec, control_plane_node, control_plane_nodes

LOCAL: Final = "127.0.0.1"


def members_for(servers: int) -> int:
    """How many etcd members run for a number of API servers: an odd number, at most five."""
    return 1 if servers < 3 else 3 if servers < 5 else 5


def find_etcd() -> str:
    found = find_program("etcd")
    if found is None:
        raise UserError(
            "several API servers need etcd, and there is no program etcd in the PATH",
            "install it (Debian: apt install etcd-server), or use an existing one with "
            "--store etcd://HOST:PORT",
        )
    try:
        return check_program(found)
    except OSError as error:
        raise UserError(f"etcd cannot be used: {error}") from error


def choose_layout(config: ClusterConfig) -> ClusterConfig:
    """The configuration with its ports, and with the etcd that it starts. Ports stay as they are
    once they are chosen: the members of etcd know each other by them.
    """
    members = len(config.etcd_ports) // 2
    if not config.store:
        find_etcd()
        members = members_for(config.servers)
    server_ports, etcd_ports = config.server_ports, config.etcd_ports
    wanted = config.servers - len(server_ports)
    new = iter(free_ports(max(wanted, 0) + 2 * members - len(etcd_ports)))
    server_ports = (*server_ports, *(next(new) for _ in range(max(wanted, 0))))[: config.servers]
    etcd_ports = (*etcd_ports, *new)
    config = replace(config, server_ports=server_ports, etcd_ports=etcd_ports)
    if members:
        config = replace(config, store=etcd_address(config))
    return config


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((LOCAL, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


# ---- etcd ----


@dataclass(frozen=True, slots=True)
class EtcdPki:
    """The names are kubeadm's."""

    pki: Path

    def file(self, name: str) -> Path:
        return self.pki / "etcd" / name

    @property
    def ca(self) -> Path:
        return self.file("ca.crt")

    @property
    def client_cert(self) -> Path:
        return self.pki / "apiserver-etcd-client.crt"

    @property
    def client_key(self) -> Path:
        return self.pki / "apiserver-etcd-client.key"


def ensure_etcd_pki(config: ClusterConfig) -> EtcdPki:
    """Creates missing certificates and renews expiring ones."""
    made = EtcdPki(config.pki)
    make_private(config.pki / "etcd")
    ca_cert, ca_key = made.ca, made.file("ca.key")
    if ca_cert.exists() and ca_key.exists():
        ca = kit.load_key_pair(ca_cert, ca_key)
    else:
        ca = kit.make_ca("etcd-ca")
        kit.save_key_pair(ca, ca_cert, ca_key)
    for name, common in (("server", "etcd-server"), ("peer", "etcd-peer")):
        cert, key = made.file(f"{name}.crt"), made.file(f"{name}.key")
        if not kit.is_fresh(cert, key, ca_cert):
            pair = kit.issue_server(ca, common, ["localhost"], [LOCAL, "::1"], client=True)
            kit.save_key_pair(pair, cert, key, sync_names=False)
    if not kit.is_fresh(made.client_cert, made.client_key, ca_cert):
        pair = kit.issue_client(ca, "kube-apiserver-etcd-client", ["system:masters"])
        kit.save_key_pair(pair, made.client_cert, made.client_key, sync_names=False)
    sync_directory(config.pki / "etcd")
    return made


def etcd_address(config: ClusterConfig, first: int = 0) -> str:
    """The address of the own etcd; `first` is the member that the server asks first."""
    ports = config.etcd_ports[::2]
    first %= len(ports)
    made = EtcdPki(config.pki)
    files = {"ca": made.ca, "cert": made.client_cert, "key": made.client_key}
    hosts = ",".join(f"{LOCAL}:{port}" for port in (*ports[first:], *ports[:first]))
    return f"etcds://{hosts}?{urlencode({name: str(path) for name, path in files.items()})}"


def etcd_folder(config: ClusterConfig, number: int) -> Path:
    return config.state / "etcd" / f"etcd-{number}"


def etcd_command(config: ClusterConfig, number: int) -> list[str]:
    """The command line of a member; the first has number 1."""
    made = EtcdPki(config.pki)
    peers = config.etcd_ports[1::2]
    client = f"https://{LOCAL}:{config.etcd_ports[2 * number - 2]}"
    peer = f"https://{LOCAL}:{peers[number - 1]}"
    cluster = ",".join(f"etcd-{i}=https://{LOCAL}:{port}" for i, port in enumerate(peers, 1))
    options = {
        "name": f"etcd-{number}",
        "data-dir": etcd_folder(config, number),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": cluster,
        "initial-cluster-token": f"transom-{config.name}",
        "trusted-ca-file": made.ca,
        "cert-file": made.file("server.crt"),
        "key-file": made.file("server.key"),
        "client-cert-auth": "true",
        "peer-trusted-ca-file": made.ca,
        "peer-cert-file": made.file("peer.crt"),
        "peer-key-file": made.file("peer.key"),
        "peer-client-cert-auth": "true",
        "logger": "zap",
        "log-level": "warn",
    }
    return [find_etcd(), *(f"--{name}={value}" for name, value in options.items())]


# ---- servers ----


def server_config(config: ClusterConfig, number: int, specs: Sequence[NodeSpec]) -> ClusterConfig:
    """The configuration of one API server; the first has number 1. In the endpoints of `kubernetes`
    it has the address of the control-plane node that stands for it.
    """
    advertised = ""
    planes = control_plane_nodes(specs)
    first = control_plane_node(specs)
    node = planes[(number - 1) % len(planes)] if planes else first
    if not config.no_nodes and node is not None:
        advertised = node_machine_address(config, node)
    store = etcd_address(config, number - 1) if config.etcd_ports else config.store
    return replace(
        config,
        bind=LOCAL,
        port=config.server_ports[number - 1],
        store=store,
        advertise_address=advertised or config.advertise_address,
    )


def node_machine_address(config: ClusterConfig, node: NodeSpec) -> str:
    return str(ipaddress.ip_network(cidr_of_family(config.node_cidr, 4))[node.number + 1])
