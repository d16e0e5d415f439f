"""flanneld.exe's command line, as of flannel 0.13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.node.programs.flags.golang import (
    BOOL,
    INT64,
    LEVEL,
    STRING,
    FlagError,
    FlagKind,
    ParsedFlags,
    Table,
    parse_flag,
)

_EACH: Final = FlagKind("value", lambda text: (text,), adds=True)
_STRINGS: Final = """
etcd-cafile etcd-certfile etcd-endpoints etcd-keyfile etcd-password etcd-prefix etcd-username healthz-ip kube-annotation-prefix
kube-api-url kubeconfig-file log_backtrace_at net-config-path public-ip subnet-file vmodule
"""
TABLE: Final[Table] = {
    **dict.fromkeys(_STRINGS.split(), STRING),
    **dict.fromkeys(("iptables-forward-rules", "ip-masq", "kube-subnet-mgr", "version"), BOOL),
    **dict.fromkeys(("healthz-port", "iptables-resync", "subnet-lease-renew-margin"), INT64),
    "iface": _EACH,
    "iface-regex": _EACH,
    "v": LEVEL,
}
NET_CONF: Final = "/etc/kube-flannel/net-conf.json"
_DAY: Final = 24 * 60
_EFFECTIVE: Final = frozenset(
    (
        "iface",
        "iface-regex",
        "ip-masq",
        "kube-subnet-mgr",
        "kubeconfig-file",
        "net-config-path",
        "public-ip",
        "subnet-file",
        "subnet-lease-renew-margin",
        "v",
        "version",
    )
)


@dataclass(frozen=True, slots=True)
class FlanneldFlags:
    version: bool = False
    kubeconfig: str = ""
    interfaces: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # of interfaces
    public_ip: str = ""
    masquerade: bool = False
    kube_subnet_manager: bool = False
    etcd: str = ""
    net_conf: str = NET_CONF
    subnet_file: str = "/run/flannel/subnet.env"
    verbosity: int = 0
    unused: tuple[str, ...] = ()


def parse_flanneld_flags(argv: Sequence[str]) -> ParsedFlags:
    """Raises FlagError."""
    return parse_flag(TABLE, argv)


def flanneld_flags(parsed: ParsedFlags) -> FlanneldFlags:
    """Raises FlagError."""
    get = parsed.get
    if not 0 < get("subnet-lease-renew-margin", 60) < _DAY:
        raise FlagError("Invalid subnet-lease-renew-margin option, out of acceptable range")
    return FlanneldFlags(
        version=get("version", False),
        kubeconfig=get("kubeconfig-file", ""),
        interfaces=get("iface", ()),
        patterns=get("iface-regex", ()),
        public_ip=get("public-ip", ""),
        masquerade=get("ip-masq", False),
        kube_subnet_manager=get("kube-subnet-mgr", False),
        etcd=get("etcd-endpoints", "http://127.0.0.1:4001,http://127.0.0.1:2379"),
        net_conf=get("net-config-path", NET_CONF),
        subnet_file=get("subnet-file", "/run/flannel/subnet.env"),
        verbosity=get("v", 0),
        unused=tuple(name for name in parsed.texts if name not in _EFFECTIVE),
    )
