"""What only a node itself knows, and only nodes of our own clusters tell: the state of a machine and of its agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Inside:
    name: str
    os: str = "linux"
    state: str = "running"  # or stopped, starting
    simulated: bool = True
    mode: str = ""  # of the network
    plugin: str = ""  # that makes it
    network: str = ""  # the host networking service's one that plugins and kube-proxy look for; "" where there is none
    fault: str = ""  # why the network has not been made
    networks: Mapping[str, str] = field(default_factory=dict)  # those that are there, with their management addresses
    adapters: tuple[str, ...] = ()
    mac_spoofing: bool = True
    pod_cidr: str = ""
    kube_proxy_problem: str = ""
    kube_proxy_hostname: str = ""  # the name that it takes for its node's
    stopped: Mapping[str, str] = field(default_factory=dict)  # kubelet, kube-proxy, flanneld that do not run: their last words
    subnet_env: str | None = None  # flannel's file; None: there is none
    source_vip: str = ""  # as the file says, on an overlay
    proxy: str = ""  # that stands between the machine and registries
    variables: Mapping[str, str] = field(default_factory=dict)  # set for the whole machine

    @property
    def windows(self) -> bool:
        return self.os == "windows"


def of(document: Mapping[str, Any]) -> Inside:
    """As `dataclasses.asdict` has written it; a newer cluster may say more."""
    names = {f.name for f in fields(Inside)}
    values: dict[str, Any] = {name: value for name, value in document.items() if name in names}
    values["adapters"] = tuple(values.get("adapters") or ())
    return Inside(**values)
