"""Capabilities of a container: names, the default set, and what a container adds or drops."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

NAMES: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""In the order of the kernel's numbers."""

DEFAULT: Final = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
)
_ALL: Final = "ALL"


class UnknownCapability(Exception):
    """The text is runc's."""


@cache
def held_capabilities() -> frozenset[str]:
    """The capabilities of this process, which it cannot exceed. In its own user namespace every
    user has all of them.
    """
    if os.geteuid() != 0:
        return frozenset(NAMES)
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    bits = int(lines["CapBnd"], 16) & int(lines["CapPrm"], 16)
    return frozenset(name for number, name in enumerate(NAMES) if bits >> number & 1)


def container_capabilities(
    add: Sequence[str], drop: Sequence[str], *, privileged: bool
) -> list[str]:
    """With the prefix that specifications require. Raises UnknownCapability."""
    adding, dropping = _plain(add), _plain(drop)
    wanted = set(NAMES) if privileged or _ALL in adding else set(DEFAULT)
    if not privileged:
        if _ALL in dropping:
            wanted = set()
        wanted |= adding - {_ALL}
        wanted -= dropping
    for name in sorted(wanted | (dropping - {_ALL})):
        if name not in NAMES:
            raise UnknownCapability(f'unknown capability "CAP_{name}"')
    return [f"CAP_{name}" for name in NAMES if name in wanted and name in held_capabilities()]


def _plain(names: Iterable[str]) -> set[str]:
    return {name.upper() for name in names}
