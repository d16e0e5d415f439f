"""The process that holds a sandbox's namespaces: it ignores SIGCHLD, so that the kernel
reaps its children, and waits.

As pid 1 of a shared pid namespace it inherits orphans, which the kernel then reaps. It is so small
that it is included here as machine code, and needs no image:

    rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8); for (;;) pause();
"""

from __future__ import annotations

import os
import platform
import struct
from pathlib import Path
from typing import Final

from transom.runtime.native.platform import SandboxPlan, Spec

_LOAD: Final = 0x400000
_HEADERS: Final = 64 + 56

# The action follows the code: SIG_IGN (1) and three zero words.
_ACTION: Final = struct.pack("<QQQQ", 1, 0, 0, 0)
_X86_64: Final = bytes.fromhex(
    "b80d000000"  # mov eax, 13 (rt_sigaction)
    "bf11000000"  # mov edi, 17 (SIGCHLD)
    "488d3515000000"  # lea rsi, [rip + 21]: the action
    "31d2"  # xor edx, edx
    "41ba08000000"  # mov r10d, 8
    "0f05"  # syscall
    "b822000000"  # mov eax, 34 (pause)
    "0f05"  # syscall
    "ebf7"  # jmp to pause
    "9090"
)
_AARCH64: Final = struct.pack(
    "<12I",
    0xD28010C8,  # mov x8, 134 (rt_sigaction)
    0xD2800220,  # mov x0, 17 (SIGCHLD)
    0x10000141,  # adr x1, 40 bytes on: the action
    0xD2800002,  # mov x2, 0
    0xD2800103,  # mov x3, 8
    0xD4000001,  # svc 0
    0xD2800928,  # mov x8, 73 (ppoll): of nothing, without a time-out
    0xD2800000,  # mov x0, 0
    0xD2800001,  # mov x1, 0
    0xD2800003,  # mov x3, 0
    0xD4000001,  # svc 0
    0x17FFFFFB,  # b to ppoll
)
_MACHINES: Final = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}


def pause_program() -> bytes:
    """An ELF file for this machine. Raises KeyError for an unsupported architecture."""
    machine, code = _MACHINES[platform.machine()]
    size = _HEADERS + len(code) + len(_ACTION)
    identity = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, _LOAD + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD, _LOAD, size, size, 0x1000)
    return header + segment + code + _ACTION


def install_pause_program(folder: Path) -> None:
    """A root file system with nothing else. No error when it exists."""
    for at in (
        folder,
        folder / "proc",
        folder / "dev",
    ):  # mount points: an unprivileged user cannot create them later
        at.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = folder / "pause"
    if not target.exists():
        fresh = folder / f"pause.{os.getpid()}"
        fresh.write_bytes(pause_program())
        fresh.chmod(0o555)
        fresh.rename(target)


def pause_specification(
    plan: SandboxPlan, root: Path, namespaces: list[Spec], oom_score_adj: int
) -> Spec:
    spec: Spec = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": plan.user, "gid": plan.group},
            "args": ["/pause"],
            "env": [],
            "cwd": "/",
            "noNewPrivileges": True,
            "oomScoreAdj": oom_score_adj,
            "capabilities": {},
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": plan.hostname,
        "mounts": [
            {
                "destination": "/proc",
                "type": "proc",
                "source": "proc",
                "options": ["nosuid", "noexec", "nodev"],
            },
            {
                "destination": "/dev",
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "strictatime", "mode=755"],
            },
        ],
        "linux": {
            "namespaces": namespaces,
            "resources": {"cpu": {"shares": 2}, "devices": [{"allow": False, "access": "rwm"}]},
            "sysctl": dict(plan.sysctls or {}),
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"],
        },
    }
    if plan.own_users:
        map_pause_users(spec, plan.first_id)
    return spec


def map_pause_users(spec: Spec, first: int) -> None:
    mapping = [{"containerID": 0, "hostID": first, "size": 1 << 16}]
    spec["linux"] |= {"uidMappings": mapping, "gidMappings": mapping}
