"""What a pod's spec means on Windows: users, limits, paths and mounts. A part of
`os_windows.WindowsRules`.

Linux-only fields (capabilities, SELinux, a read-only root ...) do not appear here and have no
effect, as on a Windows node: they never reach the runtime, and no event is recorded.
"""

from __future__ import annotations

import errno
import logging
import ntpath
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kubelet.config import KubeletConfig
from transom.kubelet.failures import ContainerFailure, VolumeFailure
from transom.kubelet.hostpath import prepare_host_path
from transom.kubelet.security import (
    describe_pod,
    effective_security_context,
    has_privileged_container,
    pod_context,
    pod_sysctls,
    root_problem,
)
from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.features import is_enabled
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.api import Files, Host, HostFiles
from transom.machines.styles import windows_error_code
from transom.runtime.api import (
    Image,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    RuntimeVersion,
    WindowsContainer,
    WindowsResources,
)
from transom.windows.limits import LIMITS
from transom.windows.match import record_holds
from transom.windows.records import NodeTarget

log = logging.getLogger("transom.kubelet")

ROOT_USER: Final = "ContainerAdministrator"
_MAX_CPUS = 64  # of one processor group: a process does not see more
_FULL = 10_000
_MIN_WEIGHT, _MIN_WEIGHT_HYPERV = 5_000, 10
_HOST_PROCESS_GATE = "WindowsHostProcessContainers"
_NO_UIDS = LIMITS["WIN-SEC-011"]
_NO_TOKEN_OWNER = LIMITS["WIN-SEC-023"]
_NO_ADMINISTRATOR, _NO_ADMINISTRATOR_SINCE_1_22 = LIMITS["WIN-SEC-013"], LIMITS["WIN-SEC-024"]
_NO_GMSA_FIELDS = LIMITS["WIN-SEC-022"]
_NO_HOSTS_FILE = (LIMITS["WIN-POD-008"], LIMITS["WIN-POD-009"])
_DIRECTORIES_ONLY = LIMITS["WIN-STO-002"]
_NO_LATE_DISKS = LIMITS["WIN-STO-015"]
_LATE_DISKS: Final = {"awsElasticBlockStore": "AWS Volume", "vsphereVolume": "VMDK"}
_NO_HYPERV = LIMITS["WIN-OS-012"]
_ISOLATION = "experimental.windows.kubernetes.io/isolation-type"
_GMSA_CONTAINER = ".container.alpha.windows.kubernetes.io/gmsa-credential-spec"
_GMSA_POD = "pod.alpha.windows.kubernetes.io/gmsa-credential-spec"
_ABSOLUTE = lazy_pattern(r"[A-Za-z]:[\\/]")
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
        # A sandbox is described in Linux terms on Windows too; since 1.20 without what docker
        # rejects.
        check_isolation(pod, config)
        spec, context = pod["spec"], pod_context(pod)
        old = record_holds(_NO_UIDS, NodeTarget(config.release))
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
            sysctls=pod_sysctls(context),
            selinux=context.get("seLinuxOptions") if old else None,
            seccomp="runtime/default",
            host_process=_is_host_process_pod(pod, config),
        )

    def linux_resources(
        self, pod: Object, container: Object, host: Host, config: KubeletConfig
    ) -> LinuxResources:
        return LinuxResources()

    def recursive_read_only_mounts(self, host: Host, runtime: RuntimeVersion) -> bool:
        return False

    def locks_sub_paths(self, release: tuple[int, int]) -> bool:
        return not kubelet_has(release, "WindowsSubPathsUnlocked")

    def pod_resources_problem(self, release: tuple[int, int]) -> str:
        if not kubelet_has(release, "WindowsPodResourcesRejected"):
            return ""
        return "pod-level resources are not supported on Windows"

    def resize_problem(self) -> str:
        return "In-place pod resize is not supported on Windows"

    def container_options(
        self, pod: Object, container: Object, image: Image, host: Host, config: KubeletConfig
    ) -> tuple[LinuxContainer | None, WindowsContainer | None]:
        context, release = effective_security_context(pod, container), config.release
        _verify_non_root(pod, container, context, image, release)
        uid = context.get("runAsUser")
        if uid is not None and record_holds(_NO_UIDS, NodeTarget(release)):
            raise ContainerFailure(_NO_UIDS.reason, _NO_UIDS.message.format(uid=uid))
        options = context.get("windowsOptions") or {}
        has_names = kubelet_has(release, "WindowsUserNames")
        user = options.get("runAsUserName") if has_names else None
        return None, WindowsContainer(
            resources=_resources(pod, container, host, config),
            run_as_user_name=user if user is not None else image.username,
            credential_spec=_credential_spec(pod, container, options, release),
            host_process=_has_host_processes(config) and bool(options.get("hostProcess")),
        )

    def mount_path(self, path: str) -> str:
        return (
            path if path.startswith("\\\\") or _ABSOLUTE.match(path) else self.absolute_path(path)
        )

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
        """With backslashes and a drive, as the kubelet writes its own directories on Windows."""
        path = "\\".join(
            p.rstrip("\\/") if i == 0 else p.strip("\\/") for i, p in enumerate(parts) if p
        ).replace("/", "\\")
        return "c:" + path if path.startswith("\\") and not path.startswith("\\\\") else path

    def split(self, path: str) -> list[str]:
        return path.replace("\\", "/").split("/")

    def parent(self, path: str) -> str:
        return ntpath.dirname(path) or "C:\\"

    def file_error(self, operation: str, path: str, problem: OSError) -> str:
        if windows_error_code(problem) == _PATH_NOT_FOUND:
            return f"{operation} {path}: {_ERRORS[errno.ENOTDIR]}"
        return (
            f"{operation} {path}: "
            f"{_ERRORS.get(problem.errno or 0, problem.strerror or str(problem))}"
        )

    def single_file_mounts(self, runtime: RuntimeVersion) -> bool:
        return runtime.name not in _DIRECTORIES_ONLY.runtimes

    def manages_hosts_file(self, runtime: RuntimeVersion, release: tuple[int, int]) -> bool:
        target = NodeTarget(release, runtime="docker" if runtime.name == "docker" else "containerd")
        return not any(record_holds(limit, target) for limit in _NO_HOSTS_FILE)

    def hosts_file(self) -> tuple[str, str]:
        return (
            "C:\\Windows\\System32\\drivers\\etc\\hosts",
            "C:\\Windows\\System32\\drivers\\etc\\hosts",
        )

    def mount_propagation(
        self, requested: str | None
    ) -> Literal["private", "hostToContainer", "bidirectional"]:
        return "private"

    # Volumes

    def mount_tmpfs(self, files: Files, path: str, size: int) -> bool:
        # Windows has no tmpfs.
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

    def mount_share(
        self, files: Files, source: str, target: str, kind: str, options: tuple[str, ...]
    ) -> None:
        shown = go_quote(",".join(options))
        if len(options) < 2:
            raise VolumeFailure(
                LIMITS["WIN-STO-010"].message.format(
                    options=shown,
                    count=len(options),
                    source=go_quote(source),
                    target=go_quote(target),
                )
            )
        if kind.lower() != "cifs":
            raise VolumeFailure(
                LIMITS["WIN-STO-011"].message.format(
                    kind=go_quote(kind),
                    source=go_quote(source),
                    target=go_quote(target),
                    options=shown,
                )
            )

    def missing_disk(self, kind: str, name: str, release: tuple[int, int]) -> str:
        if kind == "cinder":  # the Windows code does not check them
            waiting = "Timeout waiting for mount paths to be created"
            return f'could not find attached Cinder disk {go_quote(name)} (path: ""). {waiting}'
        if kind not in _LATE_DISKS or not record_holds(_NO_LATE_DISKS, NodeTarget(release)):
            return ""
        return _NO_LATE_DISKS.message.format(disk=f"{_LATE_DISKS[kind]} {go_quote(name)}")

    def ungrowable(self) -> str:
        return LIMITS["WIN-STO-012"].message

    def registers_plugins(self, release: tuple[int, int]) -> bool:
        return not record_holds(LIMITS["WIN-STO-013"], NodeTarget(release))

    def prepares_claims(self) -> bool:
        return False

    def block_devices(self) -> str:
        return LIMITS["WIN-STO-008"].message

    def bind(self, files: Files, source: str, target: str) -> None:
        files.mkdir(target.rpartition("\\")[0], 0o755)
        if not files.exists(target):
            files.symlink(self.join(source) + "\\", target)

    def set_ownership(
        self,
        files: HostFiles,
        path: str,
        fs_group: int | None,
        read_only: bool = False,
        policy: str | None = None,
    ) -> None:
        return None

    def owner_group(self, files: Files, path: str) -> int | None:
        return None

    def set_owner(self, files: Files, path: str, user: int, release: tuple[int, int]) -> None:
        if record_holds(_NO_TOKEN_OWNER, NodeTarget(release)):
            raise VolumeFailure(_NO_TOKEN_OWNER.message.format(path=path))

    def replace_link(self, files: Files, target: str, link: str) -> None:
        # A link to a directory cannot be renamed over another one, so for a moment there is none.
        fresh = link + "_tmp"
        files.symlink(target, fresh)
        if _there(files, link):
            files.remove(link)
        files.symlink(target, link)
        files.remove(fresh)

    def check_host_path(self, files: Files, path: str, kind: str) -> None:
        prepare_host_path(files, path, kind, self.file_error)


