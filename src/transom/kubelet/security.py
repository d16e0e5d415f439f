"""A container's security context with what it inherits from its pod. Pure; each operating system
interprets it.
"""

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


def effective_security_context(pod: Object, container: Object) -> Mapping[str, Any]:
    """The container's fields, overriding those that it inherits from the pod."""
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
        # The two belong together: do not combine the container's name with the pod's spec.
        for key in _GMSA:
            if own.get(key) is None:
                merged.pop(key, None)
    return merged


def describe_pod(pod: Object) -> str:
    """`name_namespace(uid)`, as log lines and messages name a pod."""
    meta = pod["metadata"]
    return f"{meta['name']}_{meta['namespace']}({meta['uid']})"


def has_privileged_container(spec: Object) -> bool:
    return any(
        (c.get("securityContext") or {}).get("privileged") for c in podutil.visit_containers(spec)
    )


# Capabilities over the machine; the others are also effective inside namespaces.
_OF_THE_MACHINE: Final = frozenset(
    (
        "ALL",
        "AUDIT_CONTROL",
        "AUDIT_READ",
        "BLOCK_SUSPEND",
        "BPF",
        "CHECKPOINT_RESTORE",
        "DAC_READ_SEARCH",
        "IPC_LOCK",
        "LEASE",
        "LINUX_IMMUTABLE",
        "MAC_ADMIN",
        "MAC_OVERRIDE",
        "MKNOD",
        "PERFMON",
        "SYSLOG",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_MODULE",
        "SYS_NICE",
        "SYS_PACCT",
        "SYS_PTRACE",
        "SYS_RAWIO",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "WAKE_ALARM",
    )
)
_MAPPED_IDS: Final = 1 << 16


def needs_host_users(spec: Object) -> bool:
    """Whether a pod requests what its own user namespace cannot provide: privileges over the
    machine, its devices, or users outside of the namespace.
    """
    context = spec.get("securityContext") or {}
    ids = [context.get("fsGroup"), *(context.get("supplementalGroups") or ())]
    for container in podutil.visit_containers(spec):
        own = container.get("securityContext") or {}
        added = (own.get("capabilities") or {}).get("add") or ()
        if container.get("volumeDevices") or any(
            name.upper().removeprefix("CAP_") in _OF_THE_MACHINE for name in added
        ):
            return True
    for requested in (
        context,
        *((c.get("securityContext") or {}) for c in podutil.visit_containers(spec)),
    ):
        ids += [requested.get("runAsUser"), requested.get("runAsGroup")]
    return any(number is not None and number >= _MAPPED_IDS for number in ids)


def pod_sysctls(context: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in context.get("sysctls") or ()}


def root_problem(context: Mapping[str, Any], image: Image) -> str:
    """Why a container with runAsNonRoot cannot run."""
    user = context.get("runAsUser")
    if user is not None:
        return "container's runAsUser breaks non-root policy" if user == 0 else ""
    if image.user_unknown:
        return ""
    # an image without a user means root
    if image.uid == 0 or (image.uid is None and not image.username):
        return "container has runAsNonRoot and image will run as root"
    if image.uid is None and image.username:
        return (
            f"container has runAsNonRoot and image has non-numeric user ({image.username}), "
            "cannot verify user is non-root"
        )
    return ""
