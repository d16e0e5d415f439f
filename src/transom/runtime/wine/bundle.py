r"""The OCI specification of a Windows container: a small Linux system that has nothing but Wine.

    /             read-only: links and mount points, /etc with the one account there is
    /usr          the machine's, read-only: Wine and the libraries it needs
    /wine         the prefix: the registry, drive letters, jobs
    /wine/drive_c the snapshot: template, layers of the image, the container's own layer; volumes below it

Nothing here starts anything; everything that is written is below the container's own folder.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from transom.hosts.windows.accounts import User
from transom.runtime.api import Mount
from transom.runtime.native.platform import ContainerRequest, Spec
from transom.runtime.oci import seccomp
from transom.runtime.wine import accounts, drives, jobs, registry, roots
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.installation import Installation, unix_environment
from transom.runtime.wine.standin import unix_half
from transom.runtime.wine.template import SYSTEM32

_DRIVE_C: Final = f"{jobs.PREFIX}/drive_c"
_PIPES: Final = "/run/pipes"
_PRLIMIT: Final = "/usr/bin/prlimit"
WINRUN: Final = r"C:\Windows\System32\CExecSvc.exe"
_WINCTRL: Final = r"C:\Windows\System32\winctrl.exe"
_TOLD_IN_TURN_MS: Final = 5000  # for each process of a container, before the next one is told of the shutdown
# Which fonts there are. Without what the machine has found out about them, each container would read and note down all of them.
_FONTS: Final = ("/etc/fonts", "/var/cache/fontconfig")
_FOLDERS: Final = ("usr", "opt", "proc", "dev", "tmp", "run/pipes", *(folder[1:] for folder in _FONTS), "wine")
_ADAPTERS: Final = r"System\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"
_HOSTS: Final = f"{SYSTEM32}/drivers/etc/hosts"
# Windows has no ports for administrators only, and everybody may ping.
_USER_CAPABILITIES: Final = ("CAP_NET_BIND_SERVICE", "CAP_NET_RAW")
_CAPABILITIES: Final = (*_USER_CAPABILITIES, "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL")
_MASKED: Final = (
    "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
    "/proc/timer_stats",
)  # fmt: skip
_READ_ONLY: Final = ("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
# Folders of Windows itself, in which users may not write. Elsewhere on C: they may add files and folders of their own.
_PROTECTED: Final = frozenset({"windows", "program files", "program files (x86)", "users"})
_MOST_FOLDERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Places:
    """Of one container, on this machine."""

    prefix: Path


def places(request: ContainerRequest) -> Places:
    return Places(request.folder / "platform" / "prefix")


def make_root(installation: Installation, user: User, helpers: Helpers, request: ContainerRequest) -> Path:
    node = request.folder.parents[1]
    hosts = f"{_DRIVE_C}/{_HOSTS}"
    folders = (*_FOLDERS, *(target[1:] for _, target in unix_half.binds(installation.folders)))
    return roots.root(node / "roots", folders, jobs.PREFIX, hosts, user, helpers, request.sandbox.config.dns)


def adapter(request: ContainerRequest) -> str:
    """What the registry says of the container's network adapter, which programs read instead of asking for it."""
    dns, text = request.sandbox.config.dns, registry.text
    suffix = "".join(dns.searches[:1])
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, request.sandbox.id)).upper()
    values = {"EnableDHCP": registry.number(0), "NameServer": text(",".join(dns.servers)), "Domain": text(suffix),
              "SearchList": text(suffix)}  # fmt: skip
    return registry.section(rf"{_ADAPTERS}\{{{name}}}", values)


def make_prefix(at: Path, owner: int, request: ContainerRequest) -> None:
    """Around what the template has written there."""
    (at / "drive_c").mkdir()
    jobs.make_folder(at, owner)
    letters = {drives.split(mount.container_path)[0] for mount in request.config.mounts if not _pipe(mount)}
    for letter in sorted(letters - {"c"}):
        (at / drives.folder(letter)).mkdir(parents=True)
        (at / "dosdevices" / f"{letter}:").symlink_to(f"../{drives.folder(letter)}")
    for path in (at, at / "dosdevices", *at.glob("*.reg")) if owner else ():
        os.chown(path, owner, owner)


def let_users_write(snapshot: Path, layers: Iterable[Path]) -> None:
    """As Windows' own permissions do: anywhere but in the system's folders users may add to what is there."""
    os.chmod(snapshot, 0o1777)
    count = 0
    for layer in layers:
        for place, folders, _ in os.walk(layer):
            if place == str(layer):
                folders[:] = [name for name in folders if name.lower() not in _PROTECTED]
            else:
                path = snapshot / os.path.relpath(place, layer)
                if path.is_dir() and not path.is_symlink():
                    os.chmod(path, 0o1777)
                count += 1
            if count > _MOST_FOLDERS:
                return


def announce_names(snapshot: Path, hostname: str, addresses: Iterable[str]) -> None:
    """What the helper wdns.so would know."""
    path = snapshot / _HOSTS
    lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{address} {hostname}" for address in addresses)]
    with open(path, "a", newline="\r\n") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _pipe(mount: Mount) -> str:
    """The name of a named pipe, empty for other mounts."""
    match = drives.PIPE.fullmatch(mount.container_path.replace("/", "\\"))
    return match[1] if match else ""


