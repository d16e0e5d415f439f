"""Checks of a pod for Windows limits that do not depend on a single field: functions on one pod, by
the name of the check.

The limits in the registry have the name in `check`. Lint and admission use the same functions;
checks that need other objects are in lint. No I/O: the caller passes nodes and RuntimeClasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.kit.lazy import lazy_pattern
from transom.windows.builds import BUILDS, WindowsBuild, process_isolation
from transom.windows.images import image_build_of, image_os
from transom.windows.records import NodeTarget, WindowsLimit
from transom.windows.releases import DEFAULT as DEFAULT_RELEASE
from transom.windows.sysctls import safe_sysctls
from transom.windows.target_nodes import NodeGroup
from transom.windows.targeting import RuntimeClasses, Steps, TargetOs, pod_containers

_ROOT: Final = "containeradministrator"
_SYSTEM_DRIVE: Final = lazy_pattern(r"(?i)(c:)?[\\/]*")
_SINGLE_FILES: Final = ("configMap", "downwardAPI", "projected")
_HYPERV: Final = ("hyperv", "hypervisor")
# registries whose tags are all multi-platform image lists
_OF_LISTS: Final = "mcr.microsoft.com/"
_DOES_NOT_START, _NOT_FOR_DOCKER, _NOT_FOR_CONTAINERD = "WIN-OS-004", "WIN-OS-005", "WIN-OS-006"


class CheckedPod(NamedTuple):
    """A pod or pod template, the Windows nodes it may run on, and its operating system."""

    spec: Mapping[str, Any]
    verdict: TargetOs
    groups: Sequence[NodeGroup]
    runtime_classes: RuntimeClasses
    linux: bool = False  # whether the cluster has Linux nodes too


class PodCheckResult(NamedTuple):
    """A path relative to the pod or template, and the finding."""

    steps: Steps
    message: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    limit: str = ""  # which of the limits with this check, if the check knows


def images(spec: Mapping[str, Any], os: str) -> list[tuple[Steps, str]]:
    """The images of a pod whose names show an operating system."""
    return [
        ((*steps, "image"), container["image"])
        for steps, container in pod_containers(spec)
        if isinstance(container.get("image"), str) and image_os(container["image"]) == os
    ]


def host_process(spec: Mapping[str, Any]) -> bool:
    contexts = [
        spec.get("securityContext"),
        *(container.get("securityContext") for _, container in pod_containers(spec)),
    ]
    return any(inner_pod(context, "windowsOptions", "hostProcess") is True for context in contexts)


def mixed_images(pod: CheckedPod) -> Iterator[PodCheckResult]:
    linux, windows = images(pod.spec, "linux"), images(pod.spec, "windows")
    if linux and windows:
        (steps, image), (_, other) = (
            (linux[0], windows[0]) if pod.verdict.windows else (windows[0], linux[0])
        )
        yield PodCheckResult(
            steps, f"{image} and {other} are for different systems and cannot share a pod"
        )


def linux_images(pod: CheckedPod) -> Iterator[PodCheckResult]:
    if (
        pod.verdict.windows
        and pod.verdict.weight in ("pinned", "declared")
        and not images(pod.spec, "windows")
    ):
        for steps, image in images(pod.spec, "linux"):
            yield PodCheckResult(
                steps,
                f"{image} is for Linux, but its pod goes to Windows nodes",
                "Use an image for Windows, or send the pod to Linux nodes.",
            )


def image_build(pod: CheckedPod) -> Iterator[PodCheckResult]:
    if host_process(pod.spec) or _hyperv(pod.spec):
        return  # they run on the node's own kernel, or on one of their own
    tagged = [
        ((*steps, "image"), container["image"], build)
        for steps, container in pod_containers(pod.spec)
        if isinstance(container.get("image"), str)
        and (build := image_build_of(container["image"])) is not None
    ]
    known = [group for group in pod.groups if group.target.build is not None]
    if not known:
        yield from _apart(tagged)
        return
    for steps, image, build in tagged:
        wrong = [group for group in known if not _runs(group.target, build)]
        if len(wrong) == len(pod.groups):
            nodes = tuple(name for group in wrong for name in group.nodes)
            ids = {_met(image, build, group.target) for group in wrong}
            message = _of_another_build(image, build, [group.target for group in wrong])
            yield PodCheckResult(
                steps, message, nodes=nodes, limit=ids.pop() if len(ids) == 1 else _DOES_NOT_START
            )


def build_selector(pod: CheckedPod) -> Iterator[PodCheckResult]:
    """Images that run only on some of the builds that the pod selects: the scheduler does not know
    which.
    """
    if host_process(pod.spec) or _hyperv(pod.spec) or pod.spec.get("nodeName"):
        return
    known = [group for group in pod.groups if group.target.build is not None]
    for _, container in pod_containers(pod.spec):
        image = container.get("image")
        build = image_build_of(image) if isinstance(image, str) else None
        if build is None:
            continue
        wrong = [group for group in known if not _runs(group.target, build)]
        if wrong and len(wrong) < len(known):
            numbers = ", ".join(
                str(number)
                for number in sorted({g.target.build for g in wrong if g.target.build is not None})
            )
            nodes = tuple(name for group in wrong for name in group.nodes)
            yield PodCheckResult(
                ("spec", "nodeSelector") if pod.spec.get("nodeSelector") else ("spec",),
                (
                    f"{image} is of build {build.number}, and the pod may also be placed on "
                    f"nodes of build {numbers}"
                ),
                f"Add nodeSelector node.kubernetes.io/windows-build: {build.version}.",
                nodes,
            )
            return


def unsafe_sysctls(pod: CheckedPod) -> Iterator[PodCheckResult]:
    release = max((group.target.release for group in pod.groups), default=DEFAULT_RELEASE)
    safe = safe_sysctls(release)
    for i, one in enumerate(list_or_empty(inner_pod(pod.spec, "securityContext", "sysctls"))):
        name = inner_pod(one, "name")
        if isinstance(name, str) and name not in safe:
            yield PodCheckResult(
                ("spec", "securityContext", "sysctls", i, "name"),
                f"the kubelet refuses pods with the sysctl {name}",
            )


def _met(image: str, build: WindowsBuild, target: NodeTarget) -> str:
    """The result for an image of another build: a multi-platform list is resolved when it is
    pulled, where Docker also accepts older builds; a single image is always pulled.
    """
    if image.startswith(_OF_LISTS):
        if target.runtime == "containerd":
            return _NOT_FOR_CONTAINERD
        if target.runtime == "docker" and build.number > (target.build or 0):
            return _NOT_FOR_DOCKER
    return _DOES_NOT_START


def _apart(tagged: list[tuple[Steps, str, WindowsBuild]]) -> Iterator[PodCheckResult]:
    """Regardless of the node's build: no node runs images of two builds."""
    for steps, image, build in tagged[1:]:
        _, first, other = tagged[0]
        if build.number != other.number and not _related(build.number, other.number):
            yield PodCheckResult(
                steps,
                (
                    f"{image} is of build {build.number} and {first} of build {other.number}: no "
                    "node runs both"
                ),
            )
            return


