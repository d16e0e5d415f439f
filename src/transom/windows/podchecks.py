"""What a pod meets of the limits of Windows that no single field shows: functions over one pod, by the name of the check.

The limits stand in the registry with the name in `check`. Lint and admission ask the same functions; what takes a look at
other objects too is lint's alone. No I/O: nodes and RuntimeClasses are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from transom.windows.builds import BUILDS, Build, process_isolation
from transom.windows.images import build_of, os_of
from transom.windows.landscape import Group
from transom.windows.records import Target
from transom.windows.targeting import RuntimeClasses, Steps, Verdict, containers

_ROOT: Final = "containeradministrator"
_SINGLE_FILES: Final = ("configMap", "downwardAPI", "projected")
_HYPERV: Final = ("hyperv", "hypervisor")
_OF_LISTS: Final = ("mcr.microsoft.com/",)  # registries whose tags all are lists of images by platform
_DOES_NOT_START, _NOT_FOR_DOCKER, _NOT_FOR_CONTAINERD = "WIN-OS-004", "WIN-OS-005", "WIN-OS-006"


class Subject(NamedTuple):
    """A pod or template, the Windows nodes it may go to, and what is said of its system."""

    spec: Mapping[str, Any]
    verdict: Verdict
    groups: Sequence[Group]
    runtime_classes: RuntimeClasses
    linux: bool = False  # whether the cluster has Linux nodes too


class Shown(NamedTuple):
    """A place from the pod or template, and what is so there."""

    steps: Steps
    message: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    limit: str = ""  # which one of those with this check, if the check knows


def images(spec: Mapping[str, Any], os: str) -> list[tuple[Steps, str]]:
    """The images of a pod whose names say a system."""
    return [
        ((*steps, "image"), container["image"]) for steps, container in containers(spec)
        if isinstance(container.get("image"), str) and os_of(container["image"]) == os
    ]


def host_process(spec: Mapping[str, Any]) -> bool:
    contexts = [spec.get("securityContext"), *(container.get("securityContext") for _, container in containers(spec))]
    return any(inner(context, "windowsOptions", "hostProcess") is True for context in contexts)


def mixed_images(pod: Subject) -> Iterator[Shown]:
    linux, windows = images(pod.spec, "linux"), images(pod.spec, "windows")
    if linux and windows:
        (steps, image), (_, other) = (linux[0], windows[0]) if pod.verdict.windows else (windows[0], linux[0])
        yield Shown(steps, f"{image} and {other} are for different systems and cannot share a pod")


def linux_images(pod: Subject) -> Iterator[Shown]:
    if pod.verdict.windows and pod.verdict.weight in ("pinned", "said") and not images(pod.spec, "windows"):
        for steps, image in images(pod.spec, "linux"):
            yield Shown(steps, f"{image} is for Linux, but its pod goes to Windows nodes",
                        "Use an image for Windows, or send the pod to Linux nodes.")


def image_build(pod: Subject) -> Iterator[Shown]:
    if host_process(pod.spec) or _hyperv(pod.spec):
        return  # they run on the node's own kernel, or on one of their own
    tagged = [
        ((*steps, "image"), container["image"], build) for steps, container in containers(pod.spec)
        if isinstance(container.get("image"), str) and (build := build_of(container["image"])) is not None
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
            yield Shown(steps, message, nodes=nodes, limit=ids.pop() if len(ids) == 1 else _DOES_NOT_START)


def _met(image: str, build: Build, target: Target) -> str:
    """What becomes of an image of another build: a list of images is looked through when it is pulled, where Docker takes
    older builds too; a single image is pulled in any case."""
    if image.startswith(_OF_LISTS):
        if target.runtime == "containerd":
            return _NOT_FOR_CONTAINERD
        if target.runtime == "docker" and build.number > (target.build or 0):
            return _NOT_FOR_DOCKER
    return _DOES_NOT_START


def _apart(tagged: list[tuple[Steps, str, Build]]) -> Iterator[Shown]:
    """Whatever the node's build: no node runs images of two builds."""
    for steps, image, build in tagged[1:]:
        _, first, other = tagged[0]
        if build.number != other.number and not _related(build.number, other.number):
            yield Shown(steps, f"{image} is of build {build.number} and {first} of build {other.number}: no node runs both")
            return


def _runs(target: Target, build: Build) -> bool:
    return process_isolation(target.build or 0, build.number, stable_abi=target.runtime != "docker")


def _related(one: int, other: int) -> bool:
    return process_isolation(max(one, other), min(one, other), stable_abi=True)


