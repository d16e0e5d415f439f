"""Texts and behaviour of the scheduler that differ by release without a feature gate."""

from __future__ import annotations

from typing import Final

from transom.kit.named_tuple import NamedTuple
from transom.machinery.releases.release import Release


class SchedulingRules(NamedTuple):
    """The rules of 1.14; each field that changed has an entry in `_CHANGES`."""

    # Reasons of filters.
    node_affinity: str = "node(s) didn't match node selector"
    pod_affinity: tuple[str, ...] = ("node(s) didn't match pod affinity/anti-affinity",)
    untolerated_taint: str = "node(s) had taints that the pod didn't tolerate"
    too_many_pods: str = "Insufficient pods"
    volume_node_conflict: str = "node(s) had volume node affinity conflict"
    missing_volume: str = "pvc(s) bound to non-existent pv(s)"
    checks_lost_claims: bool = False
    exclusive_claim: str = (
        "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access "
        "mode"
    )
    exclusive_claim_helps: bool = False  # whether preemption can free such a claim
    # The event of a victim of preemption.
    preempted: str = "Preempted by {namespace}/{name} on node {node}"
    # The message of a pod that fits on no node: whether it ends with that of postFilter, how that
    # ends, and whether the reason of preFilter stands alone, without a number of nodes.
    post_filter_message: bool = False
    post_filter_end: str = ""
    pre_filter_message: bool = False
    # A request above the node's capacity is beyond the help of preemption.
    too_large_is_unresolvable: bool = False
    # Resources that a pod does not request are not compared.
    compares_requested_only: bool = False
    # Topology spread counts the pods of eligible nodes, not of all nodes in their domains.
    spread_counts_eligible_nodes: bool = False
    # The default profile: weights of scores, and its plugins.
    new_score_weights: bool = False
    prefers_avoiding_pods: bool = True
    disk_limits: bool = True  # plugins for the disks of cloud providers
    resource_claims: bool = False  # whether resource.k8s.io/v1 is served
    # The reason of a pod whose scheduling failed with an error, not because no node fits.
    error_reason: str = "Unschedulable"
    filter_error: str = 'running "{plugin}" filter plugin for pod "{pod}": {error}'


_CHANGES: Final[tuple[tuple[Release, dict[str, object]], ...]] = (
    (
        Release(1, 18),
        {
            "untolerated_taint": "node(s) had taint {{{key}: {value}}}, that the pod didn't tolerate",
            "too_many_pods": "Too many pods",
        },
    ),
    (Release(1, 20), {"node_affinity": "node(s) didn't match Pod's node affinity"}),
    (
        Release(1, 21),
        {
            "node_affinity": "node(s) didn't match Pod's node affinity/selector",
            "pod_affinity": ("node(s) didn't match pod affinity/anti-affinity rules",),
        },
    ),
    (Release(1, 22), {"pod_affinity": ()}),
    (
        Release(1, 23),
        {
            "missing_volume": "node(s) unavailable due to one or more pvc(s) bound to non-existent "
            "pv(s)",
            "preempted": "Preempted by a pod on node {node}",
            "checks_lost_claims": True,
            "error_reason": "SchedulerError",
            "prefers_avoiding_pods": False,
            "new_score_weights": True,
        },
    ),
    (
        Release(1, 24),
        {
            "untolerated_taint": "node(s) had untolerated taint {{{key}: {value}}}",
            "post_filter_message": True,
            "spread_counts_eligible_nodes": True,
        },
    ),
    (Release(1, 26), {"pre_filter_message": True, "post_filter_end": "."}),
    (Release(1, 27), {"exclusive_claim_helps": True}),
    (
        Release(1, 28),
        {
            "compares_requested_only": True,
            "filter_error": 'running "{plugin}" filter plugin: {error}',
        },
    ),
    (
        Release(1, 29),
        {"post_filter_end": "", "preempted": "Preempted by pod {uid} on node {node}"},
    ),
    (Release(1, 32), {"disk_limits": False}),
    (
        Release(1, 33),
        {"volume_node_conflict": "node(s) didn't match PersistentVolume's node affinity"},
    ),
    (
        Release(1, 34),
        {
            "untolerated_taint": "node(s) had untolerated taint(s)",
            "exclusive_claim": "node(s) unavailable due to PersistentVolumeClaim with "
            "ReadWriteOncePod access mode already in-use by another pod",
            "too_large_is_unresolvable": True,
            "resource_claims": True,
        },
    ),
)


def scheduling_rules(release: Release) -> SchedulingRules:
    changed: dict[str, object] = {}
    for since, fields in _CHANGES:
        if release >= since:
            changed |= fields
    return SchedulingRules(**changed)  # type: ignore[arg-type]