def _runs(target: NodeTarget, build: WindowsBuild) -> bool:
    return process_isolation(target.build or 0, build.number, stable_abi=target.runtime != "docker")


def _related(one: int, other: int) -> bool:
    return process_isolation(max(one, other), min(one, other), stable_abi=True)


def _hyperv(spec: Mapping[str, Any]) -> bool:
    name = spec.get("runtimeClassName")
    return isinstance(name, str) and any(word in name.lower() for word in _HYPERV)


def _of_another_build(image: str, build: WindowsBuild, targets: list[NodeTarget]) -> str:
    numbers = sorted({target.build for target in targets if target.build is not None})
    names = ", ".join(
        f"{number} ({BUILDS[number].tags[0]})" if number in BUILDS else str(number)
        for number in numbers
    )
    return f"{image} is of build {build.number} and does not start on nodes of build {names}"


def run_as_non_root(pod: CheckedPod) -> Iterator[PodCheckResult]:
    of_pod = inner_pod(pod.spec, "securityContext", "runAsNonRoot")
    user_of_pod = inner_pod(pod.spec, "securityContext", "windowsOptions", "runAsUserName")
    options = ("securityContext", "windowsOptions", "runAsUserName")
    for steps, container in pod_containers(pod.spec):
        own = inner_pod(container, "securityContext", "runAsNonRoot")
        own_user = inner_pod(container, *options)
        user = own_user if own_user is not None else user_of_pod
        if (
            (own if own is not None else of_pod) is not True
            or not isinstance(user, str)
            or user.lower() != _ROOT
        ):
            continue
        message = f"runAsNonRoot forbids {user}: the container is not made"
        if own_user is None:
            yield PodCheckResult(("spec", *options), message)
            return  # once for the whole pod
        yield PodCheckResult((*steps, *options), message)


def host_process_non_root(pod: CheckedPod) -> Iterator[PodCheckResult]:
    if not host_process(pod.spec):
        return
    field = ("securityContext", "runAsNonRoot")
    if inner_pod(pod.spec, *field) is True:
        yield PodCheckResult(("spec", *field), "runAsNonRoot does not restrict HostProcess")
    for steps, container in pod_containers(pod.spec):
        if inner_pod(container, *field) is True:
            yield PodCheckResult((*steps, *field), "runAsNonRoot does not restrict HostProcess")


