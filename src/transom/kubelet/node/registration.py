"""Registers a kubelet: creates or updates its Node object, and the CSINode.

On an existing Node the kubelet owns only its default labels, one annotation and the machine's
resources; labels and taints configured for registration apply to a new Node only.
"""

from __future__ import annotations

from transom.client.api import STRATEGIC_PATCH, ApiClient, is_already_exists, is_not_found
from transom.client.resources import CSI_NODES, NODES
from transom.kubelet.config import KubeletConfig
from transom.kubelet.osrules import OsRules
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machines.api import SystemInfo

ATTACH_DETACH = "volumes.kubernetes.io/controller-managed-attach-detach"
_HOSTNAME = "kubernetes.io/hostname"
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# Reset to the kubelet's values whenever it starts.
_DEFAULT_LABELS = (
    _HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
)
_HUGE_PAGES = "hugepages-"


def initial_node(config: KubeletConfig, rules: OsRules, identity: SystemInfo) -> Object:
    """A new node, without its status."""
    labels = {
        **rules.default_labels(identity, config.release),
        _HOSTNAME: config.node_name,
        **config.node_labels,
    }
    node: Object = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": config.node_name,
            "labels": labels,
            "annotations": {ATTACH_DETACH: "true"},
        },
        "spec": {},
    }
    spec = node["spec"]
    taints = [dict(taint) for taint in config.register_with_taints]
    if not config.register_schedulable:
        spec["unschedulable"] = True
        if not any(
            t.get("key") == _UNSCHEDULABLE and t.get("effect") == "NoSchedule" for t in taints
        ):
            taints.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule"})
    if taints:
        spec["taints"] = taints
    if config.provider_id:
        spec["providerID"] = config.provider_id
    return node


async def register_node(client: ApiClient, node: Object) -> tuple[Object, bool]:
    """Creates the node, or updates an existing one of its name; returns the node as the server has
    it, and whether it is new.
    """
    name = node["metadata"]["name"]
    try:
        return await client.create(NODES, "", node), True
    except ApiError as problem:
        if not is_already_exists(problem):
            raise
    existing = await client.get(NODES, "", name)
    patch = reconciliation(node, existing)
    if not patch:
        return existing, False
    return await client.patch(NODES, "", name, patch, STRATEGIC_PATCH, subresource="status"), False


def reconciliation(node: Object, existing: Object) -> Object:
    """The patch that updates an existing node; empty when nothing differs."""
    metadata: Object = {}
    annotations = existing["metadata"].get("annotations") or {}
    if annotations.get(ATTACH_DETACH) != node["metadata"]["annotations"][ATTACH_DETACH]:
        metadata["annotations"] = {ATTACH_DETACH: node["metadata"]["annotations"][ATTACH_DETACH]}
    wanted, labels = node["metadata"]["labels"], existing["metadata"].get("labels") or {}
    wrong = {
        k: wanted[k] or None
        for k in _DEFAULT_LABELS
        if k in wanted and labels.get(k, "") != wanted[k]
    }
    if wrong:
        metadata["labels"] = wrong
    status: Object = {}
    for part in ("capacity", "allocatable"):
        new, old = node["status"].get(part) or {}, (existing.get("status") or {}).get(part)
        if old is None:
            status[part] = new
            continue
        huge = {k: v for k, v in new.items() if k.startswith(_HUGE_PAGES) and old.get(k) != v}
        huge |= {k: None for k in old if k.startswith(_HUGE_PAGES) and k not in new}
        if huge:
            status[part] = huge
    patch: Object = {"metadata": metadata, "status": status}
    return {k: v for k, v in patch.items() if v}


async def ensure_csi_node(client: ApiClient, node: Object) -> None:
    """Lists the node's storage drivers; there are none yet."""
    name = node["metadata"]["name"]
    try:
        await client.get(CSI_NODES, "", name)
    except ApiError as problem:
        if not is_not_found(problem):
            raise
    else:
        return
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    try:
        await client.create(
            CSI_NODES,
            "",
            {
                "apiVersion": CSI_NODES.api_version,
                "kind": "CSINode",
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {"drivers": []},
            },
        )
    except ApiError as problem:
        if not is_already_exists(problem):
            raise
