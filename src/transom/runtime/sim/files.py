"""A container's files: the image's tree, host mounts, and the few files that a runtime writes
itself.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from transom.kit.lazy import lazy_import
from transom.machines.api import HostPathMount
from transom.machines.apparmor import loaded_profiles
from transom.machines.container_files import LayeredFiles
from transom.machines.inodes import Inode
from transom.machines.linux import LinuxHost
from transom.machines.styles import POSIX
from transom.machines.trees import TreeFile, make_tree, with_share
from transom.machines.windows.host import WindowsHost
from transom.network.api import DnsConfig
from transom.runtime.api import ContainerConfig, Mount, RuntimeFailure
from transom.runtime.imagevolumes import (
    IMAGE_VOLUMES_ON_WINDOWS,
    image_sub_path_is_file,
    image_sub_path_missing,
    image_volume_path,
)
from transom.runtime.sim.catalogue import CatalogueImage
from transom.runtime.sim.records import SimContainer
from transom.runtime.sim.rootfs import root_of
from transom.runtime.sim.texts import RuntimeTexts

if TYPE_CHECKING:
    from transom.windows import limits as windows_limits
    from transom.windows import match as windows_match
    from transom.windows import records as windows_records
else:
    windows_limits = lazy_import("transom.windows.limits")
    windows_match = lazy_import("transom.windows.match")
    windows_records = lazy_import("transom.windows.records")

_MOST_MOUNTS = 5_000  # of a container; Linux allows 100,000 for all of a mount namespace
PIPES = "\\\\.\\pipe\\"


def make_container_files(
    host: LinuxHost | WindowsHost,
    container: SimContainer,
    hostname: str,
    texts: RuntimeTexts,
    *,
    docker: bool,
    images: Callable[[str], CatalogueImage | None],
) -> LayeredFiles:
    """`images` finds an image by its id. Raises RuntimeFailure."""
    config, identity = container.config, container.id
    root = base_tree(host, container, docker=docker)
    read_only = _read_only(container)
    if read_only:  # they cannot be written later
        root = make_tree(
            POSIX,
            {path: TreeFile(text.encode()) for path, text in _etc(container, hostname).items()},
            root,
        )
    files = host.container_files(root, read_only=read_only)
    if len(config.mounts) > _MOST_MOUNTS:
        raise texts.create_failed(identity, f"failed to mount: {os.strerror(errno.ENOSPC)}")
    for mount in config.mounts:
        if mount.image:
            _mount_image(host, container, files, mount, images(mount.image), texts)
            continue
        if isinstance(host, WindowsHost) and docker:
            _check_docker_mount(
                host, mount.host_path, mount.container_path, mount.read_only, texts, identity
            )
        where = HostPathMount(mount.container_path, mount.host_path, mount.read_only)
        try:
            _add_mount(host, files, where)
        except OSError as error:
            raise texts.create_failed(
                identity, f"failed to mount {mount.host_path}: {error.strerror}"
            ) from error
    for device in config.devices:
        source, target, permissions = device.rsplit(":", 2)
        try:
            files.add_mounts((HostPathMount(target, source, "w" not in permissions),))
        except OSError as error:
            raise texts.create_failed(
                identity,
                (
                    f'error gathering device information while adding custom device "{source}": '
                    f"{error.strerror}"
                ),
            ) from error
    return files


def _add_mount(host: LinuxHost | WindowsHost, files: LayeredFiles, mount: HostPathMount) -> None:
    """Mounts a path of the node, which is created if it is missing. Raises OSError."""
    try:
        files.add_mounts((mount,))
    except OSError as error:
        if error.errno != errno.ENOENT or mount.host_path.startswith(PIPES):
            raise
        host.files.mkdir(mount.host_path)  # both runtimes create missing paths
        files.add_mounts((mount,))


def _mount_image(
    host: LinuxHost | WindowsHost,
    container: SimContainer,
    files: LayeredFiles,
    mount: Mount,
    image: CatalogueImage | None,
    texts: RuntimeTexts,
) -> None:
    """Raises RuntimeFailure."""
    if isinstance(host, WindowsHost):  # containerd on Windows sees a mount without a host path
        raise texts.create_failed(container.id, IMAGE_VOLUMES_ON_WINDOWS)
    if image is None:
        raise texts.no_image(mount.image)
    source = host.container_files(root_of(image.info))
    path = f"/{mount.image_sub_path}" if mount.image_sub_path else "/"
    within = image_volume_path(container.sandbox.id, mount.image)
    if not source.exists(path):
        raise image_sub_path_missing(mount, within)
    if source.stat(path).kind != "directory":
        raise image_sub_path_is_file(mount, within)
    files.add_tree(mount.container_path, source.share(path, True))


def base_tree(host: LinuxHost | WindowsHost, container: SimContainer, *, docker: bool) -> Inode:
    """The lower layer of a container's writable layer."""
    root = root_of(container.spec.info)
    if container.spec.platform.os == "linux":
        return _with_resolv_conf(root, container.sandbox.config.dns)
    return (
        _with_domain_shares(root, container.config, host, docker)
        if isinstance(host, WindowsHost)
        else root
    )


