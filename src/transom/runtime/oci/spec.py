"""A Linux container's OCI specification from CRI's configuration and its image, as containerd makes it."""

from __future__ import annotations

import os
import posixpath
import resource
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.hosts.realfiles import RealFiles
from transom.runtime.api import ContainerConfig, LinuxContainer
from transom.runtime.native import cgroups
from transom.runtime.native.platform import ContainerRequest, Spec
from transom.runtime.oci import capabilities, seccomp, users

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TERM: Final = "TERM=xterm"
_MOST_FILES: Final = 1 << 20
_NO_ACCESS: Final = {"allow": False, "access": "rwm"}
_PROC: Final = {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}


class BadContainer(Exception):
    """It cannot be made so; the text is containerd's, without its beginning."""


def command_line(config: ContainerConfig, image: Mapping[str, Any]) -> list[str]:
    """A command of the container's own leaves nothing of the image's."""
    entrypoint = config.command or tuple(image.get("Entrypoint") or ())
    arguments = config.args or (() if config.command else tuple(image.get("Cmd") or ()))
    return [*entrypoint, *arguments]


def image_config(request: ContainerRequest) -> Mapping[str, Any]:
    return request.image.config.get("config") or {}


def specification(request: ContainerRequest, *, with_seccomp: bool, rootless: bool) -> Spec:
    """Raises users.NoUser, capabilities.UnknownCapability, seccomp.BadProfile, BadContainer."""
    config, image = request.config, image_config(request)
    linux = config.linux or LinuxContainer()
    user = users.User(0, 0, ()) if rootless else _user(request, linux, str(image.get("User") or ""))
    held = capabilities.of_container(linux.add_capabilities, linux.drop_capabilities, privileged=linux.privileged)
    devices, device_rules = _devices(request, linux)
    spec: Spec = {
        "process": {
            "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
            "args": command_line(config, image),
            "env": environment(config, image, request.sandbox.plan.hostname),
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
    return spec


def environment(config: ContainerConfig, image: Mapping[str, Any], hostname: str) -> list[str]:
    found = {"PATH": PATH, "HOSTNAME": hostname}
    if config.tty:
        found["TERM"] = "xterm"
    for entry in image.get("Env") or ():
        name, _, value = entry.partition("=")
        found[name] = value
    found.update(config.env)
    return [f"{name}={value}" for name, value in found.items()]


def exec_process(spec: Spec, command: Sequence[str], *, tty: bool) -> Spec:
    """A command in a container with this specification."""
    process = {**spec["process"], "args": list(command), "terminal": tty}
    if tty and not any(entry.startswith("TERM=") for entry in process["env"]):
        process["env"] = [*process["env"], _TERM]
    return process


def _user(request: ContainerRequest, linux: LinuxContainer, of_image: str) -> users.User:
    files = RealFiles(request.snapshot)

    def read(path: str) -> str:
        try:
            return files.read(path).decode(errors="replace")
        except OSError:
            return ""

    try:
        return users.find(linux, of_image, read)
    finally:
        files.close()


def _open_files() -> Spec:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    return {"type": "RLIMIT_NOFILE", "soft": limit, "hard": limit}


# ---- namespaces and mounts -------------------------------------------------------------------------------------------


def _namespaces(request: ContainerRequest, linux: LinuxContainer) -> list[Spec]:
    sandbox = request.sandbox
    held = f"/proc/{sandbox.pid}/ns"
    found: list[Spec] = [
        {"type": "mount"}, {"type": "uts", "path": f"{held}/uts"}, {"type": "network", "path": f"{held}/net"},
    ]  # fmt: skip
    if sandbox.plan.ipc:
        found.append({"type": "ipc", "path": f"{held}/ipc"})
    match linux.pid_namespace:
        case "container":
            found.append({"type": "pid"})
        case "pod":
            found.append({"type": "pid", "path": f"{held}/pid"})
        case "target":
            if not request.target_pid:
                raise BadContainer(f'invalid target container: container "{linux.target_id}" is not running')
            found.append({"type": "pid", "path": f"/proc/{request.target_pid}/ns/pid"})
        case "node":
            pass
    if cgroups.hierarchies().version == 2 and not linux.privileged:
        found.append({"type": "cgroup"})  # it sees its own group as the root, and none of the machine's
    return found


def _mounts(request: ContainerRequest, linux: LinuxContainer) -> list[Spec]:
    sandbox, config = request.sandbox, request.config
    access = "rw" if linux.privileged else "ro"
    shared_memory = str(sandbox.folder / "shm") if sandbox.plan.ipc else "/dev/shm"
    found: list[Spec] = [
        _PROC,
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", access]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
         "options": ["nosuid", "noexec", "nodev", "relatime", access]},
    ]  # fmt: skip
    taken = {posixpath.normpath(mount.container_path) for mount in config.mounts}
    own = ("ro" if linux.read_only_root else "rw",)
    for name in ("hostname", "hosts", "resolv.conf"):
        if f"/etc/{name}" not in taken:
            found.append(_bind(str(sandbox.folder / name), f"/etc/{name}", *own))
    if "/dev/shm" not in taken:
        found.append(_bind(shared_memory, "/dev/shm", "rw"))
    defaults = [entry for entry in found if entry["destination"] not in taken]
    # The outer ones first: an inner one may be in them.
    wanted = sorted(config.mounts, key=lambda mount: posixpath.normpath(mount.container_path).count("/"))
    return [*defaults, *(request.host.bind(mount, mount.container_path) for mount in wanted)]


def _bind(source: str, destination: str, access: str) -> Spec:
    return {"destination": destination, "type": "bind", "source": source, "options": ["rbind", "rprivate", access]}


# ---- devices ---------------------------------------------------------------------------------------------------------


def _devices(request: ContainerRequest, linux: LinuxContainer) -> tuple[list[Spec], list[Spec]]:
    """And who may use them. runc has the usual ones (null, zero, random, tty and so on) in every container."""
    if linux.privileged:
        return _all_devices(), [{"allow": True, "access": "rwm"}]
    found: list[Spec] = []
    rules: list[Spec] = [_NO_ACCESS]
    for device in request.config.devices:
        source, destination, permissions = device.rsplit(":", 2)
        try:
            made = _device(request.host.real(source), destination)
        except OSError as problem:
            text = (problem.strerror or "").lower()
            raise BadContainer(f'failed to generate spec: lstat {source}: {text}') from problem
        if made is None:
            raise BadContainer(f'failed to generate spec: {source}: not a device node')
        found.append(made)
        rules.append({"allow": True, "type": made["type"], "major": made["major"], "minor": made["minor"],
                      "access": permissions})  # fmt: skip
    return found, rules


def _device(source: str, destination: str) -> Spec | None:
    status = os.lstat(source)
    kind = "b" if stat.S_ISBLK(status.st_mode) else "c" if stat.S_ISCHR(status.st_mode) else ""
    if not kind:
        return None
    return {
        "path": destination, "type": kind, "major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev),
        "fileMode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid,
    }  # fmt: skip


_OWN_DEVICES: Final = ("pts", "shm", "fd", "mqueue", "console", "ptmx", "core", "stdin", "stdout", "stderr")


def _all_devices() -> list[Spec]:
    """Of this machine."""
    found = []
    for folder, inner, names in os.walk("/dev"):
        inner[:] = [name for name in inner if name not in _OWN_DEVICES]
        for name in names:
            if name not in _OWN_DEVICES:
                path = os.path.join(folder, name)
                try:
                    device = _device(path, path)
                except FileNotFoundError:
                    continue
                if device is not None:
                    found.append(device)
    return found


# ---- system calls ----------------------------------------------------------------------------------------------------


def _seccomp(request: ContainerRequest, linux: LinuxContainer, held: Sequence[str]) -> Spec | None:
    wanted = linux.seccomp
    if linux.privileged or wanted in ("", "unconfined"):
        return None
    if wanted in ("runtime/default", "docker/default"):
        return seccomp.default(held)
    if not wanted.startswith("localhost/"):
        raise BadContainer(f'failed to generate seccomp spec opts: unknown seccomp profile "{wanted}"')
    path = wanted.removeprefix("localhost/")
    try:
        with open(request.host.real(path), "rb") as file:
            data = file.read()
    except OSError as problem:
        text = (problem.strerror or "").lower()
        raise BadContainer(
            f"failed to generate seccomp spec opts: failed to load seccomp profile: open {path}: {text}"
        ) from problem
    return seccomp.from_file(data, held)


# ---- without root ----------------------------------------------------------------------------------------------------


def _fit_for_one_user(spec: Spec) -> None:
    """In a user namespace that has only root, nobody else can own anything."""
    spec["process"]["user"] = {"uid": 0, "gid": 0}
    spec["process"].pop("oomScoreAdj", None)
    spec["linux"].pop("resources", None)
    spec["linux"]["devices"] = []
    kept = []
    for entry in spec["mounts"]:
        if entry["type"] in ("cgroup", "mqueue"):
            continue
        if entry["type"] == "sysfs":  # only whoever owns the network namespace may mount one
            entry = {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "rprivate", "ro"]}
        if entry["type"] == "devpts":
            entry = {**entry, "options": [option for option in entry["options"] if not option.startswith("gid=")]}
        kept.append(entry)
    spec["mounts"] = kept
