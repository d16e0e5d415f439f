"""A container's security context with what it inherits from its pod. Pure; what it means is said by each system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.runtime.api import Image

_NOTHING: Final[Mapping[str, Any]] = {}
_INHERITED: Final = ("seLinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot")
_GMSA: Final = ("gmsaCredentialSpecName", "gmsaCredentialSpec")


def pod_context(pod: Object) -> Mapping[str, Any]:
    return pod["spec"].get("securityContext") or _NOTHING


def effective(pod: Object, container: Object) -> Mapping[str, Any]:
    """The container's fields, over those of the pod that containers inherit."""
    of_pod, own = pod_context(pod), container.get("securityContext") or _NOTHING
    inherited = {k: of_pod[k] for k in _INHERITED if of_pod.get(k) is not None}
    if not own:
        return inherited
    merged = {**inherited, **{k: v for k, v in own.items() if v is not None}}
    if own.get("windowsOptions") is not None and "windowsOptions" in inherited:
        merged["windowsOptions"] = _windows(inherited["windowsOptions"], own["windowsOptions"])
    return merged


def _windows(of_pod: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    merged = {**of_pod, **{k: v for k, v in own.items() if v is not None}}
    if any(own.get(k) is not None for k in _GMSA):
        # The two belong together: a name of the container's does not go with a spec of the pod's.
        for key in _GMSA:
            if own.get(key) is None:
                merged.pop(key, None)
    return merged


def described(pod: Object) -> str:
    """`name_namespace(uid)`, as log lines and messages name a pod."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def has_privileged_container(spec: Object) -> bool:
    return any((c.get("securityContext") or {}).get("privileged") for c in podutil.containers(spec))


def sysctls(context: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in context.get("sysctls") or ()}


def root_problem(context: Mapping[str, Any], image: Image) -> str:
    """Why a container that must not run as root cannot be run."""
    user = context.get("runAsUser")
    if user is not None:
        return "container's runAsUser breaks non-root policy" if user == 0 else ""
    if image.uid == 0 or (image.uid is None and not image.username):  # an image that names nobody means root
        return "container has runAsNonRoot and image will run as root"
    if image.uid is None and image.username:
        return f"container has runAsNonRoot and image has non-numeric user ({image.username}), cannot verify user is non-root"
    return ""
