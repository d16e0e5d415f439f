"""Determines the operating system of a pod: which fields of its spec show it, and how reliably.

Admission, lint and the webhook use this first, because Windows limits apply only to Windows pods.
Wrong results cost trust, so signs have weights: a pod that can only run on Linux nodes is for Linux
whatever else it contains; image names count only without stronger signs. Contains no Windows rules
and no I/O: the caller passes RuntimeClasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from transom.windows.images import image_os

Os = Literal["windows", "linux"]
Steps = tuple[str | int, ...]
# Returns the RuntimeClass with a name, None if it is unknown.
RuntimeClasses = Callable[[str], Mapping[str, Any] | None]

# pinned: the scheduler places it only on nodes of that system. declared: its author states it, but
# the scheduler does not use it. likely: the images show it. hinted: it tolerates a taint of Windows
# nodes, which Linux pods may do as well.
Weight = Literal["pinned", "declared", "likely", "hinted"]
_PREFERRED: Final[Mapping[Weight, Os]] = {"likely": "windows", "pinned": "linux"}
_WEIGHTS: Final[tuple[Weight, ...]] = ("pinned", "declared", "likely", "hinted")

OS_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")
BUILD_LABEL: Final = "node.kubernetes.io/windows-build"
# Labels of cloud providers; the value begins with "windows" for Windows, otherwise the node has
# Linux.
_PROVIDER_LABELS: Final = ("cloud.google.com/gke-os-distribution", "kubernetes.azure.com/os-sku")
# Common taint keys of Windows nodes.
TAINT_KEYS: Final = ("os", "kubernetes.io/os", "beta.kubernetes.io/os", "node.kubernetes.io/os")
_WINDOWS_HANDLERS: Final = ("runhcs", "windows", "wcow")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


class OsSign(NamedTuple):
    """A part of a pod that shows its operating system."""

    os: Os
    weight: Weight
    steps: Steps  # relative to the pod or template
    text: str  # "nodeSelector kubernetes.io/os=windows"


class TargetOs(NamedTuple):
    os: Os | None  # None: unknown
    weight: Weight
    sign: OsSign | None  # the strongest
    signs: tuple[OsSign, ...]

    @property
    def windows(self) -> bool:
        return self.os == "windows"

    @property
    def pinned(self) -> bool:
        return self.weight == "pinned" and self.os is not None


_UNTOLD: Final = TargetOs(None, "hinted", None, ())


def _no_classes(_: str) -> None:
    return None


def find_target_os(
    pod: Mapping[str, Any], runtime_classes: RuntimeClasses = _no_classes
) -> TargetOs:
    """The operating system of a pod or pod template (an object with `spec`)."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return _UNTOLD
    signs = tuple(_signs(spec, runtime_classes))
    for weight in _WEIGHTS:
        matching = [sign for sign in signs if sign.weight == weight]
        if matching:
            # Images of both systems in one pod are reported as a Windows problem; a pod that
            # selects nodes of both systems has no target, and no Windows message is reported for
            # it.
            first = next(
                (sign for sign in matching if sign.os == _PREFERRED.get(weight)), matching[0]
            )
            return TargetOs(first.os, weight, first, signs)
    return _UNTOLD


def possible_systems(spec: Mapping[str, Any]) -> bool:
    """Whether a pod's spec may be for Windows. Fast, because it runs for every pod of a cluster; it
    may return false positives, but no false negatives.
    """
    selector = spec.get("nodeSelector")
    if selector:
        return bool(selector.get(OS_LABELS[0]) != "linux")
    if spec.get("runtimeClassName") or spec.get("os") or spec.get("affinity"):
        return True
    context = spec.get("securityContext")
    if context and "windowsOptions" in context:
        return True
    for toleration in spec.get("tolerations") or ():
        if toleration.get("key") in TAINT_KEYS:
            return True
    for name in _CONTAINERS:
        for container in spec.get(name) or ():
            context = container.get("securityContext")
            if image_os(container.get("image") or "") == "windows" or (
                context and "windowsOptions" in context
            ):
                return True
    return False


def _signs(spec: Mapping[str, Any], runtime_classes: RuntimeClasses) -> Iterator[OsSign]:
    yield from _selectors(spec)
    yield from _runtime_class(spec, runtime_classes)
    yield from _hinted(spec)
    yield from _tolerations(spec)
    yield from _images(spec)


