"""The default profile: the plugins that are enabled at each extension point, in order, with the
weights of scores.

The order of filters matters: the first one that rejects a node determines the reason in the event.
"""

from __future__ import annotations

DEFAULT_PLUGINS: dict[str, tuple[tuple[str, int], ...]] = {
    "preEnqueue": (("SchedulingGates", 0),),
    "queueSort": (("PrioritySort", 0),),
    "preFilter": (
        ("NodeResourcesFit", 0),
        ("NodePorts", 0),
        ("PodTopologySpread", 0),
        ("InterPodAffinity", 0),
        ("VolumeBinding", 0),
    ),
    "filter": (
        ("NodeUnschedulable", 0),
        ("NodeName", 0),
        ("TaintToleration", 0),
        ("NodeAffinity", 0),
        ("NodePorts", 0),
        ("NodeResourcesFit", 0),
        ("VolumeRestrictions", 0),
        ("EBSLimits", 0),
        ("GCEPDLimits", 0),
        ("NodeVolumeLimits", 0),
        ("AzureDiskLimits", 0),
        ("VolumeBinding", 0),
        ("VolumeZone", 0),
        ("PodTopologySpread", 0),
        ("InterPodAffinity", 0),
    ),
    "postFilter": (("DefaultPreemption", 0),),
    "preScore": (("InterPodAffinity", 0), ("PodTopologySpread", 0), ("TaintToleration", 0)),
    "score": (
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
        ("InterPodAffinity", 1),
        ("NodeResourcesLeastAllocated", 1),
        ("NodeAffinity", 1),
        ("NodePreferAvoidPods", 10000),
        ("PodTopologySpread", 2),
        ("TaintToleration", 1),
    ),
    "reserve": (("VolumeBinding", 0),),
    "permit": (),
    "preBind": (("VolumeBinding", 0),),
    "bind": (("DefaultBinder", 0),),
    "postBind": (),
}
