"""The network settings of a cluster, from options and the cluster file's `network` field: pure
data. `network.modes` decides which settings work together. Light to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.kit.user_errors import UserError
from transom.windows.records import ALL_NETWORKS

OUTSIDE = "203.0.113.10"  # the host that stands for the Internet
OUTSIDE6 = "2001:db8::10"  # its IPv6 address in dual-stack clusters
OUTSIDE_NAME = "www.example.com"
API_PORT = 6443  # of the API server on the control-plane node
DATAPLANES = ("model", "kernel")
PROXY_MODES = ("kernelspace", "userspace")
# Mode -> its default plugin.
USUAL_PLUGINS = {
    "l2bridge": "flannel",
    "overlay": "flannel",
    "l2tunnel": "azure",
    "transparent": "ovn",
    "nat": "nat",
}
PLUGINS = ("flannel", "win-bridge", "sdnbridge", "azure", "ovn", "nat")


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    mode: str = "l2bridge"
    plugin: str = ""  # "" for the mode's default
    dataplane: str = "model"
    # of flannel's net-conf.json: VNI, Port, Name ...
    backend: Mapping[str, Any] = field(default_factory=dict)
    exceptions: tuple[str, ...] = ()  # additions to the ExceptionList of OutBoundNAT
    cni_version: str = ""
    flannel_version: str = "0.13.0"
    proxy_mode: str = "kernelspace"
    dsr: bool = False
    # node -> the name that its kube-proxy uses
    hostname_override: Mapping[str, str] = field(default_factory=dict)
    dual_stack: bool = False
    policy: bool = True  # whether NetworkPolicy is enforced
    upstreams: tuple[str, ...] = ()  # name servers for names outside the cluster
    stub_domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # "host:port" of this machine's network that pods may reach through a relay
    outgoing: tuple[str, ...] = ()
    relay: bool = True  # node ports and load balancers on this machine's loopback addresses

    @property
    def chosen_plugin(self) -> str:
        return self.plugin or USUAL_PLUGINS[self.mode]


class NetworkOptions(NamedTuple):
    """The command-line options; None: not given."""

    mode: str | None = None
    dataplane: str | None = None
    dual_stack: bool | None = None


_FILE: Mapping[str, tuple[str, Any]] = {
    "mode": ("mode", str),
    "plugin": ("plugin", str),
    "dataplane": ("dataplane", str),
    "backend": ("backend", dict),
    "exceptionList": ("exceptions", list),
    "cniVersion": ("cni_version", str),
    "flannelVersion": ("flannel_version", str),
    "proxyMode": ("proxy_mode", str),
    "enableDSR": ("dsr", bool),
    "hostnameOverride": ("hostname_override", dict),
    "dualStack": ("dual_stack", bool),
    "networkPolicy": ("policy", bool),
    "upstreamNameservers": ("upstreams", list),
    "stubDomains": ("stub_domains", dict),
    "outgoing": ("outgoing", list),
    "relay": ("relay", bool),
}
_CHOICES = {
    "mode": ALL_NETWORKS,
    "plugin": PLUGINS,
    "dataplane": DATAPLANES,
    "proxy_mode": PROXY_MODES,
}


def network_options_from_file(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cluster file's `network`, with the field names of NetworkSettings."""
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in _FILE:
            raise UserError(
                f"network.{name} of the cluster file is unknown", f"known are {', '.join(_FILE)}"
            )
        attribute, wanted = _FILE[name]
        if not isinstance(value, wanted):
            raise UserError(f"network.{name} of the cluster file must be a {_TYPE_NAMES[wanted]}")
        values[attribute] = tuple(map(str, value)) if wanted is list else value
    if "stub_domains" in values:
        values["stub_domains"] = {
            k: tuple(map(str, v)) if isinstance(v, list) else (str(v),)
            for k, v in values["stub_domains"].items()
        }
    return values


_TYPE_NAMES = {str: "text", dict: "mapping", list: "list", bool: "yes or no (true, false)"}


def choose_network_settings(
    current: NetworkSettings, wanted: NetworkOptions, file: Mapping[str, Any]
) -> NetworkSettings:
    """The settings with the given overrides; options take precedence over the file."""
    given = {**file, **{k: v for k, v in wanted._asdict().items() if v is not None}}
    settings = replace(current, **given)
    for name, known in _CHOICES.items():
        value = getattr(settings, name)
        if value and value not in known:
            title = name.replace("_", " ")
            raise UserError(
                f"unknown {title} {value!r} of the network", f"choose one of {', '.join(known)}"
            )
    return settings


def load_network_settings(raw: Mapping[str, Any]) -> NetworkSettings:
    """Reads what `asdict` has written."""
    known = NetworkSettings.__dataclass_fields__
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in known
    }
    if "stub_domains" in values:
        values["stub_domains"] = {k: tuple(v) for k, v in values["stub_domains"].items()}
    return NetworkSettings(**values)
