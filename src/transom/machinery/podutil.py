"""Pod helpers: quality of service, iteration over containers, seccomp annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from transom.machinery import quantity

_QOS_RESOURCES = ("cpu", "memory")
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_LOCALHOST = "localhost/"


def visit_containers(spec: Mapping[str, Any], ephemeral: bool = True) -> Sequence[dict[str, Any]]:
    """Init containers, containers, ephemeral containers, in Kubernetes' order. Most pods have only
    containers.
    """
    found: Sequence[dict[str, Any]] = spec.get("containers") or ()
    if first := spec.get("initContainers"):
        found = [*first, *found]
    if ephemeral and (more := spec.get("ephemeralContainers")):
        found = [*found, *more]
    return found


def containers_with_path(
    spec: Mapping[str, Any], path: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """Every container of a pod spec in Kubernetes' order."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        if found := spec.get(kind):
            for i, container in enumerate(found):
                yield container, f"{path}.{kind}[{i}]"


def current_pod_ips(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses that a pod uses. The status of a terminated pod still has its addresses, but
    another pod may have them by now.
    """
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return ()
    found = tuple(entry["ip"] for entry in status.get("podIPs") or () if entry.get("ip"))
    return found or ((status["podIP"],) if status.get("podIP") else ())


def is_restartable_init_container(container: dict[str, Any]) -> bool:
    """Whether an init container is a sidecar: it keeps running beside the containers."""
    return container.get("restartPolicy") == "Always"


def matching_restart_rule(container: dict[str, Any], code: int) -> dict[str, Any] | None:
    """The first rule of the container for this exit code."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        listed = code in (codes.get("values") or ())
        if codes.get("operator") == ("In" if listed else "NotIn"):
            return dict(rule)
    return None


def container_should_restart(
    container: dict[str, Any], pod_policy: str, code: int, *, restart_all: bool
) -> bool:
    """Whether the rules, the policy of the container or that of the pod restart a container that
    has exited. `restart_all`: the release has the action RestartAllContainers.
    """
    if container.get("restartPolicy"):
        action = (matching_restart_rule(container, code) or {}).get("action")
        if action == "Restart" or (action == "RestartAllContainers" and restart_all):
            return True
    policy = container.get("restartPolicy") or pod_policy
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def all_containers_could_restart(spec: dict[str, Any]) -> bool:
    """Whether a rule of any container restarts all of them."""
    return any(
        rule.get("action") == "RestartAllContainers"
        for container in visit_containers(spec, ephemeral=False)
        for rule in container.get("restartPolicyRules") or ()
    )


def qos_class(pod: dict[str, Any], pod_level: bool = False) -> str:
    """Guaranteed if every container has equal limits and requests for cpu and memory, BestEffort
    without any. `pod_level`: resources of the pod, if set, count instead of those of containers.
    """
    requests: dict[str, quantity.Quantity] = {}
    limits: dict[str, quantity.Quantity] = {}
    guaranteed = True
    spec = pod.get("spec") or {}
    holders = visit_containers(spec, ephemeral=False)
    if pod_level and spec.get("resources") is not None:
        holders = (spec,)
    for container in holders:
        resources = container.get("resources") or {}
        for total, part in (
            (requests, resources.get("requests") or {}),
            (limits, resources.get("limits") or {}),
        ):
            positive = 0
            for name in _QOS_RESOURCES:
                value = quantity.parse_quantity(part[name]) if name in part else None
                if value is not None and value.sign > 0:
                    positive += 1
                    total[name] = total[name] + value if name in total else value
            if total is limits and positive < len(_QOS_RESOURCES):
                guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and len(requests) == len(limits)
        and all(name in limits and value == limits[name] for name, value in requests.items())
    ):
        return "Guaranteed"
    return "Burstable"


def persisted_qos_class(pod: dict[str, Any]) -> str:
    """The class that the API server computed when the pod was created; static pods have none yet.
    It does not visit all containers, so it can be used once for each of them.
    """
    return str((pod.get("status") or {}).get("qosClass") or qos_class(pod))


def _seccomp_annotation(profile: dict[str, Any]) -> str:
    kind = profile.get("type")
    if kind == "Unconfined":
        return "unconfined"
    if kind == "RuntimeDefault":
        return "runtime/default"
    if kind == "Localhost" and profile.get("localhostProfile") is not None:
        return _LOCALHOST + str(profile["localhostProfile"])
    return ""


def _seccomp_profile(annotation: str) -> dict[str, Any] | None:
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation in ("runtime/default", "docker/default"):
        return {"type": "RuntimeDefault"}
    if annotation.startswith(_LOCALHOST):
        rest = annotation[len(_LOCALHOST) :]
        return {"type": "Localhost", "localhostProfile": rest} if rest else None
    return None


def sync_seccomp(pod: dict[str, Any]) -> None:
    """Keeps the old seccomp annotations and the fields that replaced them in sync, on create."""
    annotations = pod["metadata"].get("annotations") or {}
    spec = pod.get("spec") or {}
    for key, holder in [
        (_SECCOMP_POD, spec),
        *(
            (_SECCOMP_CONTAINER + c.get("name", ""), c)
            for c in visit_containers(spec, ephemeral=False)
        ),
    ]:
        profile = (holder.get("securityContext") or {}).get("seccompProfile")
        annotation = annotations.get(key)
        if profile is not None and annotation is None:
            text = _seccomp_annotation(profile)
            if text:
                pod["metadata"]["annotations"] = annotations = {**annotations, key: text}
        elif annotation is not None and profile is None:
            profile = _seccomp_profile(annotation)
            if profile is not None:
                holder["securityContext"] = {
                    **(holder.get("securityContext") or {}),
                    "seccompProfile": profile,
                }


APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


def may_have_profiles(annotations: Iterable[str]) -> bool:
    """Whether annotations may set seccomp or AppArmor profiles; cheap, for pods without any."""
    return ".security." in "\n".join(annotations)


def apparmor_profile(annotation: str) -> dict[str, Any] | None:
    """The field of an annotation, None if it has no valid one."""
    if annotation == "unconfined":
        return {"type": "Unconfined"}
    if annotation == "runtime/default":
        return {"type": "RuntimeDefault"}
    local = annotation.removeprefix("localhost/")
    if local != annotation and local and local == local.strip() and len(local) <= 4095:
        return {"type": "Localhost", "localhostProfile": local}
    return None


def sync_apparmor(pod: dict[str, Any]) -> Iterator[str]:
    """Copies AppArmor annotations to the fields that replaced them, on create; yields warnings."""
    annotations, spec = pod["metadata"].get("annotations") or {}, pod["spec"]
    if not may_have_profiles(annotations):
        return
    if (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container in visit_containers(spec):
        key = APPARMOR_ANNOTATION + container.get("name", "")
        context = container.get("securityContext") or {}
        if key not in annotations or context.get("appArmorProfile") is not None:
            continue
        profile = apparmor_profile(annotations[key])
        if profile is not None and profile == of_pod:
            continue
        if profile is not None:
            container["securityContext"] = {**context, "appArmorProfile": profile}
        yield (
            f"metadata.annotations[{key}]: deprecated since v1.30; "
            'use the "appArmorProfile" field instead'
        )


def find_condition(obj: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """A condition of the status by its type."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return entry
    return None
