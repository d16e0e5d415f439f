"""Command lines that carry out a remedy, as they are pasted into a shell: one for each kind of change,
with all names and values that the cluster's objects determine.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    key_of_object,
    name_of_object,
    reported_windows_build,
)
from transom.machinery import quantity
from transom.windows.builds import BUILDS

Commands = tuple[str, ...]

# Controllers that replace their pods when their template changes.
_ROLLING: Final = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
}


def patch_command(kind: str, obj: Object, patch: object, form: str = "merge") -> str:
    """`form`: the type of the patch: merge, json or strategic."""
    namespace, called = key_of_object(obj)
    scope = f" --namespace {namespace}" if namespace else ""
    return f"kubectl patch {kind} {called}{scope} --type {form} --patch {_quoted(patch)}"


def _quoted(patch: object) -> str:
    return shlex.quote(json.dumps(patch, separators=(",", ":")))


def find_workload(s: ClusterSnapshot, obj: Object) -> tuple[str, Object] | None:
    """The kind and the object whose template a pod or a ReplicaSet comes from, if it replaces its pods
    when the template changes.
    """
    namespace = key_of_object(obj)[0]
    for owner in obj["metadata"].get("ownerReferences") or ():
        kind, wanted = str(owner.get("kind", "")), (namespace, str(owner.get("name", "")))
        plural = "replicasets" if kind == "ReplicaSet" else _ROLLING.get(kind, "")
        found = next((one for one in s.of(plural) if key_of_object(one) == wanted), None)
        if found is not None:
            return find_workload(s, found) if kind == "ReplicaSet" else (kind, found)
    return None


def change_pod(s: ClusterSnapshot, pod: Object, spec: Mapping[str, Any]) -> Commands:
    """Changes fields of a pod's spec with a strategic merge patch: in the template of its workload. A pod
    without an owner is created again.
    """
    found = find_workload(s, pod)
    if found is not None:
        kind, owner = found
        patch = {"spec": {"template": {"spec": spec}}}
        return (patch_command(kind.lower(), owner, patch, "strategic"),)
    if pod["metadata"].get("ownerReferences"):
        return ()
    changed = patch_command("pod", pod, {"spec": {**spec, "nodeName": None}}, "strategic")
    return (f"{changed} --dry-run=client --output json | kubectl replace --force --filename -",)


def change_container(
    s: ClusterSnapshot, pod: Object, container: str, fields: Mapping[str, Any]
) -> Commands:
    inits = (pod.get("spec") or {}).get("initContainers") or ()
    among = "initContainers" if any(one.get("name") == container for one in inits) else "containers"
    return change_pod(s, pod, {among: [{"name": container, **fields}]})


def use_image_of_build(
    s: ClusterSnapshot, pod: Object, container: str, image: str, node: str
) -> Commands:
    """Replaces the Windows build in an image's tag by that of the node."""
    at = s.node.get(node)
    host = reported_windows_build(at) if at is not None else 0
    names = {name: build.number for build in BUILDS.values() for name in build.tags}
    wanted = next((name for name, number in names.items() if number == host), "")
    repository, _, tag = image.rpartition(":")
    for name, number in names.items():
        if wanted and number != host and name in tag:
            return change_container(
                s, pod, container, {"image": f"{repository}:{tag.replace(name, wanted)}"}
            )
    return ()


def create_configuration(pod: Object, kind: str, name: str) -> Commands:
    """Creates a ConfigMap or Secret with the keys that the pod reads."""
    namespace = key_of_object(pod)[0]
    field, named = (
        ("configMapKeyRef", "configMap") if kind == "ConfigMap" else ("secretKeyRef", "secret")
    )
    keys: dict[str, None] = {}
    spec = pod.get("spec") or {}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for variable in container.get("env") or ():
            ref = (variable.get("valueFrom") or {}).get(field) or {}
            if ref.get("name") == name:
                keys[str(ref.get("key", ""))] = None
    for volume in spec.get("volumes") or ():
        source = volume.get(named) or {}
        if name in (source.get("name"), source.get("secretName")):
            keys.update({str(item.get("key", "")): None for item in source.get("items") or ()})
    values = "".join(f" --from-literal={shlex.quote(key)}=VALUE" for key in keys if key)
    made = "configmap" if kind == "ConfigMap" else "secret generic"
    return (f"kubectl create {made} {shlex.quote(name)} --namespace {namespace}{values}",)


