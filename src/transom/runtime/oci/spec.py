"""A Linux container's OCI specification from CRI's configuration and its image, as containerd
generates it.
"""

from __future__ import annotations

import os
import posixpath
import resource
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.machines.realfiles import RealFiles
from transom.machines.smallfiles import read_small_file
from transom.runtime.api import ContainerConfig, LinuxContainer, Mount
from transom.runtime.native import cgroups, image_volumes
from transom.runtime.native.monitor.staging import MAPPED, SHARED
from transom.runtime.native.pause import map_pause_users
from transom.runtime.native.platform import ContainerRequest, Spec
from transom.runtime.oci import capabilities, seccomp, users

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TERM: Final = "TERM=xterm"
_MOST_FILES: Final = 1 << 20
_LARGEST_USERS: Final = 1 << 20  # bytes of /etc/passwd and /etc/group of an image
_NO_ACCESS: Final = {"allow": False, "access": "rwm"}
_PROC: Final = {
    "destination": "/proc",
    "type": "proc",
    "source": "proc",
    "options": ["nosuid", "noexec", "nodev"],
}


class BadContainer(Exception):
    """The container cannot be created; the text is containerd's, without its prefix."""


def oci_command_line(config: ContainerConfig, image: Mapping[str, Any]) -> list[str]:
    """The container's own command replaces the image's entrypoint and command."""
    entrypoint = config.command or tuple(image.get("Entrypoint") or ())
    arguments = config.args or (() if config.command else tuple(image.get("Cmd") or ()))
    return [*entrypoint, *arguments]


def oci_image_config(request: ContainerRequest) -> Mapping[str, Any]:
    return request.image.config.get("config") or {}


def oci_specification(request: ContainerRequest, *, with_seccomp: bool, rootless: bool) -> Spec:
    """Raises users.NoUser, capabilities.UnknownCapability, seccomp.BadProfile, BadContainer."""
    config, image = request.config, oci_image_config(request)
    linux = config.linux or LinuxContainer()
    user = (
        users.OciUser(0, 0, ()) if rootless else _user(request, linux, str(image.get("User") or ""))
    )
    held = capabilities.container_capabilities(
        linux.add_capabilities, linux.drop_capabilities, privileged=linux.privileged
    )
    devices, device_rules = _devices(request, linux)
    spec: Spec = {
        "process": {
            "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
            "args": oci_command_line(config, image),
            "env": oci_environment(config, image, request.sandbox.plan.hostname),
            "cwd": config.working_dir or str(image.get("WorkingDir") or "") or "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
            "rlimits": [_open_files()],
            "noNewPrivileges": linux.no_new_privileges and not linux.privileged,
            "oomScoreAdj": linux.resources.oom_score_adj,
        },
        "root": {"path": str(request.snapshot), "readonly": linux.read_only_root},
        "mounts": _mounts(request, linux),
        "linux": {
            "namespaces": _namespaces(request, linux),
            "resources": {"devices": device_rules},
            "devices": devices,
            "maskedPaths": [] if linux.privileged else list(linux.masked_paths),
            "readonlyPaths": [] if linux.privileged else list(linux.read_only_paths),
        },
    }
    if any(mount.propagation == "bidirectional" for mount in config.mounts):
        spec["linux"]["rootfsPropagation"] = "rshared"
    elif any(mount.propagation == "hostToContainer" for mount in config.mounts):
        spec["linux"]["rootfsPropagation"] = "rslave"
    if linux.apparmor.startswith("localhost/") and not linux.privileged:
        spec["process"]["apparmorProfile"] = linux.apparmor.removeprefix("localhost/")
    profile = _seccomp(request, linux, held)
    if profile is not None and with_seccomp:
        spec["linux"]["seccomp"] = profile
    if rootless:
        _fit_for_one_user(spec)
    if request.sandbox.plan.own_users:
        map_pause_users(spec, request.sandbox.plan.first_id)
    return spec


def oci_environment(config: ContainerConfig, image: Mapping[str, Any], hostname: str) -> list[str]:
    found = {"PATH": PATH, "HOSTNAME": hostname}
    if config.tty:
        found["TERM"] = "xterm"
    for entry in image.get("Env") or ():
        name, _, value = entry.partition("=")
        found[name] = value
    found.update(config.env)
    return [f"{name}={value}" for name, value in found.items()]


