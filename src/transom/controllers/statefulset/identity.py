"""The identity of a StatefulSet pod: its ordinal, name, labels, host name and claims. Pure
functions.
"""

from __future__ import annotations

import re

from transom.client.resources import STATEFUL_SETS
from transom.controllers import pods
from transom.controllers.ownership import controller_ref
from transom.kit.lazy import lazy_pattern
from transom.machinery.objects import Object

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_LABEL = "controller-revision-hash"
_NAME = lazy_pattern(r"(.*)-([0-9]+)", re.ASCII | re.DOTALL)
_INT32 = 1 << 31


def parent_and_ordinal(pod_name: str) -> tuple[str, int]:
    """The set's name and the ordinal in a pod's name; "" and -1 if it has none."""
    match = _NAME.fullmatch(pod_name)
    if match is None:
        return "", -1
    ordinal = int(match[2])
    return match[1], ordinal if ordinal < _INT32 else -1


def ordinal_of(pod: Object) -> int:
    return parent_and_ordinal(pod["metadata"]["name"])[1]


def is_member_of_set(stateful_set: Object, pod: Object) -> bool:
    return parent_and_ordinal(pod["metadata"]["name"])[0] == stateful_set["metadata"]["name"]


def revision_of(pod: Object) -> str:
    return (pod["metadata"].get("labels") or {}).get(REVISION_LABEL, "")


def start_ordinal(stateful_set: Object) -> int:
    """The ordinal of the first replica."""
    start: int = (stateful_set["spec"].get("ordinals") or {}).get("start") or 0
    return start


def is_in_ordinal_range(stateful_set: Object, ordinal: int) -> bool:
    first = start_ordinal(stateful_set)
    return bool(first <= ordinal < first + stateful_set["spec"].get("replicas", 0))


def claims_of_ordinal(stateful_set: Object, ordinal: int) -> dict[str, Object]:
    """The claims of one pod by the names of their templates, in template order."""
    meta, spec = stateful_set["metadata"], stateful_set["spec"]
    found = {}
    for template in spec.get("volumeClaimTemplates") or ():
        given = template.get("metadata") or {}
        labels = {
            **(given.get("labels") or {}),
            **((spec.get("selector") or {}).get("matchLabels") or {}),
        }
        claim_meta = {
            **given,
            "name": f"{given['name']}-{meta['name']}-{ordinal}",
            "namespace": meta["namespace"],
        }
        if labels:
            claim_meta["labels"] = labels
        found[given["name"]] = {**template, "metadata": claim_meta}
    return found


def identity_matches(stateful_set: Object, pod: Object, *, index_label: bool = False) -> bool:
    """`index_label`: whether the ordinal is in a label."""
    meta = pod["metadata"]
    parent, ordinal = parent_and_ordinal(meta["name"])
    name = stateful_set["metadata"]["name"]
    return (
        ordinal >= 0
        and parent == name
        and meta["name"] == f"{name}-{ordinal}"
        and (meta.get("labels") or {}).get(POD_NAME_LABEL) == meta["name"]
        and (not index_label or (meta.get("labels") or {}).get(POD_INDEX_LABEL) == str(ordinal))
    )


def storage_matches(stateful_set: Object, pod: Object) -> bool:
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    return all(
        (volumes.get(name, {}).get("persistentVolumeClaim") or {}).get("claimName")
        == claim["metadata"]["name"]
        for name, claim in claims_of_ordinal(stateful_set, ordinal_of(pod)).items()
    )


def with_identity(stateful_set: Object, pod: Object, *, index_label: bool = False) -> Object:
    """The pod with the labels and volumes of its ordinal."""
    meta, ordinal = pod["metadata"], ordinal_of(pod)
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    wanted = claims_of_ordinal(stateful_set, ordinal)
    volumes: list[Object] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        for volume, claim in wanted.items()
    ]
    volumes += [
        volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in wanted
    ]
    labels = {**(meta.get("labels") or {}), POD_NAME_LABEL: name}
    if index_label:
        labels[POD_INDEX_LABEL] = str(ordinal)
    out = {
        **pod,
        "metadata": {**meta, "name": name, "labels": labels},
        "spec": dict(pod["spec"]),
    }
    if volumes:
        out["spec"]["volumes"] = volumes
    return out


def new_pod(
    stateful_set: Object, revision: str, ordinal: int, *, index_label: bool = False
) -> Object:
    """A pod to create."""
    pod = pods.pod_from_template(
        stateful_set["spec"].get("template") or {},
        stateful_set,
        controller_ref(stateful_set, STATEFUL_SETS),
    )
    meta, name = stateful_set["metadata"], f"{stateful_set['metadata']['name']}-{ordinal}"
    pod["metadata"] = {**pod["metadata"], "name": name, "namespace": meta["namespace"]}
    pod = with_identity(stateful_set, pod, index_label=index_label)
    pod["metadata"]["labels"][REVISION_LABEL] = revision
    pod["spec"]["hostname"] = name
    pod["spec"]["subdomain"] = stateful_set["spec"].get("serviceName", "")
    return pod