def system_drive_mounts(pod: CheckedPod) -> Iterator[PodCheckResult]:
    for steps, container in pod_containers(pod.spec):
        for i, mount in enumerate(list_or_empty(container.get("volumeMounts"))):
            path = inner_pod(mount, "mountPath")
            if isinstance(path, str) and _SYSTEM_DRIVE.fullmatch(path):
                yield PodCheckResult(
                    (*steps, "volumeMounts", i, "mountPath"),
                    f"{path} is the system drive, which the volume hides",
                )


def env_case(pod: CheckedPod) -> Iterator[PodCheckResult]:
    for steps, container in pod_containers(pod.spec):
        seen: dict[str, str] = {}
        for i, variable in enumerate(list_or_empty(container.get("env"))):
            name = inner_pod(variable, "name")
            if not isinstance(name, str):
                continue
            first = seen.setdefault(name.lower(), name)
            if first != name:
                yield PodCheckResult(
                    (*steps, "env", i), f"{name} and {first} are one variable on Windows"
                )


def single_files(pod: CheckedPod) -> Iterator[PodCheckResult]:
    for steps, path in _sub_paths(pod.spec, _SINGLE_FILES):
        yield PodCheckResult(steps, f"{path} is a single file of its volume")


def secret_files(pod: CheckedPod) -> Iterator[PodCheckResult]:
    for steps, path in _sub_paths(pod.spec, ("secret",)):
        yield PodCheckResult(steps, f"{path} is a single file of a Secret")


def _sub_paths(spec: Mapping[str, Any], sources: tuple[str, ...]) -> Iterator[tuple[Steps, str]]:
    """Mounts of sub-paths of volumes that contain single files."""
    held = [
        inner_pod(v, "name")
        for v in list_or_empty(spec.get("volumes"))
        if any(inner_pod(v, source) for source in sources)
    ]
    for steps, container in pod_containers(spec) if held else ():
        for i, mount in enumerate(list_or_empty(container.get("volumeMounts"))):
            key = next((key for key in ("subPath", "subPathExpr") if inner_pod(mount, key)), "")
            if key and mount.get("name") in held:
                yield (*steps, "volumeMounts", i, key), str(mount[key])


def runtime_handler(pod: CheckedPod) -> Iterator[PodCheckResult]:
    name = pod.spec.get("runtimeClassName")
    known = pod.runtime_classes(name) if isinstance(name, str) and name else None
    handler = inner_pod(known, "handler")
    if isinstance(handler, str) and handler and handler != "docker":
        yield PodCheckResult(
            ("spec", "runtimeClassName"), f"RuntimeClass {name} asks for the handler {handler}"
        )


def unpinned(pod: CheckedPod) -> Iterator[PodCheckResult]:
    """Custom labels may select nodes of one system, and a toleration alone is not conclusive."""
    required = inner_pod(
        pod.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    runtime = pod.spec.get("runtimeClassName")
    unknown = bool(runtime) and pod.runtime_classes(str(runtime)) is None  # it may select nodes
    chosen = pod.spec.get("nodeSelector") or pod.spec.get("nodeName") or required or unknown
    sign = pod.verdict.sign
    if (
        pod.linux
        and sign is not None
        and not chosen
        and pod.verdict.weight in ("declared", "likely")
    ):
        yield PodCheckResult(
            ("spec",),
            f"this pod is for Windows ({sign.text}), but may land on a Linux node",
            (
                "Add nodeSelector kubernetes.io/os: windows, and tolerate the taint of your "
                "Windows nodes."
            ),
        )


def inner_pod(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


Check = Callable[[CheckedPod], Iterator[PodCheckResult]]

CHECKS: Final[Mapping[str, Check]] = {
    "mixed-images": mixed_images,
    "image-os": linux_images,
    "image-build": image_build,
    "build-selector": build_selector,
    "unsafe-sysctls": unsafe_sysctls,
    "run-as-non-root": run_as_non_root,
    "host-process-non-root": host_process_non_root,
    "system-drive-mount": system_drive_mounts,
    "env-case": env_case,
    "single-file-mount": single_files,
    "secret-subpath": secret_files,
    "runtime-handler": runtime_handler,
    "os-selector": unpinned,
}


def seen_in_objects(limit: WindowsLimit) -> bool:
    """Whether an object alone shows a limit, without other objects."""
    return limit.severity != "none" and bool(limit.fields or limit.check in CHECKS)