def oci_exec_process(spec: Spec, command: Sequence[str], *, tty: bool) -> Spec:
    """A command in a container with this specification."""
    process = {**spec["process"], "args": list(command), "terminal": tty}
    if tty and not any(entry.startswith("TERM=") for entry in process["env"]):
        process["env"] = [*process["env"], _TERM]
    return process


def _user(request: ContainerRequest, linux: LinuxContainer, of_image: str) -> users.OciUser:
    files = RealFiles(request.snapshot)

    def read(path: str) -> str:
        try:
            return read_small_file(files, path, _LARGEST_USERS).decode(errors="replace")
        except OSError:
            return ""

    try:
        return users.find_oci_user(linux, of_image, read)
    finally:
        files.close()


def _open_files() -> Spec:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    return {"type": "RLIMIT_NOFILE", "soft": limit, "hard": limit}


# ---- namespaces and mounts ----


def _namespaces(request: ContainerRequest, linux: LinuxContainer) -> list[Spec]:
    sandbox = request.sandbox
    held = f"/proc/{sandbox.pid}/ns"
    found: list[Spec] = [
        {"type": "mount"},
        {"type": "uts", "path": f"{held}/uts"},
        {"type": "network", "path": f"{held}/net"},
    ]
    if sandbox.plan.own_users:
        found.append({"type": "user", "path": f"{held}/user"})
    if sandbox.plan.ipc:
        found.append({"type": "ipc", "path": f"{held}/ipc"})
    match linux.pid_namespace:
        case "container":
            found.append({"type": "pid"})
        case "pod":
            found.append({"type": "pid", "path": f"{held}/pid"})
        case "target":
            if not request.target_pid:
                raise BadContainer(
                    f'invalid target container: container "{linux.target_id}" is not running'
                )
            found.append({"type": "pid", "path": f"/proc/{request.target_pid}/ns/pid"})
        case "node":
            pass
    if cgroups.cgroup_hierarchies().version == 2 and not linux.privileged:
        # it sees its own group as the root, and none of the machine's
        found.append({"type": "cgroup"})
    return found


def _mounts(request: ContainerRequest, linux: LinuxContainer) -> list[Spec]:
    sandbox, config = request.sandbox, request.config
    access = "rw" if linux.privileged else "ro"
    shared_memory = str(sandbox.folder / "shm") if sandbox.plan.ipc else "/dev/shm"
    found: list[Spec] = [
        _PROC,
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        {
            "destination": "/dev/pts",
            "type": "devpts",
            "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        },
        {
            "destination": "/dev/mqueue",
            "type": "mqueue",
            "source": "mqueue",
            "options": ["nosuid", "noexec", "nodev"],
        },
        {
            "destination": "/sys",
            "type": "sysfs",
            "source": "sysfs",
            "options": ["nosuid", "noexec", "nodev", access],
        },
        {
            "destination": "/sys/fs/cgroup",
            "type": "cgroup",
            "source": "cgroup",
            "options": ["nosuid", "noexec", "nodev", "relatime", access],
        },
    ]
    taken = {posixpath.normpath(mount.container_path) for mount in config.mounts}
    own = ("ro" if linux.read_only_root else "rw",)
    for name in ("hostname", "hosts", "resolv.conf"):
        if f"/etc/{name}" not in taken:
            found.append(_bind(str(sandbox.folder / name), f"/etc/{name}", *own))
    if "/dev/shm" not in taken:
        found.append({**_bind(shared_memory, "/dev/shm", "rw"), SHARED: True})
    defaults = [entry for entry in found if entry["destination"] not in taken]
    # Outer mounts first: they may contain inner ones.
    wanted = sorted(
        config.mounts, key=lambda mount: posixpath.normpath(mount.container_path).count("/")
    )
    return [*defaults, *(_volume(request, mount) for mount in wanted)]


def _volume(request: ContainerRequest, mount: Mount) -> Spec:
    if not mount.image:
        return request.host.bind(mount, mount.container_path)
    number = request.config.mounts.index(mount)
    root = request.folder / image_volumes.FOLDER / str(number) / "rootfs"
    source = str(image_volumes.image_source(root, mount))
    return {**_bind(source, mount.container_path, "ro"), MAPPED: True}


def _bind(source: str, destination: str, access: str) -> Spec:
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", "rprivate", access],
    }


