r"""The OCI specification of a Windows container: a small Linux system with only Wine.

    /             read-only: links and mount points, /etc with a single account
    /usr          the machine's, read-only: Wine and the libraries it needs
    /wine         the prefix: the registry, drive letters, jobs
    /wine/drive_c the snapshot: template, layers of the image, the container's own layer; volumes below it

This module starts no processes; it writes only below the container's own directory.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from transom.kit.lazy_dataclass import dataclass
from transom.machines.realfiles import RealFiles
from transom.machines.windows.accounts import WindowsUser
from transom.runtime.api import Mount
from transom.runtime.native.monitor.staging import SHARED
from transom.runtime.native.platform import ContainerRequest, Spec
from transom.runtime.oci import seccomp
from transom.runtime.wine import accounts, drives, jobs, registry, roots
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.installation import WineInstallation, unix_environment
from transom.runtime.wine.standin import unix_half
from transom.runtime.wine.template import PROFILE, SYSTEM32

_DRIVE_C: Final = f"{jobs.PREFIX}/drive_c"
_PIPES: Final = "/run/pipes"
_PRLIMIT: Final = "/usr/bin/prlimit"
WINRUN: Final = r"C:\Windows\System32\CExecSvc.exe"
_WINCTRL: Final = r"C:\Windows\System32\winctrl.exe"
_SHUTDOWN_TURN_MS: Final = (
    5000  # per process of a container, before the next one is notified of the shutdown
)
# The font configuration. Without the machine's font cache, each container would read and index all
# fonts.
_FONTS: Final = ("/etc/fonts", "/var/cache/fontconfig")
_FOLDERS: Final = (
    "usr",
    "opt",
    "proc",
    "dev",
    "tmp",
    "run/pipes",
    *(folder[1:] for folder in _FONTS),
    "wine",
)
_ADAPTERS: Final = r"System\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"
_HOSTS: Final = f"{SYSTEM32}/drivers/etc/hosts"
# Windows has no privileged ports, and all accounts may ping.
_USER_CAPABILITIES: Final = ("CAP_NET_BIND_SERVICE", "CAP_NET_RAW")
_CAPABILITIES: Final = (
    *_USER_CAPABILITIES,
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
)
_MASKED: Final = (
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
)
_READ_ONLY: Final = (
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
# Directories of Windows itself, in which users may not write. Elsewhere on C: they may add files
# and directories.
_PROTECTED: Final = frozenset({"windows", "program files", "program files (x86)", "users"})
_MOST_FOLDERS: Final = 4096
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class BundlePlaces:
    """The paths of one container on this machine."""

    prefix: Path
    drive: Path
    """Its C: drive: its snapshot, or the node's for a HostProcess container."""


def bundle_places(request: ContainerRequest) -> BundlePlaces:
    host_process = request.sandbox.plan.host_process
    drive = Path(request.host.real("C:\\")) if host_process else request.snapshot
    return BundlePlaces(request.folder / "platform" / "prefix", drive)


def make_root(
    installation: WineInstallation, user: WindowsUser, helpers: Helpers, request: ContainerRequest
) -> Path:
    node = request.folder.parents[1]
    drive = bundle_places(request).drive
    hosts = f"{_DRIVE_C}/{drives.spelled_path(drive, _HOSTS.split('/'))}"
    folders = (*_FOLDERS, *(target[1:] for _, target in unix_half.binds(installation.folders)))
    return roots.prefix_root(
        node / "roots", folders, jobs.PREFIX, hosts, user, helpers, request.sandbox.config.dns
    )


def bundle_adapter(request: ContainerRequest) -> str:
    """The registry entries of the container's network adapter, which some programs read
    directly.
    """
    dns, text = request.sandbox.config.dns, registry.registry_text
    suffix = "".join(dns.searches[:1])
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, request.sandbox.id)).upper()
    values = {
        "EnableDHCP": registry.registry_number(0),
        "NameServer": text(",".join(dns.servers)),
        "Domain": text(suffix),
        "SearchList": text(suffix),
    }
    return registry.registry_section(rf"{_ADAPTERS}\{{{name}}}", values)


def make_prefix(at: Path, owner: int, request: ContainerRequest) -> None:
    """Surrounds the template's content."""
    (at / "drive_c").mkdir()
    jobs.make_jobs_folder(at, owner)
    letters = {
        drives.split_windows_path(mount.container_path)[0]
        for mount in request.config.mounts
        if not pipe_name(mount)
    }
    for letter in sorted(letters - {"c"}):
        (at / drives.drive_folder(letter)).mkdir(parents=True)
        (at / "dosdevices" / f"{letter}:").symlink_to(f"../{drives.drive_folder(letter)}")
    for path in (at, at / "dosdevices", *at.glob("*.reg")) if owner else ():
        os.chown(path, owner, owner)


