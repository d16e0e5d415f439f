"""net-conf.json: how flannel connects the nodes of a cluster, with flannel's validation errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import orjson

from transom.kit.lazy_dataclass import dataclass
from transom.machinery import gojson
from transom.network.cni.leases import SubnetLease
from transom.network.cni.values import parse_interface

WINDOWS_VNI = 4096  # the minimum, and the default
WINDOWS_PORT = 4789
LINUX_PORT = 8472  # the kernel's default
ENCAPSULATION = 50  # bytes
BACKENDS = ("alloc", "host-gw", "vxlan")


class FlannelError(Exception):
    """flanneld does not start, or stops; the text is its log message."""


class FlannelBackend(Protocol):
    """One way of forwarding packets to other nodes."""

    kind: str
    mtu: int

    def register(self, lease: SubnetLease) -> SubnetLease:
        """Creates what the node needs; returns the lease with the backend's data."""

    def change(self, removed: Sequence[SubnetLease], added: Sequence[SubnetLease]) -> None:
        """Applies changes of other nodes' subnets."""


@dataclass(frozen=True, slots=True)
class FlannelConf:
    network: str = ""
    network6: str = ""
    enable4: bool = True
    enable6: bool = False
    backend: str = "udp"
    # settings of the backend, with lower-case names
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VxlanSettings:
    vni: int
    port: int
    name: str
    direct: bool = False
    mtu: int = 0  # of the underlying interface; 0: the node's


@dataclass(frozen=True, slots=True)
class WindowsAgentBehaviour:
    """How an agent behaves on a Windows node."""

    version: str
    late: bool  # the management address of a new network appears too late
    log: Callable[[str], None]

    @property
    def release(self) -> tuple[int, ...]:
        numbers = self.version.removeprefix("v").split("-")[0].split(".")
        return tuple(int(part) for part in numbers if part.isdigit())

    @property
    def backends(self) -> bool:
        """0.10 runs on Windows, but has no Windows backends before 0.11."""
        return self.release >= (0, 11)

    @property
    def host_route(self) -> bool:
        """Since 0.12 flannel lets a node reach its own pods."""
        return self.release >= (0, 12)

    @property
    def persistent(self) -> bool:
        """Before 0.12 the overlay network was created with version 1 of the HNS API and survived a
        reboot.
        """
        return self.release < (0, 12)

    @property
    def reads_vni(self) -> bool:
        """Before 0.14 packets to other nodes have VNI 4096, regardless of the lease."""
        return self.release >= (0, 14)


def parse_flannel_conf(data: bytes | str) -> FlannelConf:
    raw = data.encode() if isinstance(data, str) else data
    try:
        whole = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise FlannelError(
            f"error parsing subnet config: {gojson.syntax_error(raw) or error}"
        ) from error
    if type(whole) is not dict:
        word = {str: "string", list: "array", bool: "bool"}.get(type(whole), "number")
        raise FlannelError(
            f"error parsing subnet config: json: cannot unmarshal {word} into Go value of "
            "type subnet.Config"
        )
    given = {key.lower(): value for key, value in whole.items()}
    backend = given.get("backend")
    if backend is not None and type(backend) is not dict:
        raise FlannelError(
            "error parsing subnet config: error decoding Backend property of config: "
            f"json: cannot unmarshal {_word(backend)} into Go value of type struct {{ Type "
            f"string }}"
        )
    settings = {key.lower(): value for key, value in (backend or {}).items()}
    kind = "udp" if backend is None else settings.get("type") or ""
    conf = FlannelConf(
        _network(given.get("network")),
        _network(given.get("ipv6network")),
        given.get("enableipv4", True) is not False,
        bool(given.get("enableipv6")),
        str(kind).lower(),
        settings,
    )
    if not conf.enable4 and not conf.enable6:
        raise FlannelError("none defined stack")
    if conf.backend not in BACKENDS:
        raise FlannelError(f"unknown backend type: {conf.backend}")
    return conf


def _network(text: Any) -> str:
    if not text:
        return ""
    try:
        return str(parse_interface(str(text)).network)
    except ValueError as error:
        raise FlannelError(f"error parsing subnet config: {error}") from error


def vxlan_settings(conf: FlannelConf, os: str) -> VxlanSettings:
    given = conf.settings
    windows = os == "windows"
    prefix = "error decoding VXLAN backend config: "
    numbers = {}
    for key, default in (
        ("vni", WINDOWS_VNI if windows else 1),
        ("port", WINDOWS_PORT if windows else 0),
        ("mtu", 0),
    ):
        value = given.get(key)
        if value is not None and (type(value) is not int or type(value) is bool):
            owner = "." if windows else "VXLANConfig."
            shown = (
                key.upper() if key == "vni" and windows else key.capitalize() if windows else key
            )
            raise FlannelError(
                f"{prefix}json: cannot unmarshal {_word(value)} into Go struct field "
                f"{owner}{shown} of type int"
            )
        numbers[key] = default if value is None else value
    vni, port = numbers["vni"], numbers["port"]
    if windows:
        wrong = "invalid VXLAN backend config. "
        if vni < WINDOWS_VNI:
            raise FlannelError(
                f"{wrong}VNI [{vni}] must be greater than or equal to {WINDOWS_VNI} on Windows"
            )
        if port != WINDOWS_PORT:
            raise FlannelError(
                f"{wrong}Port [{port}] is not supported on Windows. Omit the setting to "
                f"default to port {WINDOWS_PORT}"
            )
        if given.get("directrouting"):
            raise FlannelError(wrong + "DirectRouting is not supported on Windows")
        if given.get("gbp"):
            raise FlannelError(wrong + "GBP is not supported on Windows")
        mac = given.get("macprefix", "0E-2A")
        if len(mac) != 5 or mac[2] != "-":
            raise FlannelError(
                f"invalid VXLAN backend config.MacPrefix [{mac}] is invalid, prefix must be "
                "of the format xx-xx e.g. 0E-2A"
            )
        return VxlanSettings(vni, port, given.get("name") or f"flannel.{vni}")
    return VxlanSettings(
        vni, port or LINUX_PORT, f"flannel.{vni}", bool(given.get("directrouting")), numbers["mtu"]
    )


def _word(value: Any) -> str:
    return {str: "string", list: "array", dict: "object", bool: "bool"}.get(type(value), "number")
