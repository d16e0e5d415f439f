"""Fields behind feature gates that a release disables: a new object loses them, an existing one
keeps them.

These are the gates of 1.20 and older; fields of later releases name their gate in the table of
types. Pods and services have their own rules, in their strategies.
"""

from __future__ import annotations

from transom.apiserver.core.context import RequestContext
from transom.apiserver.core.strategies.base import StorageRules
from transom.machinery.objects import Object
from transom.machinery.releases.behaviour import has_behaviour

# Field -> the gate.
_CSI_DRIVER_FIELDS = {
    "storageCapacity": "CSIStorageCapacity",
    "tokenRequests": "CSIServiceAccountToken",
    "requiresRepublish": "CSIServiceAccountToken",
}
# The data sources of a volume while the gate is disabled: kind and API group.
_DATA_SOURCES = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))
_TERMINATING_CONDITIONS = ("serving", "terminating")


def _spec(obj: Object | None) -> Object:
    return (obj or {}).get("spec") or {}


def drop_disabled_csi_driver_fields(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    before = _spec(old)
    for name, gate in _CSI_DRIVER_FIELDS.items():
        if before.get(name) is None and not storage.feature(gate):
            new["spec"].pop(name, None)


def drop_disabled_data_source(storage: StorageRules, spec: Object, before: Object) -> None:
    source = spec.get("dataSource")
    if (
        source is None
        or storage.feature("AnyVolumeDataSource")
        or before.get("dataSource") is not None
    ):
        return
    if (source.get("kind", ""), source.get("apiGroup") or "") not in _DATA_SOURCES:
        del spec["dataSource"]


def drop_disabled_claim_fields(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    if has_behaviour(storage.release, "ClaimDataSourceRefs"):
        _normalise_data_sources(storage, new["spec"], _spec(old))
    else:
        drop_disabled_data_source(storage, new["spec"], _spec(old))


def _normalise_data_sources(storage: StorageRules, spec: Object, before: Object) -> None:
    """`dataSource` may name a claim or a snapshot, `dataSourceRef` any object. One is filled from
    the other.
    """
    ref = spec.get("dataSourceRef")
    if ref is not None and before.get("dataSourceRef") is None:
        across = ref.get("namespace") and not storage.feature("CrossNamespaceVolumeDataSource")
        if across or not storage.feature("AnyVolumeDataSource"):
            ref = None
            del spec["dataSourceRef"]
    source = spec.get("dataSource")
    used = before.get("dataSource") is not None or before.get("dataSourceRef") is not None
    named = source is not None and (source.get("kind", ""), source.get("apiGroup") or "")
    if named and ref is None and not used and named not in _DATA_SOURCES:
        source = None
        del spec["dataSource"]
    if not storage.feature("AnyVolumeDataSource"):
        return
    if source is not None and ref is None:
        spec["dataSourceRef"] = dict(source)
    elif ref is not None and source is None and not ref.get("namespace"):
        spec["dataSource"] = {key: value for key, value in ref.items() if key != "namespace"}


def drop_disabled_node_fields(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    if (
        has_behaviour(storage.release, "NoKubeletConfigSources")
        and _spec(old).get("configSource") is None
    ):
        _spec(new).pop("configSource", None)
        if old is None:
            (new.get("status") or {}).pop("config", None)
    ranges = _spec(new).get("podCIDRs") or ()
    if (
        len(ranges) > 1
        and not storage.feature("IPv6DualStack")
        and len(_spec(old).get("podCIDRs") or ()) < 2
    ):
        new["spec"]["podCIDRs"] = ranges[:1]


def drop_disabled_node_status(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object
) -> None:
    if (
        has_behaviour(storage.release, "NoKubeletConfigSources")
        and (old.get("status") or {}).get("config") is None
        and "config" in (new.get("status") or {})
    ):
        new["status"] = {k: v for k, v in new["status"].items() if k != "config"}


def drop_disabled_autoscaler_fields(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    if storage.feature("HPAContainerMetrics"):
        return
    if any(
        metric.get("containerResource") is not None for metric in _spec(old).get("metrics") or ()
    ):
        return
    for metric in _spec(new).get("metrics") or ():
        metric.pop("containerResource", None)


def drop_disabled_endpoint_slice_fields(
    _storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    """For v1beta1 only, which has the node name in the topology; v1 has both fields."""
    before = (old or {}).get("endpoints") or ()
    names = any(endpoint.get("nodeName") is not None for endpoint in before)
    states = any(
        (endpoint.get("conditions") or {}).get(name) is not None
        for endpoint in before
        for name in _TERMINATING_CONDITIONS
    )
    for endpoint in new.get("endpoints") or ():
        if not names:
            endpoint.pop("nodeName", None)
        if not states:
            for name in _TERMINATING_CONDITIONS:
                (endpoint.get("conditions") or {}).pop(name, None)


def drop_slice_topology(
    storage: StorageRules, _ctx: RequestContext, new: Object, old: Object | None = None
) -> None:
    """For v1, which does not write the topology of v1beta1. A node name that the stored topology
    has moves to its field.
    """
    if not has_behaviour(storage.release, "NoTopologyInSlices"):
        return
    if old is not None and old.get("endpoints") == new.get("endpoints"):
        return
    label, topology = "kubernetes.io/hostname", "deprecatedTopology"
    known = {
        (endpoint.get(topology) or {}).get(label) for endpoint in (old or {}).get("endpoints") or ()
    }
    for endpoint in new.get("endpoints") or ():
        name = (endpoint.pop(topology, None) or {}).get(label)
        if name and name in known and endpoint.get("nodeName") is None:
            endpoint["nodeName"] = name