def let_users_write(snapshot: Path, layers: Iterable[Path]) -> None:
    """Like Windows' own permissions: users may add files anywhere except in system directories."""
    os.chmod(snapshot, 0o1777)
    root = os.open(snapshot, _DIRECTORY)
    try:
        _let_write_below(root, layers)
    finally:
        os.close(root)


def _let_write_below(root: int, layers: Iterable[Path]) -> None:
    count = 0
    for layer in layers:
        for place, folders, _ in os.walk(layer):
            if place == str(layer):
                folders[:] = [name for name in folders if name.lower() not in _PROTECTED]
            else:
                _let_write(root, os.path.relpath(place, layer))
                count += 1
            if count > _MOST_FOLDERS:
                return


def _let_write(root: int, path: str) -> None:
    """A directory of the snapshot, unless its path contains one of the image's links: that may
    point anywhere.
    """
    fd = os.dup(root)
    try:
        for name in path.split("/"):
            inner = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.fchmod(fd, 0o1777)
    except OSError:
        return  # a link, or something that another layer has put in its place
    finally:
        os.close(fd)


def make_user_profile(snapshot: Path, profile: PurePosixPath, owner: int) -> None:
    """Creates the profile directories of a user, if there are none. Links of the image are followed
    only inside the snapshot.
    """
    files = RealFiles(snapshot)
    try:
        if files.exists(f"/{profile}"):
            return
        for name in ("", *PROFILE):
            files.mkdir(f"/{profile}/{name}".rstrip("/"))
        made = {
            part for row in PROFILE for part in (PurePosixPath(row), *PurePosixPath(row).parents)
        }
        for part in made if owner else ():
            files.chown(f"/{profile}/{part}", owner, owner)
    finally:
        files.close()


def make_directory(snapshot: Path, place: tuple[str, Sequence[str]], owner: int) -> None:
    """Creates a missing working directory on C:, as the runtime does."""
    letter, names = place
    if letter != "c" or not names:
        return
    path = f"/{drives.spelled_path(snapshot, names)}"
    files = RealFiles(snapshot)
    try:
        if not files.exists(path):
            files.mkdir(path)
            if owner:
                files.chown(path, owner, owner)
    finally:
        files.close()


def announce_names(snapshot: Path, hostname: str, addresses: Iterable[str]) -> None:
    """The configuration of the helper wdns.so."""
    lines = [
        "127.0.0.1 localhost",
        "::1 localhost",
        *(f"{address} {hostname}" for address in addresses),
    ]
    files = RealFiles(snapshot)
    try:
        files.append(f"/{_HOSTS}", "".join(f"{line}\r\n" for line in lines).encode())
    finally:
        files.close()


def pipe_name(mount: Mount) -> str:
    """The name of a named pipe, empty for other mounts."""
    match = drives.PIPE.fullmatch(mount.container_path.replace("/", "\\"))
    return match[1] if match else ""


def destinations(snapshot: Path, mounts: Iterable[Mount]) -> list[tuple[Mount, str]]:
    """Their destinations, with the spelling of existing paths; nested ones come after their
    parents.
    """
    found: list[tuple[Mount, str]] = []
    known: dict[tuple[str, ...], PurePosixPath] = {}
    for mount in sorted(
        mounts, key=lambda mount: len(drives.split_windows_path(mount.container_path)[1])
    ):
        letter, names = drives.split_windows_path(mount.container_path)
        folded = (letter, *(name.lower() for name in names))
        outer = next((end for end in range(len(names), 0, -1) if folded[: end + 1] in known), 0)
        if outer:
            path = known[folded[: outer + 1]].joinpath(*names[outer:])
        else:
            actual_path = (
                drives.spelled_path(snapshot, names) if letter == "c" else PurePosixPath(*names)
            )
            path = PurePosixPath(jobs.PREFIX, drives.drive_folder(letter)) / actual_path
        known[folded] = path
        found.append((mount, str(path)))
    return found