def destinations(snapshot: Path, mounts: Iterable[Mount]) -> list[tuple[Mount, str]]:
    """Where they go, spelt as what is there already; what is inside of another one comes after it."""
    found: list[tuple[Mount, str]] = []
    known: dict[tuple[str, ...], PurePosixPath] = {}
    for mount in sorted(mounts, key=lambda mount: len(drives.split(mount.container_path)[1])):
        letter, names = drives.split(mount.container_path)
        folded = (letter, *(name.lower() for name in names))
        outer = next((end for end in range(len(names), 0, -1) if folded[: end + 1] in known), 0)
        if outer:
            path = known[folded[: outer + 1]].joinpath(*names[outer:])
        else:
            spelt = drives.spelt(snapshot, names) if letter == "c" else PurePosixPath(*names)
            path = PurePosixPath(jobs.PREFIX, drives.folder(letter)) / spelt
        known[folded] = path
        found.append((mount, str(path)))
    return found


def process(
    installation: Installation, user: User, args: Sequence[str], address: str, helpers: Helpers, *, data: int,
    extra: Iterable[tuple[str, str]] = (),
) -> Spec:  # fmt: skip
    """`data`: what `limits.of_process` says. runc needs more of it than a small program, so the bound is set after it."""
    number = accounts.unix_id(user)
    by_itself = bool(data) and os.path.exists(_PRLIMIT)
    env = {**dict(extra), **installation.environment(jobs.PREFIX)}
    env |= {"HOME": jobs.PREFIX, "USER": user.name, "TERM": "xterm", "TRANSOM_ADDRESS": address}
    if helpers.get("wdns.so") is not None:
        env["LD_PRELOAD"] = "/wdns.so"
    names = list(_CAPABILITIES if number == 0 else _USER_CAPABILITIES)
    return {
        "user": {"uid": number, "gid": number},
        "cwd": _DRIVE_C,
        "args": [*((_PRLIMIT, f"--data={data}") if by_itself else ()), *args],
        "env": unix_environment(env),
        "noNewPrivileges": True,
        "rlimits": [{"type": "RLIMIT_DATA", "soft": data, "hard": data}] if data and not by_itself else [],
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable", "ambient"), names),
    }


def first_args(installation: Installation, helpers: Helpers, request: ContainerRequest, command: Sequence[str]) -> list[str]:
    """The init in front of a command, if there is one."""
    if helpers.get("init") is None:
        return list(command)
    args = ["/init"]
    if helpers.get("winctrl.exe") is not None and helpers.get("winrun.exe") is not None:
        args += ["-s", f"{jobs.inside(jobs.MAIN)}.status", "-c", _WINCTRL, "-g", str(_TOLD_IN_TURN_MS)]
    if helpers.get("pipeserve.exe") is not None:
        for number, name in enumerate(pipes(request)):
            args += ["-p", rf"\\.\pipe\{name}", f"{_PIPES}/{number}"]
    return [*args, "--", *command]


def pipes(request: ContainerRequest) -> list[str]:
    return [name for mount in request.config.mounts if (name := _pipe(mount))]


def specification(
    installation: Installation, request: ContainerRequest, root: Path, process: Spec, texts: Iterable[Path] = ()
) -> Spec:
    """`texts`: files that have the words of errors, instead of the installed ones."""
    sandbox = request.sandbox
    mounts: list[Spec] = [
        _mount("/proc", "proc", ()),
        _mount("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
        _mount("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
        _mount("/dev/shm", "tmpfs", ("nosuid", "nodev", "mode=1777", "size=65536k")),
        _mount("/tmp", "tmpfs", ("nosuid", "nodev", "mode=1777")),
        *(_bind(folder, folder, "ro") for folder in installation.folders),
        *(_bind(str(file), str(installation.windows_libraries / file.name), "ro") for file in texts),
        *(_bind(folder, folder, "ro") for folder in _FONTS if os.path.isdir(folder)),
        *(_bind(source, target, "ro") for source, target in unix_half.binds(installation.folders)),
        _bind(str(places(request).prefix), jobs.PREFIX, "rw"),
        _bind(str(request.snapshot), _DRIVE_C, "rw"),
    ]
    piped = [mount for mount in request.config.mounts if _pipe(mount)]
    volumes = destinations(request.snapshot, (mount for mount in request.config.mounts if not _pipe(mount)))
    mounts += [request.host.bind(mount, path) for mount, path in volumes]
    mounts += [request.host.bind(mount, f"{_PIPES}/{number}") for number, mount in enumerate(piped)]
    network = [{"type": "network", "path": f"/proc/{sandbox.pid}/ns/net"}] if sandbox.pid else []
    return {
        "root": {"path": str(root), "readonly": True},
        "hostname": sandbox.plan.hostname,
        "process": process,
        "mounts": mounts,
        "linux": {
            "namespaces": [*({"type": kind} for kind in ("pid", "mount", "uts", "ipc")), *network],
            "resources": {},
            "seccomp": seccomp.default(process["capabilities"]["bounding"], native=not installation.runs_32_bit),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def _mount(destination: str, kind: str, options: Sequence[str]) -> Spec:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


def _bind(source: str, destination: str, mode: str) -> Spec:
    options = ["rbind", "rprivate", mode, "nosuid", "nodev"]
    return {"destination": destination, "type": "bind", "source": source, "options": options}
