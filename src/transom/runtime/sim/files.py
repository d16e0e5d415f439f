"""A container's files: the image's tree, mounts of the host, and the few files that a runtime writes itself."""

from __future__ import annotations

import errno
import json
from functools import lru_cache
from typing import Literal

from transom.hosts.api import Mounted
from transom.hosts.container_files import LayeredFiles
from transom.hosts.linux import LinuxHost
from transom.hosts.nodes import Node
from transom.hosts.styles import POSIX
from transom.hosts.trees import File, tree, with_share
from transom.hosts.windows.host import WindowsHost
from transom.network.api import DnsConfig
from transom.runtime.api import ContainerConfig, RuntimeFailure
from transom.runtime.sim.records import ContainerRecord
from transom.runtime.sim.rootfs import root_of
from transom.runtime.sim.texts import Texts

PIPES = "\\\\.\\pipe\\"


def make(
    host: LinuxHost | WindowsHost, container: ContainerRecord, hostname: str, texts: Texts, *, docker: bool
) -> LayeredFiles:
    """Raises RuntimeFailure."""
    config, identity = container.config, container.id
    root = root_of(container.spec.info)
    read_only = _read_only(container)
    if container.spec.platform.os == "linux":
        root = _with_resolv_conf(root, container.sandbox.config.dns)
    elif isinstance(host, WindowsHost):
        root = _with_domain_shares(root, config, host, docker)
    if read_only:  # nobody can write them later
        root = tree(POSIX, {path: File(text.encode()) for path, text in _etc(container, hostname).items()}, root)
    files = host.container_files(root, read_only=read_only)
    for mount in config.mounts:
        if isinstance(host, WindowsHost) and docker:
            _check_docker_mount(host, mount.host_path, mount.container_path, mount.read_only, texts, identity)
        where = Mounted(mount.container_path, mount.host_path, mount.read_only)
        try:
            files.add_mounts((where,))
        except OSError as error:
            if error.errno != errno.ENOENT or mount.host_path.startswith(PIPES):
                raise texts.create_failed(identity, f"failed to mount {mount.host_path}: {error.strerror}") from error
            host.files.mkdir(mount.host_path)  # both runtimes make what is not there
            files.add_mounts((where,))
    return files


def _with_domain_shares(root: Node, config: ContainerConfig, host: WindowsHost, docker: bool) -> Node:
    """Shares that every domain has, for a container with an account of the domain. With containerd it takes an update of
    Windows for that account to be of use there."""
    spec = config.windows.credential_spec if config.windows is not None else ""
    if not spec:
        return root
    from transom.windows.limits import LIMITS
    from transom.windows.match import holds
    from transom.windows.records import Target

    runtime: Literal["docker", "containerd"] = "docker" if docker else "containerd"
    node = Target(build=host.build.number, runtime=runtime, revision=host.build.ubr)
    names = domain_names(spec)
    if not names or holds(LIMITS["WIN-SEC-021"], node):
        return root
    return _domain_shares(root, names)


def domain_names(credential_spec: str) -> tuple[str, ...]:
    """Of the domain that a credential spec joins, the longer one first; none if it cannot be read."""
    try:
        joined = json.loads(credential_spec)["DomainJoinConfig"]
        return tuple(str(joined[key]) for key in ("DnsName", "NetBiosName") if joined.get(key))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


@lru_cache(maxsize=64)
def _domain_shares(root: Node, names: tuple[str, ...]) -> Node:
    for name in names:
        root = with_share(root, rf"\\{name}\SYSVOL", (rf"{names[0]}\Policies", rf"{names[0]}\scripts"))
        root = with_share(root, rf"\\{name}\NETLOGON", ())
    return root


def _check_docker_mount(
    host: WindowsHost, source: str, target: str, read_only: bool, texts: Texts, identity: str
) -> None:
    """Docker on Windows takes directories and pipes that exist."""
    if source.startswith(PIPES):
        return
    volume = f"{source}:{target}" + (":ro" if read_only else "")
    start = f"invalid volume specification: '{volume}': invalid mount config for type \"bind\": "
    if not host.files.exists(source):
        raise texts.create_failed(identity, f"{start}bind source path does not exist: {source}")
    if host.files.stat(source).kind != "directory":
        raise texts.create_failed(identity, f"{start}source path must be a directory")


def check_seccomp(host: LinuxHost | WindowsHost, config: ContainerConfig, texts: Texts, *, docker: bool) -> None:
    """A profile of the node must be there. Raises RuntimeFailure."""
    profile = config.linux.seccomp if config.linux is not None else ""
    path = profile.removeprefix("localhost/")
    if path == profile or isinstance(host, WindowsHost) or host.files.exists(path):
        return
    missing = f"open {path}: no such file or directory"
    if docker:
        start = f'failed to generate security options for container "{config.name}": '
        problem = f'failed to generate seccomp security options for container: cannot load seccomp profile "{path}": {missing}'
        raise RuntimeFailure("Unknown", start + problem)
    raise texts.create_failed(config.name, f"failed to generate seccomp spec opts: failed to load seccomp profile: {missing}")


def prepare(container: ContainerRecord, hostname: str) -> None:
    """Writes what a Linux runtime puts into /etc for this pod, once, when somebody first looks at the files."""
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
    if path and not container.files.exists(path):
        container.files.mkdir(path)


def _read_only(container: ContainerRecord) -> bool:
    linux = container.config.linux
    return linux is not None and linux.read_only_root and container.spec.platform.os == "linux"


def _etc(container: ContainerRecord, hostname: str) -> dict[str, str]:
    sandbox = container.sandbox
    own = sandbox.addresses[0] if sandbox.addresses else "127.0.1.1"
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}\t{hostname}\n",
    }


@lru_cache(maxsize=256)
def _with_resolv_conf(root: Node, dns: DnsConfig) -> Node:
    """Shared by the pods of a namespace."""
    rows = [f"nameserver {server}\n" for server in dns.servers]
    if dns.searches:
        rows.append(f"search {' '.join(dns.searches)}\n")
    if dns.options:
        rows.append(f"options {' '.join(dns.options)}\n")
    return tree(POSIX, {"/etc/resolv.conf": File("".join(rows).encode())}, root)