def wine_process(
    installation: WineInstallation,
    user: WindowsUser,
    args: Sequence[str],
    address: str,
    helpers: Helpers,
    *,
    data: int,
    extra: Iterable[tuple[str, str]] = (),
) -> Spec:
    """`data`: from `limits.of_process`. runc needs more than a small program, so the limit is set
    after it.
    """
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
        "rlimits": [{"type": "RLIMIT_DATA", "soft": data, "hard": data}]
        if data and not by_itself
        else [],
        "capabilities": dict.fromkeys(
            ("bounding", "effective", "permitted", "inheritable", "ambient"), names
        ),
    }


def first_args(
    installation: WineInstallation,
    helpers: Helpers,
    request: ContainerRequest,
    command: Sequence[str],
) -> list[str]:
    """The command prefixed with the init, if there is one."""
    if helpers.get("init") is None:
        return list(command)
    args = ["/init"]
    if helpers.get("winctrl.exe") is not None and helpers.get("winrun.exe") is not None:
        args += [
            "-s",
            f"{jobs.job_path_inside(jobs.MAIN)}.status",
            "-c",
            _WINCTRL,
            "-g",
            str(_SHUTDOWN_TURN_MS),
            "-t",
            jobs.job_path_inside(jobs.SHUTDOWN),
        ]
    if helpers.get("pipeserve.exe") is not None:
        for number, name in enumerate(pipes(request)):
            args += ["-p", rf"\\.\pipe\{name}", f"{_PIPES}/{number}"]
    return [*args, "--", *command]


def pipes(request: ContainerRequest) -> list[str]:
    return [name for mount in request.config.mounts if (name := pipe_name(mount))]


def wine_specification(
    installation: WineInstallation,
    request: ContainerRequest,
    root: Path,
    process: Spec,
    replacements: Mapping[Path, Path],
    drive_mounts: Sequence[Spec],
) -> Spec:
    """`replacements`: see `Template.replacements`. `drive_mounts`: the C: drive, with what is
    mounted on it.
    """
    sandbox = request.sandbox
    mounts: list[Spec] = [
        _mount("/proc", "proc", ()),
        _mount("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
        _mount(
            "/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")
        ),
        _mount("/dev/shm", "tmpfs", ("nosuid", "nodev", "mode=1777", "size=65536k")),
        _mount("/tmp", "tmpfs", ("nosuid", "nodev", "mode=1777")),
        *(_bind(folder, folder, "ro") for folder in installation.folders),
        *(_bind(str(file), str(place), "ro") for place, file in replacements.items()),
        *(_bind(folder, folder, "ro") for folder in _FONTS if os.path.isdir(folder)),
        *(_bind(source, target, "ro") for source, target in unix_half.binds(installation.folders)),
        _bind(str(bundle_places(request).prefix), jobs.PREFIX, "rw"),
        *drive_mounts,
    ]
    piped = [mount for mount in request.config.mounts if pipe_name(mount)]
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
            "seccomp": seccomp.default_seccomp_profile(
                process["capabilities"]["bounding"], native=not installation.runs_32_bit
            ),
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def container_drive(request: ContainerRequest) -> list[Spec]:
    """The C: drive of a container, with its volumes."""
    volumes = destinations(
        request.snapshot, (mount for mount in request.config.mounts if not pipe_name(mount))
    )
    return [
        _bind(str(request.snapshot), _DRIVE_C, "rw"),
        *(request.host.bind(mount, path) for mount, path in volumes),
    ]


def host_process_drive(
    request: ContainerRequest, mount_point: str, targets: Callable[[str], Sequence[str]]
) -> list[Spec]:
    """The node's C: drive, with the volume of the container at its mount point. `targets` of a
    volume's mount path are the paths at which it is mounted. Pipes are reached by their own path.
    """
    drive = bundle_places(request).drive
    names = drives.split_windows_path(mount_point)[1]
    volume = f"{_DRIVE_C}/{drives.spelled_path(drive, names)}"
    own = {**_bind(str(request.snapshot), volume, "rw"), SHARED: True}
    found = [
        replace(mount, container_path=target)
        for mount in request.config.mounts
        if not pipe_name(mount)
        for target in targets(mount.container_path)
    ]
    node = Mount("C:\\", "C:\\")
    return [
        request.host.bind(node, _DRIVE_C),
        own,
        *(request.host.bind(mount, path) for mount, path in destinations(drive, found)),
    ]


def _mount(destination: str, kind: str, options: Sequence[str]) -> Spec:
    return {"destination": destination, "type": kind, "source": kind, "options": list(options)}


def _bind(source: str, destination: str, mode: str) -> Spec:
    options = ["rbind", "rprivate", mode, "nosuid", "nodev"]
    return {"destination": destination, "type": "bind", "source": source, "options": options}
