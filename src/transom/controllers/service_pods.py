"""Shared by Endpoints and EndpointSlices: the pods of a service, their ports, and the trigger time
of changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from transom.client.informer import Informer
from transom.client.store import object_key
from transom.controllers.pods import is_pod_ready, pod_phase, pod_ready_condition
from transom.kit.clock import parse_rfc3339, rfc3339
from transom.kit.named_tuple import NamedTuple
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.features import FeatureSet
from transom.machinery.selectors import LabelSelector, from_map

TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
LEADER = "control-plane.alpha.kubernetes.io/leader"
HEADLESS = "service.kubernetes.io/headless"


_FNV_OFFSET = 0x6C62272E07BB014262B821756295C58D
_FNV_PRIME = 0x0000000001000000000000000000013B


class EndpointRules(NamedTuple):
    """What endpoints of a release are like."""

    versions: bool  # references to pods have their resourceVersion
    ended_pods: bool  # the restart policy decides whether an ended pod is an endpoint
    node_names: bool  # in a field, not in a topology label
    terminating: bool  # slices have pods that are terminating
    managed_by: bool  # Endpoints are labelled with their controller
    fnv: bool  # ports and subsets are ordered by an FNV hash, not by MD5
    close_traffic: bool  # slices have hints for trafficDistribution
    node_hints: bool
    zone_hints: bool  # an annotation shares endpoints out to zones
    capital_auto: bool  # its value is Auto, not only auto
    topology_mode: bool  # its name is topology-mode, not only topology-aware-hints
    hint_events: bool
    skips_pods: bool  # of nodes that do not exist; the other pods are still written


def endpoint_rules(features: FeatureSet) -> EndpointRules:
    release = features.release
    return EndpointRules(
        versions=not has_behaviour(release, "NoTargetVersions"),
        ended_pods=not has_behaviour(release, "NoTerminalEndpoints"),
        node_names=has_behaviour(release, "EndpointSliceNodeName"),
        terminating=features.enabled("EndpointSliceTerminatingCondition"),
        managed_by=has_behaviour(release, "EndpointsManagedBy"),
        fnv=has_behaviour(release, "FnvEndpointOrder"),
        close_traffic=features.enabled("ServiceTrafficDistribution"),
        node_hints=features.enabled("PreferSameTrafficDistribution"),
        zone_hints=features.enabled("TopologyAwareHints"),
        capital_auto=has_behaviour(release, "TopologyHintsAuto"),
        topology_mode=has_behaviour(release, "TopologyMode"),
        hint_events=has_behaviour(release, "TopologyHintEvents"),
        skips_pods=has_behaviour(release, "EndpointsSkipMissingNodes"),
    )


RULES_OF_1_20 = endpoint_rules(FeatureSet(DEFAULT))


# ---- services of a pod ----


class Memberships:
    """Calls `enqueue` with the key of each service that a change of a service or a pod affects."""

    def __init__(self, services: Informer, pods: Informer, enqueue: Callable[[str], None]) -> None:
        self._services = services
        self._enqueue = enqueue
        self._selectors: dict[str, tuple[dict[str, str], LabelSelector]] = {}
        services.add_handler(
            add=self._service_changed,
            update=lambda _, new: self._service_changed(new),
            delete=self._service_deleted,
        )
        pods.add_handler(add=self._pod_changed, update=self._pod_updated, delete=self._pod_changed)

    def _service_changed(self, service: Object) -> None:
        self._enqueue(object_key(service))

    def _service_deleted(self, service: Object) -> None:
        self._selectors.pop(object_key(service), None)
        self._enqueue(object_key(service))

    def _pod_changed(self, pod: Object) -> None:
        for key in self._of(pod):
            self._enqueue(key)

    def _pod_updated(self, old: Object, new: Object) -> None:
        if old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return
        changed, moved = _endpoint_changed(old, new), _membership_changed(old, new)
        if not (changed or moved):
            return
        keys = self._of(new)
        if moved:
            before = self._of(old)
            keys = keys | before if changed else keys ^ before
        for key in keys:
            self._enqueue(key)

    def _of(self, pod: Object) -> set[str]:
        meta = pod["metadata"]
        labels = meta.get("labels")
        return {
            object_key(service)
            for service in self._services.list(meta["namespace"])
            if (selector := self.selector(service)) is not None and selector.matches(labels)
        }

    def selector(self, service: Object) -> LabelSelector | None:
        """None if the endpoints of the service are managed elsewhere."""
        wanted = (service.get("spec") or {}).get("selector")
        if wanted is None:
            return None
        key = object_key(service)
        known = self._selectors.get(key)
        if known is None or known[0] != wanted:
            known = self._selectors[key] = wanted, from_map(wanted)
        return known[1]


def _endpoint_changed(old: Object, new: Object) -> bool:
    if old["metadata"].get("deletionTimestamp") != new["metadata"].get("deletionTimestamp"):
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    if before == after and old.get("spec") == new.get("spec"):
        return False
    return (
        is_pod_ready(old) != is_pod_ready(new)
        or before.get("podIPs") != after.get("podIPs")
        or in_service(old) != in_service(new)
        or has_pod_ended(old) != has_pod_ended(new)
    )


def _membership_changed(old: Object, new: Object) -> bool:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    return bool(
        old["metadata"].get("labels") != new["metadata"].get("labels")
        or before.get("hostname") != after.get("hostname")
        or before.get("subdomain") != after.get("subdomain")
    )


# ---- facts ----


def has_pod_ended(pod: Object) -> bool:
    return pod_phase(pod) in ("Failed", "Succeeded")


def in_service(pod: Object, rules: EndpointRules = RULES_OF_1_20) -> bool:
    """Whether a pod that is not ready may become ready: it is not terminal."""
    if not rules.ended_pods:
        return not has_pod_ended(pod)
    policy = (pod.get("spec") or {}).get("restartPolicy")
    if policy == "Never":
        return pod_phase(pod) not in ("Failed", "Succeeded")
    return policy != "OnFailure" or pod_phase(pod) != "Succeeded"


def has_hostname(pod: Object, service: Object) -> bool:
    spec = pod["spec"]
    return bool(spec.get("hostname")) and spec.get("subdomain") == service["metadata"]["name"]


def has_cluster_ip(service: Object) -> bool:
    return service["spec"].get("clusterIP") not in (None, "", "None")


def find_port(pod: Object, port: Object) -> int | None:
    """The number of a service port in this pod; None if the pod has no port of that name."""
    target, protocol = port.get("targetPort"), port.get("protocol", "TCP")
    if not isinstance(target, str):
        return target
    for container in pod["spec"].get("containers") or ():
        for own in container.get("ports") or ():
            if own.get("name") == target and own.get("protocol", "TCP") == protocol:
                return int(own["containerPort"])
    return None


def target_ref(pod: Object, rules: EndpointRules = RULES_OF_1_20) -> Object:
    meta = pod["metadata"]
    fields = ("namespace", "name", "uid", *(("resourceVersion",) if rules.versions else ()))
    return {"kind": "Pod", **{k: meta[k] for k in fields}}


def is_ipv6_address(address: str) -> bool:
    return ":" in address


# ---- trigger time ----


class TriggerTimes:
    """The time of the change that caused an update of endpoints; they record it, so that delays can
    be measured.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, dict[str, float]]] = {}

    def observe(self, service: Object, pods: Iterable[Object]) -> str:
        """The earliest change since the last call, "" if there is none."""
        key, created = object_key(service), service["metadata"]["creationTimestamp"]
        known = self._known.get(key)
        before = known[1] if known is not None else {}
        times: dict[str, float] = {}
        changed = []
        for pod in pods:
            condition = pod_ready_condition(pod)
            since = condition.get("lastTransitionTime") if condition is not None else None
            if since:
                name = pod["metadata"]["name"]
                times[name] = parse_rfc3339(since)
                if times[name] > before.get(name, float("-inf")):
                    changed.append(times[name])
        self._known[key] = created, times
        if known is None:
            return str(created)
        if created > known[0]:
            changed.append(parse_rfc3339(created))
        return rfc3339(min(changed)) if changed else ""

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def with_trigger_time(annotations: dict[str, str] | None, time: str) -> dict[str, str]:
    out = {name: value for name, value in (annotations or {}).items() if name != TRIGGER_TIME}
    if time:
        out[TRIGGER_TIME] = time
    return out


# ---- deterministic order ----


def pod_digest(dump: str, *, fnv: bool = False) -> bytes:
    """Kubernetes orders ports and subsets by a hash of a dump of their Go structs: MD5, since 1.35
    FNV-128a.
    """
    if fnv:
        number = _FNV_OFFSET
        for byte in dump.encode():
            number = ((number ^ byte) * _FNV_PRIME) & ((1 << 128) - 1)
        return number.to_bytes(16, "big")
    return hashlib.md5(dump.encode(), usedforsecurity=False).digest()


def dump_pointer(kind: str, value: object) -> str:
    return f"(*{kind})<nil>" if value is None else f"(*{kind}){value}"
