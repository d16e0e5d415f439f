"""The default profile: the plugins that are enabled at each extension point, in order, with the
weights of scores.

The order of filters matters: the first one that rejects a node determines the reason in the event.
"""

from __future__ import annotations

from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.scheduling import SchedulingRules, scheduling_rules

PluginRows = tuple[tuple[str, int], ...]

# The profile of 1.20.
DEFAULT_PLUGINS: dict[str, PluginRows] = {
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

_DISK_LIMITS = ("EBSLimits", "GCEPDLimits", "AzureDiskLimits")
# Weights that replace those of 1.20.
_NEW_WEIGHTS = {"TaintToleration": 3, "NodeAffinity": 2, "InterPodAffinity": 2}


def default_plugins(features: FeatureSet) -> dict[str, PluginRows]:
    """The profile of a release."""
    rules = scheduling_rules(features.release)
    out = {point: _rows_of(rows, rules) for point, rows in DEFAULT_PLUGINS.items()}
    if features.enabled("ReadWriteOncePod"):
        out["preFilter"] = _before(out["preFilter"], "PodTopologySpread", "VolumeRestrictions")
    if features.enabled("DynamicResourceAllocation") and rules.resource_claims:
        for point in ("preEnqueue", "preFilter", "filter", "reserve", "preBind"):
            out[point] = (*out[point], ("DynamicResources", 0))
        out["postFilter"] = _before(out["postFilter"], "DefaultPreemption", "DynamicResources")
    if features.enabled("NodeDeclaredFeatures"):
        out["preFilter"] = (*out["preFilter"], ("NodeDeclaredFeatures", 0))
        out["filter"] = (*out["filter"], ("NodeDeclaredFeatures", 0))
    return out


def _rows_of(rows: PluginRows, rules: SchedulingRules) -> PluginRows:
    out = []
    for name, weight in rows:
        if (name == "NodePreferAvoidPods" and not rules.prefers_avoiding_pods) or (
            name in _DISK_LIMITS and not rules.disk_limits
        ):
            continue
        new = _NEW_WEIGHTS.get(name) if rules.new_score_weights and weight else None
        out.append((name, weight if new is None else new))
    return tuple(out)


def _before(rows: PluginRows, name: str, new: str) -> PluginRows:
    at = next(i for i, row in enumerate(rows) if row[0] == name)
    return (*rows[:at], (new, 0), *rows[at:])