@lru_cache(maxsize=1)  # once per process: there may be a thousand kubelets
def _warn_of_clear_text() -> None:
    log.warning(
        "Secrets are written in clear text on the node's volume (as compared to "
        "tmpfs/in-memory on linux): use file ACLs to "
        "secure their location, and volume-level encryption"
    )


def _there(files: Files, path: str) -> bool:
    try:
        files.stat(path, follow=False)
    except OSError:
        return False
    return True


def is_hyperv(pod: Object, config: KubeletConfig) -> bool:
    """Hyper-V isolation by annotation: the experiment of 1.10, which the documentation of 1.17 and
    later no longer offers.
    """
    has_gate = bool(config.feature_gates.get("HyperVContainer"))
    ignored = kubelet_has(config.release, "WithoutHyperVAnnotation")
    return not ignored and has_gate and _asks_for_hyperv(pod)


def _asks_for_hyperv(pod: Object) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(_ISOLATION) == "hyperv"


def check_isolation(pod: Object, config: KubeletConfig) -> None:
    """Raises ContainerFailure for a pod whose isolation the release does not support."""
    if not _asks_for_hyperv(pod):
        return
    target = NodeTarget(
        config.release, features=frozenset(name for name, on in config.feature_gates.items() if on)
    )
    if record_holds(_NO_HYPERV, target):
        raise ContainerFailure(
            _NO_HYPERV.reason, _NO_HYPERV.message.format(release="{}.{}".format(*config.release))
        )