def _selectors(spec: Mapping[str, Any]) -> Iterator[OsSign]:
    for steps, key, value in _node_selector(spec.get("nodeSelector"), ("spec", "nodeSelector")):
        os = _label_selects(key, value)
        if os is not None:
            yield OsSign(os, "pinned", steps, f"nodeSelector {key}={value}")
    affinity = _inner(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    os, at = affinity_os(affinity)
    if os is not None:
        base = (
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
        )
        yield OsSign(os, "pinned", base + at, f"node affinity for {os.capitalize()} nodes")


def _node_selector(selector: Any, steps: Steps) -> Iterator[tuple[Steps, str, str]]:
    if isinstance(selector, Mapping):
        for key, value in selector.items():
            if isinstance(key, str) and isinstance(value, str):
                yield (*steps, key), key, value


def _label_selects(key: str, value: str) -> Os | None:
    if key in OS_LABELS:
        lower = value.lower()
        return "windows" if lower == "windows" else "linux" if lower == "linux" else None
    if key == BUILD_LABEL and value:
        return "windows"
    if key in _PROVIDER_LABELS and value:
        return "windows" if value.lower().startswith("windows") else "linux"
    return None


def affinity_os(required: Any) -> tuple[Os | None, Steps]:
    """The only system whose nodes the required terms select, and the path of the first such
    term.
    """
    terms = _inner(required, "nodeSelectorTerms")
    if not isinstance(terms, list) or not terms:
        return None, ()
    found: set[Os | None] = set()
    at: Steps = ()
    for i, term in enumerate(terms):
        os, inner = _term_os(term)
        found.add(os)
        at = at or ("nodeSelectorTerms", i, *inner)
    os = found.pop()
    return (os, at) if not found else (None, ())


def _term_os(term: Any) -> tuple[Os | None, Steps]:
    expressions = _inner(term, "matchExpressions")
    for i, wanted in enumerate(expressions if isinstance(expressions, list) else ()):
        key, operator, values = (
            _inner(wanted, "key"),
            _inner(wanted, "operator"),
            _inner(wanted, "values"),
        )
        if key == BUILD_LABEL and operator in ("In", "Exists"):
            return "windows", ("matchExpressions", i)
        if not isinstance(values, list) or not values:
            continue
        if operator == "In":
            systems = {
                _label_selects(key, value) if isinstance(value, str) else None for value in values
            }
            if len(systems) == 1 and (os := systems.pop()) is not None:
                return os, ("matchExpressions", i)
        elif operator == "NotIn" and key in OS_LABELS:
            lower = {str(value).lower() for value in values}
            if "windows" in lower and "linux" not in lower:
                return "linux", ("matchExpressions", i)
            if "linux" in lower and "windows" not in lower:
                return "windows", ("matchExpressions", i)
    return None, ()


def _runtime_class(spec: Mapping[str, Any], runtime_classes: RuntimeClasses) -> Iterator[OsSign]:
    name = spec.get("runtimeClassName")
    if not isinstance(name, str) or not name:
        return
    steps = ("spec", "runtimeClassName")
    known = runtime_classes(name)
    if known is None:
        if any(word in name.lower() for word in _WINDOWS_HANDLERS):
            yield OsSign("windows", "declared", steps, f"RuntimeClass {name}")
        return
    for _, key, value in _node_selector(_inner(known, "scheduling", "nodeSelector"), ()):
        os = _label_selects(key, value)
        if os is not None:
            yield OsSign(os, "pinned", steps, f"RuntimeClass {name}, which selects {key}={value}")
            return
    handler = known.get("handler")
    if isinstance(handler, str) and any(word in handler.lower() for word in _WINDOWS_HANDLERS):
        yield OsSign(
            "windows", "declared", steps, f"RuntimeClass {name} with the handler {handler}"
        )


def _hinted(spec: Mapping[str, Any]) -> Iterator[OsSign]:
    os = _inner(spec, "os", "name")
    if os in ("windows", "linux"):
        yield OsSign(os, "declared", ("spec", "os", "name"), f"spec.os is {os}")
    if _inner(spec, "securityContext", "windowsOptions"):
        yield OsSign(
            "windows", "declared", ("spec", "securityContext", "windowsOptions"), "windowsOptions"
        )
    for steps, container in pod_containers(spec):
        if _inner(container, "securityContext", "windowsOptions"):
            yield OsSign(
                "windows",
                "declared",
                (*steps, "securityContext", "windowsOptions"),
                "windowsOptions",
            )


def _tolerations(spec: Mapping[str, Any]) -> Iterator[OsSign]:
    tolerations = spec.get("tolerations")
    for i, one in enumerate(tolerations if isinstance(tolerations, list) else ()):
        key, value = _inner(one, "key"), _inner(one, "value")
        if key in TAINT_KEYS and isinstance(value, str) and value.lower() == "windows":
            yield OsSign(
                "windows",
                "hinted",
                ("spec", "tolerations", i),
                f"it tolerates the taint {key}={value}",
            )


def _images(spec: Mapping[str, Any]) -> Iterator[OsSign]:
    for steps, container in pod_containers(spec):
        image = container.get("image")
        os = image_os(image) if isinstance(image, str) else None
        if os is not None:
            yield OsSign(os, "likely", (*steps, "image"), f"the image {image}")


def pod_containers(spec: Any) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
    """All containers of a pod's spec, with their paths in the pod."""
    for name in _CONTAINERS:
        listed = _inner(spec, name)
        for i, container in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(container, Mapping):
                yield ("spec", name, i), container


def _inner(value: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
