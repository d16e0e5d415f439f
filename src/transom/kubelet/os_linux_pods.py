"""What a pod's spec means on Linux: security contexts, resources, paths and mounts. A part of
`os_linux.LinuxRules`.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, cast

from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_pattern
from transom.kubelet import cgroup_units
from transom.kubelet.apparmor import container_apparmor_profile
from transom.kubelet.config import KubeletConfig
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.features import runtime_reports_features
from transom.kubelet.hostpath import prepare_host_path
from transom.kubelet.labels import is_critical
from transom.kubelet.security import (
    describe_pod,
    effective_security_context,
    has_privileged_container,
    needs_host_users,
    pod_context,
    pod_sysctls,
    root_problem,
)
from transom.machinery import podutil, quantity
from transom.machinery.objects import Object
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.api import Files, Host, HostFiles, Stat
from transom.runtime.api import (
    Image,
    LinuxContainer,
    LinuxResources,
    LinuxSandbox,
    RuntimeVersion,
    WindowsContainer,
)

MASKED: Final = (
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
)
READ_ONLY: Final = (
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)

_NUMBERS: Final = lazy_pattern(r"(\d+)\.(\d+)")
_RECURSIVE_READ_ONLY_SINCE: Final = (5, 12)  # Linux
_OOM_GUARANTEED, _OOM_BEST_EFFORT = -997, 1000
_HUGE_PAGES: Final[Mapping[str, int]] = {"2MB": 0, "1GB": 0}
_PAGE_NAMES: Final = {"2Mi": "2MB", "1Gi": "1GB"}
_NON_ROOT: Final = 65532  # what images without root usually have
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_PROPAGATION: Final[Mapping[str | None, Literal["private", "hostToContainer", "bidirectional"]]] = {
    None: "private",
    "None": "private",
    "HostToContainer": "hostToContainer",
    "Bidirectional": "bidirectional",
}
_READ_WRITE, _READ, _SEARCH, _SET_GID = 0o660, 0o440, 0o110, 0o2000


class _Mounting(Files, Protocol):
    """Files of a Linux machine, which can mount a tmpfs at any directory."""

    def mount_tmpfs(self, path: str, size: int) -> None: ...
    def unmount(self, path: str) -> None: ...
    def is_mount(self, path: str) -> bool: ...


class LinuxPods:
    __slots__ = ()

    # Sandboxes and containers

    def sandbox_options(self, pod: Object, config: KubeletConfig) -> LinuxSandbox:
        spec, context = pod["spec"], pod_context(pod)
        groups = [] if context.get("fsGroup") is None else [context["fsGroup"]]
        return LinuxSandbox(
            host_network=bool(spec.get("hostNetwork")),
            host_pid=bool(spec.get("hostPID")),
            host_ipc=bool(spec.get("hostIPC")),
            share_processes=bool(spec.get("shareProcessNamespace")),
            privileged=has_privileged_container(spec),
            run_as_user=context.get("runAsUser"),
            run_as_group=context.get("runAsGroup"),
            supplemental_groups=(*groups, *(context.get("supplementalGroups") or ())),
            strict_groups=_has_strict_groups(context),
            sysctls=pod_sysctls(context),
            selinux=context.get("seLinuxOptions"),
            seccomp="runtime/default",
            cgroup_parent=_cgroup_parent(pod) if config.cgroups_per_qos else "",
            host_users=needs_host_users(spec),
        )

    def linux_resources(
        self, pod: Object, container: Object, host: Host, config: KubeletConfig
    ) -> LinuxResources:
        return _resources(pod, container, host, config)

    def locks_sub_paths(self, release: tuple[int, int]) -> bool:
        return False

    def pod_resources_problem(self, release: tuple[int, int]) -> str:
        return ""

    def resize_problem(self) -> str:
        return ""

    def recursive_read_only_mounts(self, host: Host, runtime: RuntimeVersion) -> bool:
        kernel = _NUMBERS.match(host.identity.kernel_version)
        return (
            runtime_reports_features(runtime)
            and kernel is not None
            and (int(kernel[1]), int(kernel[2])) >= _RECURSIVE_READ_ONLY_SINCE
        )

    def container_options(
        self, pod: Object, container: Object, image: Image, host: Host, config: KubeletConfig
    ) -> tuple[LinuxContainer | None, WindowsContainer | None]:
        context = effective_security_context(pod, container)
        _verify_non_root(pod, container, context, image, config)
        spec, of_pod = pod["spec"], pod_context(pod)
        groups = [] if of_pod.get("fsGroup") is None else [of_pod["fsGroup"]]
        user = context.get("runAsUser")
        if user is None and image.user_unknown and context.get("runAsNonRoot"):
            user = _NON_ROOT
        capabilities = context.get("capabilities") or {}
        unmasked = context.get("procMount") == "Unmasked"
        annotations = pod["metadata"].get("annotations") or {}
        return LinuxContainer(
            resources=_resources(pod, container, host, config),
            privileged=bool(context.get("privileged")),
            run_as_user=user if user is not None else image.uid,
            run_as_user_name="" if user is not None else image.username,
            run_as_group=context.get("runAsGroup"),
            supplemental_groups=(*groups, *(of_pod.get("supplementalGroups") or ())),
            strict_groups=_has_strict_groups(of_pod),
            add_capabilities=tuple(capabilities.get("add") or ()),
            drop_capabilities=tuple(capabilities.get("drop") or ()),
            read_only_root=bool(context.get("readOnlyRootFilesystem")),
            no_new_privileges=context.get("allowPrivilegeEscalation") is False,
            selinux=context.get("seLinuxOptions"),
            seccomp=_seccomp(
                pod, container, annotations, posixpath.join(config.root_dir, "seccomp")
            ),
            apparmor=container_apparmor_profile(pod, container),
            masked_paths=() if unmasked else MASKED,
            read_only_paths=() if unmasked else READ_ONLY,
            pid_namespace="node"
            if spec.get("hostPID")
            else "pod"
            if spec.get("shareProcessNamespace")
            else "container",
        ), None

    def mount_path(self, path: str) -> str:
        return path if path.startswith("/") else self.absolute_path(path)

    def absolute_path(self, path: str) -> str:
        return "/" + posixpath.normpath("/" + path).lstrip("/")

    def host_path(self, path: str) -> str:
        return path

    def is_absolute(self, path: str) -> bool:
        return path.startswith("/")

    def join(self, *parts: str) -> str:
        return "/".join(parts)

    def split(self, path: str) -> list[str]:
        return path.split("/")

    def parent(self, path: str) -> str:
        return posixpath.dirname(path) or "/"

    def file_error(self, operation: str, path: str, problem: OSError) -> str:
        return f"{operation} {path}: {go_errno_text(problem)}"

    def single_file_mounts(self, runtime: RuntimeVersion) -> bool:
        return True

    def manages_hosts_file(self, runtime: RuntimeVersion, release: tuple[int, int]) -> bool:
        return True

    def hosts_file(self) -> tuple[str, str]:
        return "/etc/hosts", "/etc/hosts"

    def mount_propagation(
        self, requested: str | None
    ) -> Literal["private", "hostToContainer", "bidirectional"]:
        if requested not in _PROPAGATION:
            raise ContainerFailure(
                "CreateContainerConfigError",
                f"invalid MountPropagation mode: {go_quote(requested or '')}",
            )
        return _PROPAGATION[requested]

    # Volumes

    def mount_tmpfs(self, files: Files, path: str, size: int) -> bool:
        files.mkdir(path, 0o777)
        tree = cast(_Mounting, files)
        if not tree.is_mount(path):
            tree.mount_tmpfs(path, size)
        return True

    def unmount(self, files: Files, path: str) -> None:
        tree = cast(_Mounting, files)
        if files.exists(path) and tree.is_mount(path):
            tree.unmount(path)

    def mounted(self, files: Files, path: str) -> bool:
        return _is_link(files, path) or (
            files.exists(path) and cast(_Mounting, files).is_mount(path)
        )

    def mount_huge_pages(self, files: Files, path: str, page_size: str) -> None:
        files.mkdir(path, 0o777)

    def mount_share(
        self, files: Files, source: str, target: str, kind: str, options: tuple[str, ...]
    ) -> None:
        return None

    def missing_disk(self, kind: str, name: str, release: tuple[int, int]) -> str:
        return ""

    def ungrowable(self) -> str:
        return ""

    def registers_plugins(self, release: tuple[int, int]) -> bool:
        return True

    def prepares_claims(self) -> bool:
        return True

    def block_devices(self) -> str:
        return ""

    def bind(self, files: Files, source: str, target: str) -> None:
        files.mkdir(posixpath.dirname(target), 0o750)
        if not _is_link(files, target):
            files.symlink(source, target)

    def set_ownership(
        self,
        files: HostFiles,
        path: str,
        fs_group: int | None,
        read_only: bool = False,
        policy: str | None = None,
    ) -> None:
        if fs_group is None:
            return
        mask = _READ if read_only else _READ_WRITE
        if policy != "OnRootMismatch" or not _is_given(files.stat(path), fs_group, mask):
            # Children first, so that a directory's own group shows that everything below it is
            # done.
            files.give_to_group(path, fs_group, mask, _SET_GID | _SEARCH)

    def owner_group(self, files: Files, path: str) -> int | None:
        return files.stat(path).gid

    def set_owner(self, files: Files, path: str, user: int, release: tuple[int, int]) -> None:
        files.chown(path, user, files.stat(path).gid)

    def replace_link(self, files: Files, target: str, link: str) -> None:
        fresh = link + "_tmp"
        files.symlink(target, fresh)
        files.rename(fresh, link)

    def check_host_path(self, files: Files, path: str, kind: str) -> None:
        prepare_host_path(files, path, kind, self.file_error)


def go_errno_text(problem: OSError) -> str:
    """As Go formats it."""
    text = os.strerror(problem.errno or errno.EIO)
    return text[:1].lower() + text[1:]


def _has_strict_groups(context: Mapping[str, Any]) -> bool:
    return context.get("supplementalGroupsPolicy") == "Strict"


def _cgroup_parent(pod: Object) -> str:
    uid, qos = pod["metadata"]["uid"], podutil.persisted_qos_class(pod)
    return f"/kubepods/pod{uid}" if qos == "Guaranteed" else f"/kubepods/{qos.lower()}/pod{uid}"


def _verify_non_root(
    pod: Object, container: Object, context: Mapping[str, Any], image: Image, config: KubeletConfig
) -> None:
    if context.get("runAsNonRoot"):
        problem = root_problem(context, image)
        if problem:
            where = (
                f" (pod: {go_quote(describe_pod(pod))}, container: {container['name']})"
                if kubelet_has(config.release, "NonRootErrorsNamePod")
                else ""
            )
            raise ContainerFailure("CreateContainerConfigError", problem + where)


def _resources(pod: Object, container: Object, host: Host, config: KubeletConfig) -> LinuxResources:
    resources = container.get("resources") or {}
    requests = resources.get("requests") or {}
    # Where a container sets no limit, that of its pod applies.
    of_pod = (pod["spec"].get("resources") or {}).get("limits") or {}
    limits = {**of_pod, **(resources.get("limits") or {})}
    milli_limit = quantity.parse_quantity(limits.get("cpu", "0")).milli_value()
    milli = quantity.parse_quantity(requests.get("cpu", "0")).milli_value() or milli_limit
    huge = {
        name.removeprefix("hugepages-"): amount
        for name, amount in limits.items()
        if name.startswith("hugepages-")
    }
    pages = _HUGE_PAGES
    if huge:
        requested = {
            _PAGE_NAMES[size]: quantity.parse_quantity(text).value()
            for size, text in huge.items()
            if size in _PAGE_NAMES
        }
        pages = {**_HUGE_PAGES, **requested}
    return LinuxResources(
        cpu_period=config.cpu_period if config.cpu_cfs_quota else 0,
        cpu_quota=cgroup_units.cpu_quota(milli_limit, config.cpu_period)
        if config.cpu_cfs_quota
        else 0,
        cpu_shares=cgroup_units.cpu_shares(milli),
        memory_limit=quantity.parse_quantity(limits.get("memory", "0")).value(),
        oom_score_adj=oom_score_adjustment(pod, container, host.hardware.memory),
        hugepages=pages,
    )


def oom_score_adjustment(pod: Object, container: Object, memory: int) -> int:
    if is_critical(pod):
        return _OOM_GUARANTEED
    match podutil.persisted_qos_class(pod):
        case "Guaranteed":
            return _OOM_GUARANTEED
        case "BestEffort":
            return _OOM_BEST_EFFORT
    requests = (container.get("resources") or {}).get("requests") or {}
    score = 1000 - 1000 * quantity.parse_quantity(requests.get("memory", "0")).value() // memory
    return min(max(score, 1000 + _OOM_GUARANTEED), _OOM_BEST_EFFORT - 1)


def _seccomp(pod: Object, container: Object, annotations: Mapping[str, str], root: str) -> str:
    field = (container.get("securityContext") or {}).get("seccompProfile")
    if field is not None:
        return _seccomp_field(field, root)
    annotation = annotations.get(_SECCOMP_CONTAINER + container["name"])
    if annotation is None:
        field = pod_context(pod).get("seccompProfile")
        if field is not None:
            return _seccomp_field(field, root)
        annotation = annotations.get(_SECCOMP_POD)
    if annotation and annotation.startswith("localhost/"):
        return "localhost/" + posixpath.join(root, annotation.removeprefix("localhost/"))
    return annotation or ""


def _seccomp_field(profile: Mapping[str, Any], root: str) -> str:
    match profile.get("type"):
        case "RuntimeDefault":
            return "runtime/default"
        case "Localhost" if profile.get("localhostProfile"):
            return "localhost/" + posixpath.join(root, profile["localhostProfile"])
        case "Unconfined":
            return "unconfined"
    return ""


def _is_link(files: Files, path: str) -> bool:
    try:
        return files.stat(path, follow=False).kind == "symlink"
    except OSError:
        return False


def _is_given(stat: Stat, group: int, mask: int) -> bool:
    """Checks the top directory, which is changed last."""
    wanted = mask | _SEARCH | _SET_GID
    return stat.kind == "directory" and stat.gid == group and stat.mode & wanted == wanted