def _with_domain_shares(
    root: Inode, config: ContainerConfig, host: WindowsHost, docker: bool
) -> Inode:
    """Shares that every domain has, for a container with a domain account. With containerd that
    account works there only after a Windows update.
    """
    spec = config.windows.credential_spec if config.windows is not None else ""
    if not spec:
        return root

    runtime: Literal["docker", "containerd"] = "docker" if docker else "containerd"
    node = windows_records.NodeTarget(
        build=host.build.number, runtime=runtime, revision=host.build.ubr
    )
    names = domain_names(spec)
    if not names or windows_match.record_holds(windows_limits.LIMITS["WIN-SEC-021"], node):
        return root
    return _domain_shares(root, names)


def domain_names(credential_spec: str) -> tuple[str, ...]:
    """The names of the domain that a credential spec joins, longest first; none if it cannot be
    read.
    """
    try:
        joined = json.loads(credential_spec)["DomainJoinConfig"]
        return tuple(str(joined[key]) for key in ("DnsName", "NetBiosName") if joined.get(key))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


@lru_cache(maxsize=64)
def _domain_shares(root: Inode, names: tuple[str, ...]) -> Inode:
    for name in names:
        root = with_share(
            root, rf"\\{name}\SYSVOL", (rf"{names[0]}\Policies", rf"{names[0]}\scripts")
        )
        root = with_share(root, rf"\\{name}\NETLOGON", ())
    return root


def _check_docker_mount(
    host: WindowsHost, source: str, target: str, read_only: bool, texts: RuntimeTexts, identity: str
) -> None:
    """Docker on Windows accepts only existing directories and pipes."""
    if target.lower().replace("/", "\\") in ("c:", "c:\\"):
        shown = target.lower().replace("/", "\\")
        why = f"destination path cannot be `c:` or `c:\\`: {shown}"
        raise texts.create_failed(
            identity,
            f"invalid volume specification: '{source}:{target}': invalid mount config: {why}",
        )
    if source.startswith(PIPES):
        return
    volume = f"{source}:{target}" + (":ro" if read_only else "")
    start = f"invalid volume specification: '{volume}': invalid mount config for type \"bind\": "
    if not host.files.exists(source):
        raise texts.create_failed(identity, f"{start}bind source path does not exist: {source}")
    if host.files.stat(source).kind != "directory":
        raise texts.create_failed(identity, f"{start}source path must be a directory")


def check_seccomp(
    host: LinuxHost | WindowsHost, config: ContainerConfig, texts: RuntimeTexts, *, docker: bool
) -> None:
    """A profile must exist on the node. Raises RuntimeFailure."""
    profile = config.linux.seccomp if config.linux is not None else ""
    path = profile.removeprefix("localhost/")
    if path == profile or isinstance(host, WindowsHost) or host.files.exists(path):
        return
    missing = f"open {path}: no such file or directory"
    if docker:
        start = f'failed to generate security options for container "{config.name}": '
        problem = (
            "failed to generate seccomp security options for container: cannot load seccomp "
            f'profile "{path}": {missing}'
        )
        raise RuntimeFailure("Unknown", start + problem)
    raise texts.create_failed(
        config.name,
        f"failed to generate seccomp spec opts: failed to load seccomp profile: {missing}",
    )


def check_apparmor(
    host: LinuxHost | WindowsHost, config: ContainerConfig, texts: RuntimeTexts
) -> None:
    """A profile must be loaded on the node. Raises RuntimeFailure."""
    profile = config.linux.apparmor if config.linux is not None else ""
    name = profile.removeprefix("localhost/")
    if name == profile or isinstance(host, WindowsHost) or name in loaded_profiles(host.files):
        return
    raise texts.create_failed(
        config.name, f"failed to generate apparmor spec opts: apparmor profile not found {name}"
    )


def prepare_etc(container: SimContainer, hostname: str) -> None:
    """Writes what a Linux runtime puts into /etc for this pod, once, on the first access to the
    files.
    """
    if container.prepared:
        return
    container.prepared = True
    if _read_only(container):
        return
    if container.spec.platform.os == "linux":
        mounted = {mount.container_path for mount in container.config.mounts}
        for path, text in _etc(container, hostname).items():
            if path not in mounted:
                container.files.write(path, text.encode())
    path = container.config.working_dir or container.spec.working_dir
    if container.host_process:
        return  # the node's files, and a directory that may contain a variable
    if path and not container.files.exists(path):
        container.files.mkdir(path)


def _read_only(container: SimContainer) -> bool:
    linux = container.config.linux
    return linux is not None and linux.read_only_root and container.spec.platform.os == "linux"


def _etc(container: SimContainer, hostname: str) -> dict[str, str]:
    sandbox = container.sandbox
    own = sandbox.addresses[0] if sandbox.addresses else "127.0.1.1"
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": (
            f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}\t{hostname}\n"
        ),
    }


@lru_cache(maxsize=256)
def _with_resolv_conf(root: Inode, dns: DnsConfig) -> Inode:
    """Shared by the pods of a namespace."""
    rows = [f"nameserver {server}\n" for server in dns.servers]
    if dns.searches:
        rows.append(f"search {' '.join(dns.searches)}\n")
    if dns.options:
        rows.append(f"options {' '.join(dns.options)}\n")
    return make_tree(POSIX, {"/etc/resolv.conf": TreeFile("".join(rows).encode())}, root)
