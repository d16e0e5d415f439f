"""What nodes know about their cluster: its name, its release, its address ranges and where its files
are. Light to import: the command line reads names and defaults from here.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import field
from pathlib import Path
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.releases import BUILDS
from transom.node.network_settings import NetworkSettings

DEFAULT_NAME: Final = "transom"
DEFAULT_POD_CIDR: Final = "10.244.0.0/16"
# Release -> the reported version, which is the last patch of that release.
RELEASES: Final = {name: build.git_version for name, build in BUILDS.items()}
DEFAULT_RELEASE: Final = "1.20"
ENGINES: Final = ("sim", "oci", "auto")  # container runtimes


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The part of a cluster's configuration that its nodes use."""

    name: str = DEFAULT_NAME
    bind: str = "127.0.0.1"
    port: int = 0  # 0 until the first start has selected a free one
    release: str = DEFAULT_RELEASE
    # In dual-stack clusters a range is two comma-separated CIDRs, IPv4 first.
    service_cidr: str = "10.96.0.0/16"
    pod_cidr: str = DEFAULT_POD_CIDR  # each node gets a /24 of it
    node_cidr: str = "172.20.0.0/16"  # node addresses, which exist only in the cluster's network
    engine: str = "sim"  # what runs containers: sim, oci (real ones) or auto
    feature_gates: tuple[str, ...] = ()  # "Name=true", as in Kubernetes' flag
    images: str = ""  # a file that lists simulated images in addition to the built-in ones
    network: NetworkSettings = field(default_factory=NetworkSettings)
    home: str = ""  # the folder of the cluster's folder; "" for that of all clusters of the user

    @property
    def state(self) -> Path:
        return (Path(self.home) if self.home else clusters_dir()) / self.name

    @property
    def git_version(self) -> str:
        return RELEASES[self.release]

    def on_loopback(self, load_balancer: str) -> str:
        """The loopback address at which this machine reaches a load balancer's address. Each
        cluster has its own range, as long as there are enough.
        """
        default = self.name == DEFAULT_NAME
        number = 100 if default else 101 + zlib.crc32(self.name.encode()) % 150
        return f"127.{number}." + ".".join(load_balancer.split(".")[2:])


def clusters_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "transom"


def default_name() -> str:
    """The cluster of commands without --name."""
    return os.environ.get("TRANSOM_NAME") or DEFAULT_NAME


def name_option(name: str) -> str:
    """The option that selects this cluster, for hints: "" for the default one."""
    return "" if name == default_name() else f" --name {name}"


def split_cidrs(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def cidr_of_family(text: str, version: int) -> str:
    """The IPv4 or IPv6 CIDR in a list of CIDRs; "" if there is none."""
    return next((part for part in split_cidrs(text) if (":" in part) == (version == 6)), "")
