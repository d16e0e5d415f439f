"""A cluster's configuration and the files it lives in: one folder for each cluster, so that clusters never meet.

The folder is `$XDG_DATA_HOME/transom/NAME`; what `transom up` was told is kept there, so a restart needs no options.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from transom.cluster import netconfig
from transom.cluster.errors import ClusterError
from transom.cluster.netconfig import NetworkSettings
from transom.kit.files import write_atomic

DEFAULT_NAME = "transom"
DEFAULT_POD_CIDR = "10.244.0.0/16"
# Release -> the version reported, which is the last patch of that release.
RELEASES = {
    "1.14": "v1.14.10",
    "1.15": "v1.15.12",
    "1.16": "v1.16.15",
    "1.17": "v1.17.17",
    "1.18": "v1.18.20",
    "1.19": "v1.19.16",
    "1.20": "v1.20.15",
}
DEFAULT_RELEASE = "1.20"

_TAKEN = ("images", "wine")  # folders beside those of clusters
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    name: str = DEFAULT_NAME
    bind: str = "127.0.0.1"
    port: int = 0  # 0 until the first start has picked a free one
    release: str = DEFAULT_RELEASE
    service_cidr: str = "10.96.0.0/16"  # of ranges there are two with dual stack, one of each family, with a comma
    node_ports: tuple[int, int] = (30000, 32767)
    pod_cidr: str = DEFAULT_POD_CIDR  # each node gets a /24 of it
    node_cidr: str = "172.20.0.0/16"  # addresses of nodes, known to the modelled network alone
    load_balancer_cidr: str = "198.18.0.0/16"  # inside the cluster's network; this machine has relays on loopback
    no_nodes: bool = False
    audit_policy: str = ""  # what is audited, "" for nothing
    audit_log: str = ""  # where to, "" for the state folder
    encryption_key_file: str = ""
    encrypt: bool = False  # Secrets on disk; with a key file and without this they are decrypted again
    feature_gates: tuple[str, ...] = ()  # "Name=true", as Kubernetes' flag has them
    engine: str = "sim"  # what runs containers: sim, oci (real ones), auto
    images: str = ""  # a catalogue of images beside our own
    warn_windows: bool = True  # of pods that use what Windows cannot do
    reject_windows: tuple[str, ...] = ()  # records whose pods are refused
    network: NetworkSettings = field(default_factory=NetworkSettings)
    kubeconfig: str = ""  # the file that holds the cluster's context, "" for none

    @property
    def state(self) -> Path:
        return clusters_dir() / self.name

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def database(self) -> Path:
        return self.state / "store.db"

    @property
    def log(self) -> Path:
        return self.state / "transom.log"

    @property
    def pid_file(self) -> Path:
        return self.state / "transom.pid"

    @property
    def own_kubeconfig(self) -> Path:
        """The cluster's own copy, for the commands that must find the cluster whatever the user's file says."""
        return self.state / "kubeconfig"

    @property
    def url(self) -> str:
        host = f"[{self.bind}]" if ":" in self.bind else self.bind
        return f"https://{host}:{self.port}"

    def on_loopback(self, load_balancer: str) -> str:
        """Where this machine reaches the address of a load balancer: each cluster has a range of its own, if it can be."""
        number = 100 if self.name == DEFAULT_NAME else 101 + zlib.crc32(self.name.encode()) % 150
        return f"127.{number}." + ".".join(load_balancer.split(".")[2:])

    @property
    def git_version(self) -> str:
        return RELEASES[self.release]


def clusters_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "transom"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ClusterError(
            f"{name!r} cannot be the name of a cluster",
            "use lower case letters, digits and dashes, at most 63 of them, for example --name blue",
        )
    return name


def load(name: str) -> ClusterConfig | None:
    """The configuration of an existing cluster, or None."""
    path = clusters_dir() / check_name(name) / "cluster.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ClusterError(
            f"{path} is damaged: {error}", f"repair it, or start over after removing {path.parent}"
        ) from error
    known = {f.name for f in fields(ClusterConfig)}
    raw = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in known}
    raw["network"] = netconfig.load(raw.get("network") or {})
    config = replace(ClusterConfig(**raw), name=name)
    if config.release not in RELEASES:
        raise ClusterError(f"{path} names the unknown release {config.release!r}", f"known are {', '.join(RELEASES)}")
    return config


def save(config: ClusterConfig) -> None:
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomic(config.state / "cluster.json", json.dumps(asdict(config), indent=2).encode() + b"\n", 0o600)


def known_clusters() -> list[str]:
    """The names of all clusters of this user."""
    return sorted(path.parent.name for path in clusters_dir().glob("*/cluster.json"))