def _hyperv(spec: Mapping[str, Any]) -> bool:
    name = spec.get("runtimeClassName")
    return isinstance(name, str) and any(word in name.lower() for word in _HYPERV)


def _of_another_build(image: str, build: Build, targets: list[Target]) -> str:
    numbers = sorted({target.build for target in targets if target.build is not None})
    names = ", ".join(f"{number} ({BUILDS[number].tags[0]})" if number in BUILDS else str(number) for number in numbers)
    return f"{image} is of build {build.number} and does not start on nodes of build {names}"


def run_as_non_root(pod: Subject) -> Iterator[Shown]:
    of_pod = inner(pod.spec, "securityContext", "runAsNonRoot")
    user_of_pod = inner(pod.spec, "securityContext", "windowsOptions", "runAsUserName")
    options = ("securityContext", "windowsOptions", "runAsUserName")
    for steps, container in containers(pod.spec):
        own = inner(container, "securityContext", "runAsNonRoot")
        own_user = inner(container, *options)
        user = own_user if own_user is not None else user_of_pod
        if (own if own is not None else of_pod) is not True or not isinstance(user, str) or user.lower() != _ROOT:
            continue
        message = f"runAsNonRoot forbids {user}: the container is not made"
        if own_user is None:
            yield Shown(("spec", *options), message)
            return  # once for what the whole pod has
        yield Shown((*steps, *options), message)


def env_case(pod: Subject) -> Iterator[Shown]:
    for steps, container in containers(pod.spec):
        seen: dict[str, str] = {}
        for i, variable in enumerate(listed(container.get("env"))):
            name = inner(variable, "name")
            if not isinstance(name, str):
                continue
            first = seen.setdefault(name.lower(), name)
            if first != name:
                yield Shown((*steps, "env", i), f"{name} and {first} are one variable on Windows")


def single_files(pod: Subject) -> Iterator[Shown]:
    for steps, path in _sub_paths(pod.spec, _SINGLE_FILES):
        yield Shown(steps, f"{path} is a single file of its volume")


def secret_files(pod: Subject) -> Iterator[Shown]:
    for steps, path in _sub_paths(pod.spec, ("secret",)):
        yield Shown(steps, f"{path} is a single file of a Secret")


def _sub_paths(spec: Mapping[str, Any], sources: tuple[str, ...]) -> Iterator[tuple[Steps, str]]:
    """Mounts of parts of volumes that hold single files."""
    held = [inner(v, "name") for v in listed(spec.get("volumes")) if any(inner(v, source) for source in sources)]
    for steps, container in containers(spec) if held else ():
        for i, mount in enumerate(listed(container.get("volumeMounts"))):
            key = next((key for key in ("subPath", "subPathExpr") if inner(mount, key)), "")
            if key and mount.get("name") in held:
                yield (*steps, "volumeMounts", i, key), str(mount[key])


def runtime_handler(pod: Subject) -> Iterator[Shown]:
    name = pod.spec.get("runtimeClassName")
    known = pod.runtime_classes(name) if isinstance(name, str) and name else None
    handler = inner(known, "handler")
    if isinstance(handler, str) and handler and handler != "docker":
        yield Shown(("spec", "runtimeClassName"), f"RuntimeClass {name} asks for the handler {handler}")


def unpinned(pod: Subject) -> Iterator[Shown]:
    """Labels of somebody's own may well choose nodes of one system, and a toleration alone says little."""
    required = inner(pod.spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    runtime = pod.spec.get("runtimeClassName")
    unknown = bool(runtime) and pod.runtime_classes(str(runtime)) is None  # it may well select nodes
    chosen = pod.spec.get("nodeSelector") or pod.spec.get("nodeName") or required or unknown
    sign = pod.verdict.sign
    if pod.linux and sign is not None and not chosen and pod.verdict.weight in ("said", "likely"):
        yield Shown(("spec",), f"this pod is for Windows ({sign.text}), but may land on a Linux node",
                    "Add nodeSelector kubernetes.io/os: windows, and tolerate the taint of your Windows nodes.")


def inner(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


Check = Callable[[Subject], Iterator[Shown]]

CHECKS: Final[Mapping[str, Check]] = {
    "mixed-images": mixed_images,
    "image-os": linux_images,
    "image-build": image_build,
    "run-as-non-root": run_as_non_root,
    "env-case": env_case,
    "single-file-mount": single_files,
    "secret-subpath": secret_files,
    "runtime-handler": runtime_handler,
    "os-selector": unpinned,
}
