"""What a pod's spec means on Windows: users, limits, paths and mounts. A part of `os_windows.WindowsRules`.

Whatever only Linux knows (capabilities, SELinux, a read-only root ...) is not mentioned here, and so has no effect, as on
a Windows node: nothing of it ever reaches the runtime, and nobody is told.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from transom.hosts.api import Files, Host
from transom.kubelet.base import ContainerFailure, VolumeFailure
from transom.kubelet.config import KubeletConfig
from transom.kubelet.hostpath import check_host_path
from transom.kubelet.security import (
    described,
    effective,
    has_privileged_container,
    pod_context,
    root_problem,
    sysctls,
)
from transom.machinery import quantity
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.runtime.api import Image, LinuxContainer, LinuxSandbox, Version, WindowsContainer, WindowsResources
from transom.windows.limits import LIMITS
from transom.windows.match import holds
from transom.windows.records import Target

log = logging.getLogger("transom.kubelet")

ROOT_USER: Final = "ContainerAdministrator"
_MAX_CPUS = 64  # of one processor group: a process sees no more
_FULL = 10_000
_MIN_WEIGHT, _MIN_WEIGHT_HYPERV = 5_000, 10
_WEIGHTS_UNTIL = (1, 17)
_USER_NAMES_SINCE = (1, 16)
_NO_UIDS = LIMITS["WIN-SEC-011"]
_NO_ADMINISTRATOR, _NO_ADMINISTRATOR_SINCE_1_22 = LIMITS["WIN-SEC-013"], LIMITS["WIN-SEC-024"]
_NO_GMSA_FIELDS = LIMITS["WIN-SEC-022"]
_NO_HOSTS_FILE = (LIMITS["WIN-POD-008"], LIMITS["WIN-POD-009"])
_DIRECTORIES_ONLY = LIMITS["WIN-STO-002"]
_NO_LATE_DISKS = LIMITS["WIN-STO-015"]
_LATE_DISKS: Final = {"awsElasticBlockStore": "AWS Volume", "vsphereVolume": "VMDK"}
_HYPERV_UNTIL = (1, 20)
_ISOLATION = "experimental.windows.kubernetes.io/isolation-type"
_GMSA_CONTAINER = ".container.alpha.windows.kubernetes.io/gmsa-credential-spec"
_GMSA_POD = "pod.alpha.windows.kubernetes.io/gmsa-credential-spec"
_ABSOLUTE = re.compile(r"[A-Za-z]:[\\/]")
_ERRORS: Final = {
    errno.ENOENT: "The system cannot find the file specified.",
    errno.ENOTDIR: "The system cannot find the path specified.",
    errno.EACCES: "Access is denied.",
    errno.EPERM: "Access is denied.",
    errno.EISDIR: "Access is denied.",
    errno.EROFS: "The media is write protected.",
    errno.EEXIST: "Cannot create a file when that file already exists.",
    errno.ENOTEMPTY: "The directory is not empty.",
    errno.ENOSPC: "There is not enough space on the disk.",
    errno.EBUSY: "The process cannot access the file because it is being used by another process.",
    errno.EINVAL: "The filename, directory name, or volume label syntax is incorrect.",
}
_PATH_NOT_FOUND = 3


class WindowsPods:
    __slots__ = ()

    # Sandboxes and containers

    def sandbox_options(self, pod: Object, config: KubeletConfig) -> LinuxSandbox:
        # A sandbox is described in Linux' terms on Windows too; since 1.20 without what makes docker refuse it.
        spec, context = pod["spec"], pod_context(pod)
        old = holds(_NO_UIDS, Target(config.release))
        groups = (context["fsGroup"],) if old and context.get("fsGroup") is not None else ()
        return LinuxSandbox(
            host_network=bool(spec.get("hostNetwork")),
            host_pid=bool(spec.get("hostPID")),
            host_ipc=bool(spec.get("hostIPC")),
            share_processes=bool(spec.get("shareProcessNamespace")),
            privileged=has_privileged_container(spec),
            run_as_user=context.get("runAsUser") if old else None,
            run_as_group=context.get("runAsGroup") if old else None,
            supplemental_groups=(*groups, *(context.get("supplementalGroups") or ())),
            sysctls=sysctls(context),
            selinux=context.get("seLinuxOptions") if old else None,
            seccomp="runtime/default",
        )

    def container_options(
        self, pod: Object, container: Object, image: Image, host: Host, config: KubeletConfig
    ) -> tuple[LinuxContainer | None, WindowsContainer | None]:
        context, release = effective(pod, container), config.release
        _verify_non_root(pod, container, context, image, release)
        uid = context.get("runAsUser")
        if uid is not None and holds(_NO_UIDS, Target(release)):
            raise ContainerFailure(_NO_UIDS.reason, _NO_UIDS.message.format(uid=uid))
        options = context.get("windowsOptions") or {}
        user = options.get("runAsUserName") if release >= _USER_NAMES_SINCE else None
        return None, WindowsContainer(
            resources=_resources(pod, container, host, config),
            run_as_user_name=user if user is not None else image.username,
            credential_spec=_credential_spec(pod, container, options, release),
        )

    def mount_path(self, path: str) -> str:
        return path if path.startswith("\\\\") or _ABSOLUTE.match(path) else self.absolute_path(path)

    def absolute_path(self, path: str) -> str:
        if ":" in path:
            return path
        return "c:" + path if path.startswith(("/", "\\")) else "c:\\" + path

    def host_path(self, path: str) -> str:
        local = path.startswith(("/", "\\")) and not path.startswith("\\\\") and ":" not in path
        return "c:" + path if local else path

    def is_absolute(self, path: str) -> bool:
        return path.startswith("\\\\") or _ABSOLUTE.match(path) is not None

    def join(self, *parts: str) -> str:
        """With backslashes and a drive, as the kubelet names its own directories on Windows."""
        path = "\\".join(p.rstrip("\\/") if i == 0 else p.strip("\\/") for i, p in enumerate(parts) if p).replace("/", "\\")
        return "c:" + path if path.startswith("\\") and not path.startswith("\\\\") else path

    def split(self, path: str) -> list[str]:
        return path.replace("\\", "/").split("/")

    def file_error(self, operation: str, path: str, problem: OSError) -> str:
        if getattr(problem, "winerror", None) == _PATH_NOT_FOUND:
            return f"{operation} {path}: {_ERRORS[errno.ENOTDIR]}"
        return f"{operation} {path}: {_ERRORS.get(problem.errno or 0, problem.strerror or str(problem))}"

    def single_file_mounts(self, runtime: Version) -> bool:
        return runtime.name not in _DIRECTORIES_ONLY.runtimes

    def manages_hosts_file(self, runtime: Version, release: tuple[int, int]) -> bool:
        target = Target(release, runtime="docker" if runtime.name == "docker" else "containerd")
        return not any(holds(limit, target) for limit in _NO_HOSTS_FILE)

    def hosts_file(self) -> tuple[str, str]:
        return "C:\\Windows\\System32\\drivers\\etc\\hosts", "C:\\Windows\\System32\\drivers\\etc\\hosts"

    def mount_propagation(self, asked: str | None) -> Literal["private", "hostToContainer", "bidirectional"]:
        return "private"

    # Volumes

    def mount_tmpfs(self, files: Files, path: str, size: int) -> bool:
        # There is no file system in memory.
        _warn_of_clear_text()
        files.mkdir(path, 0o777)
        return False

    def unmount(self, files: Files, path: str) -> None:
        return None

    def mounted(self, files: Files, path: str) -> bool:
        try:
            return files.stat(path, follow=False).kind == "symlink"
        except OSError:
            return False

    def mount_huge_pages(self, files: Files, path: str, page_size: str) -> None:
        self.mount_share(files, "nodev", path, "hugetlbfs", (f"pagesize={page_size}",))

    def mount_share(self, files: Files, source: str, target: str, kind: str, options: tuple[str, ...]) -> None:
        shown = go_quote(",".join(options))
        if len(options) < 2:
            raise VolumeFailure(LIMITS["WIN-STO-010"].message.format(
                options=shown, count=len(options), source=go_quote(source), target=go_quote(target)
            ))
        if kind.lower() != "cifs":
            raise VolumeFailure(LIMITS["WIN-STO-011"].message.format(
                kind=go_quote(kind), source=go_quote(source), target=go_quote(target), options=shown
            ))

    def missing_disk(self, kind: str, name: str, release: tuple[int, int]) -> str:
        if kind not in _LATE_DISKS or not holds(_NO_LATE_DISKS, Target(release)):
            return ""
        return _NO_LATE_DISKS.message.format(disk=f"{_LATE_DISKS[kind]} {go_quote(name)}")

    def unformattable(self, file_system: str) -> str:
        limit = LIMITS["WIN-STO-016"]
        if not any(file_system in field.value for field in limit.fields if isinstance(field.value, tuple)):
            return ""
        output = (
            f"Format-Volume : Cannot validate argument on parameter 'FileSystem'. The argument {go_quote(file_system)} does "
            'not belong to the set "FAT,FAT32,exFAT,NTFS,ReFS" specified by the ValidateSet attribute.'
        )
        return limit.message.format(output=go_quote(output))

    def ungrowable(self) -> str:
        return LIMITS["WIN-STO-012"].message

    def registers_plugins(self, release: tuple[int, int]) -> bool:
        return not holds(LIMITS["WIN-STO-013"], Target(release))

    def block_devices(self) -> str:
        return LIMITS["WIN-STO-008"].message

    def bind(self, files: Files, source: str, target: str) -> None:
        files.mkdir(target.rpartition("\\")[0], 0o755)
        if not files.exists(target):
            files.symlink(self.join(source) + "\\", target)

    def set_ownership(
        self, files: Files, path: str, fs_group: int | None, read_only: bool = False, policy: str | None = None
    ) -> None:
        return None

    def owner_group(self, files: Files, path: str) -> int | None:
        return None

    def set_owner(self, files: Files, path: str, user: int) -> None:
        raise VolumeFailure(LIMITS["WIN-SEC-023"].message.format(path=path))

    def replace_link(self, files: Files, target: str, link: str) -> None:
        # A link to a directory cannot be renamed over another one: for a moment there is none.
        fresh = link + "_tmp"
        files.symlink(target, fresh)
        if _there(files, link):
            files.remove(link)
        files.symlink(target, link)
        files.remove(fresh)

    def check_host_path(self, files: Files, path: str, kind: str) -> None:
        check_host_path(files, path, kind, self.file_error)


@lru_cache(maxsize=1)  # once in a process: there may be a thousand kubelets
def _warn_of_clear_text() -> None:
    log.warning(
        "Secrets are written in clear text on the node's volume (as compared to tmpfs/in-memory on linux): use file ACLs to "
        "secure their location, and volume-level encryption"
    )


def _there(files: Files, path: str) -> bool:
    try:
        files.stat(path, follow=False)
    except OSError:
        return False
    return True


def is_hyperv(pod: Object, config: KubeletConfig) -> bool:
    """Isolated by the annotation of old; the gate was taken away with 1.21."""
    if config.release > _HYPERV_UNTIL or not config.feature_gates.get("HyperVContainer"):
        return False
    return (pod["metadata"].get("annotations") or {}).get(_ISOLATION) == "hyperv"


def _resources(pod: Object, container: Object, host: Host, config: KubeletConfig) -> WindowsResources:
    limits = (container.get("resources") or {}).get("limits") or {}
    milli = quantity.parse(limits.get("cpu", "0")).milli_value()
    cpus = min(host.hardware.cpus, _MAX_CPUS)
    hyperv = is_hyperv(pod, config)
    count = maximum = shares = 0
    if milli:
        if hyperv:
            count = (milli + 999) // 1000
            maximum = milli // count * _FULL // 1000
        else:
            maximum = _FULL * milli // cpus // 1000
        maximum = min(max(maximum, 1), _FULL)
    if config.release <= _WEIGHTS_UNTIL:
        shares = _weight(milli, cpus, _MIN_WEIGHT_HYPERV if hyperv else _MIN_WEIGHT)
    return WindowsResources(
        cpu_shares=shares, cpu_count=count, cpu_maximum=maximum,
        memory_limit=quantity.parse(limits.get("memory", "0")).value(),
    )


def _weight(milli: int, cpus: int, least: int) -> int:
    return min(max(milli * (_FULL - least) // cpus // 1000, least), _FULL)


def _credential_spec(pod: Object, container: Object, options: Mapping[str, Any], release: tuple[int, int]) -> str:
    if not holds(_NO_GMSA_FIELDS, Target(release)):
        return options.get("gmsaCredentialSpec") or ""
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(container["name"] + _GMSA_CONTAINER) or annotations.get(_GMSA_POD) or ""


def _verify_non_root(
    pod: Object, container: Object, context: Mapping[str, Any], image: Image, release: tuple[int, int]
) -> None:
    if not context.get("runAsNonRoot"):
        return
    if holds(_NO_UIDS, Target(release)):
        problem = root_problem(context, image)
        if problem:
            raise ContainerFailure("CreateContainerConfigError", problem)
        return
    asked = (context.get("windowsOptions") or {}).get("runAsUserName")
    user = asked if asked is not None else image.username
    newer = holds(_NO_ADMINISTRATOR_SINCE_1_22, Target(release))
    if user != ROOT_USER and not (newer and user.lower() == ROOT_USER.lower()):
        return
    limit = _NO_ADMINISTRATOR_SINCE_1_22 if newer else _NO_ADMINISTRATOR
    # Before 1.22 the image's user is printed, whoever the pod asked for.
    raise ContainerFailure(limit.reason, limit.message.format(
        user=user if newer else image.username, pod=go_quote(described(pod)), container=container["name"]
    ))
