"""The DaemonSet pod for one node: default tolerations, labels of its revision, and node
affinity.
"""

from __future__ import annotations

from transom.machinery.objects import Object

HASH_LABEL = "controller-revision-hash"
_GENERATION_LABEL = "pod-template-generation"
_GENERATION = "deprecated.daemonset.template.generation"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME_FIELD = "metadata.name"
_INT64 = 1 << 63


def _exists(key: str, effect: str) -> Object:
    return {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}


# A daemon pod stays on a node with problems: it may be needed to solve them.
_TOLERATIONS = (
    _exists("not-ready", "NoExecute"),
    _exists("unreachable", "NoExecute"),
    _exists("disk-pressure", "NoSchedule"),
    _exists("memory-pressure", "NoSchedule"),
    _exists("pid-pressure", "NoSchedule"),
    _exists("unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATION = _exists("network-unavailable", "NoSchedule")


def with_default_tolerations(spec: Object) -> Object:
    tolerations = list(spec.get("tolerations") or ())
    wanted = (*_TOLERATIONS, _HOST_NETWORK_TOLERATION) if spec.get("hostNetwork") else _TOLERATIONS
    for toleration in wanted:
        places = [i for i, given in enumerate(tolerations) if _is_for_same(given, toleration)]
        for place in places:
            tolerations[place] = toleration  # replaces a user's toleration with a time limit
        if not places:
            tolerations.append(toleration)
    return {**spec, "tolerations": tolerations}


def _is_for_same(a: Object, b: Object) -> bool:
    return all(
        (a.get(field) or "") == (b.get(field) or "")
        for field in ("key", "effect", "operator", "value")
    )


def template_generation(daemon_set: Object) -> int | None:
    """The template generation from the annotation; None if there is none."""
    text = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION, "")
    digits = text.removeprefix("+").removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or abs(int(text)) >= _INT64:
        return None
    return int(text)


def daemon_pod_template(daemon_set: Object, revision_hash: str) -> Object:
    """The template with everything that the pods of all nodes have in common."""
    template = daemon_set["spec"].get("template") or {}
    meta = template.get("metadata") or {}
    labels = dict(meta.get("labels") or {})
    generation = template_generation(daemon_set)
    if generation is not None:
        labels[_GENERATION_LABEL] = str(generation)
    if revision_hash:
        labels[HASH_LABEL] = revision_hash
    return {
        "metadata": {**meta, "labels": labels},
        "spec": with_default_tolerations(template.get("spec") or {}),
    }


def pod_template_for_node(pod: Object, node: str) -> Object:
    """The pod with a node affinity for exactly one node."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    term = {"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        _REQUIRED: {"nodeSelectorTerms": [term]},
    }
    return {**pod, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}}


def target_node(pod: Object) -> str:
    """The node that a pod is on or is meant for; "" if unknown."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == _NAME_FIELD and field.get("operator") == "In":
                values = field.get("values") or []
                return str(values[0]) if len(values) == 1 else ""
    return ""


def is_updated(pod: Object, revision_hash: str) -> bool:
    return (
        bool(revision_hash)
        and (pod["metadata"].get("labels") or {}).get(HASH_LABEL) == revision_hash
    )