def _has_host_processes(config: KubeletConfig) -> bool:
    chosen = config.feature_gates.get(_HOST_PROCESS_GATE)
    return is_enabled(Release(*config.release), _HOST_PROCESS_GATE) if chosen is None else chosen


def _is_host_process_pod(pod: Object, config: KubeletConfig) -> bool:
    """The API server made sure that all of its containers are HostProcess containers, or none."""
    return _has_host_processes(config) and any(
        (effective_security_context(pod, container).get("windowsOptions") or {}).get("hostProcess")
        for container in pod["spec"]["containers"]
    )


def _resources(
    pod: Object, container: Object, host: Host, config: KubeletConfig
) -> WindowsResources:
    limits = (container.get("resources") or {}).get("limits") or {}
    milli = quantity.parse_quantity(limits.get("cpu", "0")).milli_value()
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
    if not kubelet_has(config.release, "WindowsCpuMaximumOnly"):
        shares = _weight(milli, cpus, _MIN_WEIGHT_HYPERV if hyperv else _MIN_WEIGHT)
    return WindowsResources(
        cpu_shares=shares,
        cpu_count=count,
        cpu_maximum=maximum,
        memory_limit=quantity.parse_quantity(limits.get("memory", "0")).value(),
    )


def _weight(milli: int, cpus: int, least: int) -> int:
    return min(max(milli * (_FULL - least) // cpus // 1000, least), _FULL)


def _credential_spec(
    pod: Object, container: Object, options: Mapping[str, Any], release: tuple[int, int]
) -> str:
    if not record_holds(_NO_GMSA_FIELDS, NodeTarget(release)):
        return options.get("gmsaCredentialSpec") or ""
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(container["name"] + _GMSA_CONTAINER) or annotations.get(_GMSA_POD) or ""


def _verify_non_root(
    pod: Object,
    container: Object,
    context: Mapping[str, Any],
    image: Image,
    release: tuple[int, int],
) -> None:
    if not context.get("runAsNonRoot"):
        return
    if record_holds(_NO_UIDS, NodeTarget(release)):
        problem = root_problem(context, image)
        if problem:
            raise ContainerFailure("CreateContainerConfigError", problem)
        return
    requested = (context.get("windowsOptions") or {}).get("runAsUserName")
    user = requested if requested is not None else image.username
    newer = record_holds(_NO_ADMINISTRATOR_SINCE_1_22, NodeTarget(release))
    if user != ROOT_USER and not (newer and user.lower() == ROOT_USER.lower()):
        return
    limit = _NO_ADMINISTRATOR_SINCE_1_22 if newer else _NO_ADMINISTRATOR
    # Before 1.22 the message shows the image's user, whichever user the pod requests.
    raise ContainerFailure(
        limit.reason,
        limit.message.format(
            user=user if newer else image.username,
            pod=go_quote(describe_pod(pod)),
            container=container["name"],
        ),
    )