# ---- devices ----


def _devices(request: ContainerRequest, linux: LinuxContainer) -> tuple[list[Spec], list[Spec]]:
    """Devices and their access rules. runc provides the standard ones (null, zero, random, tty and
    so on) in every container.
    """
    if linux.privileged:
        return _all_devices(), [{"allow": True, "access": "rwm"}]
    found: list[Spec] = []
    rules: list[Spec] = [_NO_ACCESS]
    for device in request.config.devices:
        source, destination, permissions = device.rsplit(":", 2)
        try:
            made = _device(request.host.device(source), destination)
        except OSError as problem:
            text = (problem.strerror or "").lower()
            raise BadContainer(f"failed to generate spec: lstat {source}: {text}") from problem
        if made is None:
            raise BadContainer(f"failed to generate spec: {source}: not a device node")
        found.append(made)
        rules.append(
            {
                "allow": True,
                "type": made["type"],
                "major": made["major"],
                "minor": made["minor"],
                "access": permissions,
            }
        )
    return found, rules


def _device(status: os.stat_result, destination: str) -> Spec | None:
    kind = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    if not kind:
        return None
    return {
        "path": destination,
        "type": kind,
        "major": os.major(status.st_rdev),
        "minor": os.minor(status.st_rdev),
        "fileMode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }


_OWN_DEVICES: Final = (
    "pts",
    "shm",
    "fd",
    "mqueue",
    "console",
    "ptmx",
    "core",
    "stdin",
    "stdout",
    "stderr",
)


def _all_devices() -> list[Spec]:
    """The devices of this machine."""
    found = []
    for folder, inner, names in os.walk("/dev"):
        inner[:] = [name for name in inner if name not in _OWN_DEVICES]
        for name in names:
            if name not in _OWN_DEVICES:
                path = os.path.join(folder, name)
                try:
                    device = _device(os.lstat(path), path)
                except FileNotFoundError:
                    continue
                if device is not None:
                    found.append(device)
    return found


# ---- system calls ----


def _seccomp(request: ContainerRequest, linux: LinuxContainer, held: Sequence[str]) -> Spec | None:
    wanted = linux.seccomp
    if linux.privileged or wanted == "unconfined":
        return None
    if not wanted:
        # Kubernetes applies no filter by default. Here containers share the machine of the user who
        # runs them, so they get one.
        return seccomp.default_seccomp_profile(held, old_abis=False)
    if wanted in ("runtime/default", "docker/default"):
        return seccomp.default_seccomp_profile(held)
    if not wanted.startswith("localhost/"):
        raise BadContainer(
            f'failed to generate seccomp spec opts: unknown seccomp profile "{wanted}"'
        )
    path = wanted.removeprefix("localhost/")
    try:
        data = request.host.read(path)
    except OSError as problem:
        text = (problem.strerror or "").lower()
        raise BadContainer(
            "failed to generate seccomp spec opts: failed to load seccomp profile: open "
            f"{path}: {text}"
        ) from problem
    return seccomp.seccomp_profile_from_file(data, held)


# ---- without root ----


def _fit_for_one_user(spec: Spec) -> None:
    """In a user namespace that has only root, no other user can own anything."""
    spec["process"]["user"] = {"uid": 0, "gid": 0}
    spec["process"].pop("oomScoreAdj", None)
    spec["linux"].pop("resources", None)
    spec["linux"]["devices"] = []
    kept = []
    for entry in spec["mounts"]:
        if entry["type"] in ("cgroup", "mqueue"):
            continue
        if entry["type"] == "sysfs":  # only the owner of the network namespace may mount one
            entry = {
                "destination": "/sys",
                "type": "bind",
                "source": "/sys",
                "options": ["rbind", "rprivate", "ro"],
            }
        if entry["type"] == "devpts":
            entry = {
                **entry,
                "options": [option for option in entry["options"] if not option.startswith("gid=")],
            }
        kept.append(entry)
    spec["mounts"] = kept
