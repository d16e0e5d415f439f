"""All plugins of this package by name, including those that are off by default."""

from __future__ import annotations

from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import Registry
from transom.scheduler.plugins import (
    default_binder,
    default_preemption,
    dynamic_resources,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
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
    scheduling_gates,
    selector_spread,
    taint_toleration,
    volume_binding,
    volume_disk_limits,
    volume_restrictions,
    volume_zone,
)

_IN_TREE: Registry = {
    "SchedulingGates": scheduling_gates.SchedulingGates,
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
    "DynamicResources": dynamic_resources.DynamicResources,
    "NodeDeclaredFeatures": node_declared_features.NodeDeclaredFeatures,
    "DefaultPreemption": default_preemption.DefaultPreemption,
    "DefaultBinder": default_binder.DefaultBinder,
}


def in_tree_registry(out_of_tree: Registry) -> Registry:
    """The plugins of this package together with those of the user."""
    for name in out_of_tree:
        if name in _IN_TREE:
            raise SchedulerConfigError(f"a plugin named {name} already exists")
    return {**_IN_TREE, **out_of_tree}
