"""Safe sysctls: those that a kubelet accepts by default, on Linux and Windows nodes
alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transom.windows.records import Release

SAFE: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
)
_SINCE: Final[Mapping[Release, tuple[str, ...]]] = {
    (1, 22): ("net.ipv4.ip_unprivileged_port_start",),
    (1, 27): ("net.ipv4.ip_local_reserved_ports",),
    (1, 29): (
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
    ),
    (1, 32): ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
}


def safe_sysctls(release: Release) -> tuple[str, ...]:
    return (*SAFE, *(name for since, names in _SINCE.items() if release >= since for name in names))
