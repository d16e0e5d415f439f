"""All plugins, and which of them act where unless a configuration says otherwise. Order matters: the first filter that
refuses a node is the one whose reason is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.scheduler.framework import Handle
from transom.scheduler.plugins import (
    default_binder,
    default_preemption,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_label,
    node_name,
    node_operating_system,
    node_ports,
    node_prefer_avoid_pods,
    node_resources_allocation,
    node_resources_balanced,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    priority_sort,
    requested_to_capacity_ratio,
    selector_spread,
    taint_toleration,
    volume_binding,
    volume_disk_limits,
    volume_restrictions,
    volume_zone,
)

# The points of a configuration, with the names that Kubernetes' error texts have for them.
POINTS = {
    "queueSort": "QueueSortPlugin", "preFilter": "PreFilterPlugin", "filter": "FilterPlugin",
    "postFilter": "PostFilterPlugin", "preScore": "PreScorePlugin", "score": "ScorePlugin", "reserve": "ReservePlugin",
    "permit": "PermitPlugin", "preBind": "PreBindPlugin", "bind": "BindPlugin", "postBind": "PostBindPlugin",
}

PLUGINS: dict[str, Callable[[dict[str, Any], Handle], Any]] = {
    "PrioritySort": priority_sort.PrioritySort,
    "NodeUnschedulable": node_unschedulable.NodeUnschedulable,
    "NodeName": node_name.NodeName,
    "TaintToleration": taint_toleration.TaintToleration,
    "NodeAffinity": node_affinity.NodeAffinity,
    "NodePorts": node_ports.NodePorts,
    "NodeResourcesFit": node_resources_fit.NodeResourcesFit,
    "NodeResourcesLeastAllocated": node_resources_allocation.LeastAllocated,
    "NodeResourcesMostAllocated": node_resources_allocation.MostAllocated,
    "NodeResourcesBalancedAllocation": node_resources_balanced.BalancedAllocation,
    "RequestedToCapacityRatio": requested_to_capacity_ratio.RequestedToCapacityRatio,
    "VolumeRestrictions": volume_restrictions.VolumeRestrictions,
    "EBSLimits": volume_disk_limits.EbsLimits,
    "GCEPDLimits": volume_disk_limits.GcePdLimits,
    "AzureDiskLimits": volume_disk_limits.AzureDiskLimits,
    "CinderLimits": volume_disk_limits.CinderLimits,
    "NodeVolumeLimits": node_volume_limits.NodeVolumeLimits,
    "VolumeBinding": volume_binding.VolumeBinding,
    "VolumeZone": volume_zone.VolumeZone,
    "PodTopologySpread": pod_topology_spread.PodTopologySpread,
    "SelectorSpread": selector_spread.SelectorSpread,
    "InterPodAffinity": inter_pod_affinity.InterPodAffinity,
    "ImageLocality": image_locality.ImageLocality,
    "NodePreferAvoidPods": node_prefer_avoid_pods.NodePreferAvoidPods,
    "NodeLabel": node_label.NodeLabel,
    "NodeOperatingSystem": node_operating_system.NodeOperatingSystem,
    "DefaultPreemption": default_preemption.DefaultPreemption,
    "DefaultBinder": default_binder.DefaultBinder,
}

# Plugin and weight; the weight matters to scores only.
DEFAULTS: dict[str, tuple[tuple[str, int], ...]] = {
    "queueSort": (("PrioritySort", 0),),
    "preFilter": (
        ("NodeResourcesFit", 0), ("NodePorts", 0), ("PodTopologySpread", 0), ("InterPodAffinity", 0), ("VolumeBinding", 0),
    ),
    "filter": (
        ("NodeUnschedulable", 0), ("NodeName", 0), ("TaintToleration", 0), ("NodeAffinity", 0), ("NodePorts", 0),
        ("NodeResourcesFit", 0), ("VolumeRestrictions", 0), ("EBSLimits", 0), ("GCEPDLimits", 0), ("NodeVolumeLimits", 0),
        ("AzureDiskLimits", 0), ("VolumeBinding", 0), ("VolumeZone", 0), ("PodTopologySpread", 0), ("InterPodAffinity", 0),
    ),
    "postFilter": (("DefaultPreemption", 0),),
    "preScore": (("InterPodAffinity", 0), ("PodTopologySpread", 0), ("TaintToleration", 0)),
    "score": (
        ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 1), ("InterPodAffinity", 1),
        ("NodeResourcesLeastAllocated", 1), ("NodeAffinity", 1), ("NodePreferAvoidPods", 10000), ("PodTopologySpread", 2),
        ("TaintToleration", 1),
    ),
    "reserve": (("VolumeBinding", 0),),
    "preBind": (("VolumeBinding", 0),),
    "bind": (("DefaultBinder", 0),),
}