def tolerate(s: ClusterSnapshot, pod: Object, tolerations: Sequence[Object]) -> Commands:
    spec = (pod.get("spec") or {}).get("tolerations") or ()
    kept = [
        dict(one) for one in spec if not str(one.get("key", "")).startswith("node.kubernetes.io/")
    ]
    return change_pod(s, pod, {"tolerations": [*kept, *map(dict, tolerations)]})


def double_memory(s: ClusterSnapshot, pod: Object, container: str, limit: object) -> Commands:
    if not limit:
        return ()
    doubled = f"{max(quantity.parse_quantity(str(limit)).value() * 2 >> 20, 64)}Mi"
    return change_container(s, pod, container, {"resources": {"limits": {"memory": doubled}}})


def lower_requests(
    s: ClusterSnapshot, pod: Object, most: Mapping[str, str], resources: Sequence[str]
) -> Commands:
    """Lets the container that requests most of a resource request half of the largest node's."""
    changes: dict[str, dict[str, str]] = {}
    for resource in resources:
        requests = {
            str(one["name"]): quantity.parse_quantity(
                str(((one.get("resources") or {}).get("requests") or {}).get(resource, "0"))
            ).milli_value()
            for one in (pod.get("spec") or {}).get("containers") or ()
        }
        largest = max(requests, key=lambda name: requests[name])
        half = quantity.parse_quantity(most[resource]).milli_value() // 2
        amount = f"{half}m" if resource == "cpu" else str(half // 1000)
        changes.setdefault(largest, {})[resource] = amount
    return tuple(
        command
        for name, requests_of in changes.items()
        for command in change_container(
            s, pod, name, {"resources": {"requests": requests_of, "limits": requests_of}}
        )
    )


def raise_quota(quota: Object | None, owner: Object) -> Commands:
    """Raises each limit of a quota that the missing pods of a workload exceed. Their share is that of
    the pods that exist, or what their template asks for.
    """
    if quota is None:
        return ()
    status, spec = quota.get("status") or {}, owner.get("spec") or {}
    missing = int(spec.get("replicas", 1)) - int((owner.get("status") or {}).get("replicas") or 0)
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    hard: dict[str, str] = {}
    for name, limit in (status.get("hard") or {}).items():
        group, _, resource = name.rpartition(".")
        each = 0
        if name in ("pods", "count/pods"):
            each = 1000
        elif group in ("", "requests", "limits"):
            field = "limits" if group == "limits" else "requests"
            each = sum(
                quantity.parse_quantity(
                    str(((one.get("resources") or {}).get(field) or {}).get(resource, "0"))
                ).milli_value()
                for one in containers
            )
        used = quantity.parse_quantity(str((status.get("used") or {}).get(name, "0"))).milli_value()
        needed = used + max(missing, 1) * each
        if each and needed > quantity.parse_quantity(str(limit)).milli_value():
            hard[name] = f"{needed}m" if needed % 1000 else str(needed // 1000)
    return (patch_command("resourcequota", quota, {"spec": {"hard": hard}}),) if hard else ()


def _is_reserved(node: Object) -> bool:
    """Whether it has a taint that no kubelet or controller removes, such as that of the control plane."""
    return any(
        not str(taint.get("key", "")).startswith("node.kubernetes.io/")
        for taint in node["spec"].get("taints") or ()
    )


def create_pods_now(kind: str, owner: Object, now: float) -> str:
    """A controller tries again with increasing back-off, up to 16 minutes, and at once when the object
    changes: the time is a value that the annotation did not have.
    """
    namespace, called = key_of_object(owner)
    return (
        f"kubectl annotate {kind.lower()} {called} --namespace {namespace} --overwrite "
        f"retried-at={int(now)}"
    )


def label_fitting_node(nodes: Sequence[Object], selector: Mapping[str, str]) -> Commands:
    """Labels the worker that has most of the labels which a pod selects."""
    workers = [
        node
        for node in nodes
        if not node["spec"].get("taints") and not node["spec"].get("unschedulable")
    ] or list(nodes)

    def missing(node: Object) -> list[str]:
        labels = node["metadata"].get("labels") or {}
        return [f"{key}={value}" for key, value in selector.items() if labels.get(key) != value]

    best = min(workers, key=lambda node: (_is_reserved(node), len(missing(node))), default=None)
    if best is None:
        return ()
    return (f"kubectl label node {name_of_object(best)} {' '.join(missing(best))} --overwrite",)
