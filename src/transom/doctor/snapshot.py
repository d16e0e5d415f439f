"""A cluster at one moment, as far as it is readable. Checks are functions of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from transom.doctor.node_inspection import NodeState
from transom.kit.clock import parse_rfc3339

Object = Mapping[str, Any]


@dataclass
class ClusterSnapshot:
    now: float = 0.0
    server: str = ""  # the address of the API server
    name_option: str = ""  # " --name NAME" of our own clusters, unless it is the default one
    unreachable: str = ""  # why it does not respond
    unhealthy: tuple[str, ...] = ()  # the problems it reports itself
    version: Object = field(default_factory=dict)
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)  # by plural
    unread: Mapping[str, str] = field(default_factory=dict)  # kinds that could not be read, and why
    inside: Mapping[str, NodeState] = field(default_factory=dict)  # by node, of our own clusters
    # nodes of our own clusters that cannot start: reason, files, and the command that adds another
    unusable: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store: Mapping[str, Any] = field(default_factory=dict)  # the data on disk, of our own clusters
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)  # the ends of some pod logs
    # whether cluster DNS responds, of our own clusters
    dns: Mapping[str, Any] = field(default_factory=dict)
    certificates: Mapping[str, float] = field(default_factory=dict)  # purpose and expiry
    # certificates of our own clusters: expiry and how to replace them
    renewals: Sequence[Mapping[str, Any]] = ()
    webhooks: Mapping[str, str] = field(default_factory=dict)  # URL -> why the last call failed
    cloud: Sequence[Mapping[str, Any]] = ()  # disk operations that fail or take long
    # Secrets that pods and Ingresses name: their type, "" if they do not exist
    secrets: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # names of ExternalName services that cluster DNS does not resolve, and why
    unresolved: Mapping[str, str] = field(default_factory=dict)
    virtual_time: bool = False  # `now` is the cluster's time, not this machine's
    # of the API server at `now`, from its Date header; 0 if it has none
    server_time: float = 0.0
    # Ready nodes whose kubelet does not answer the API server, and why
    silent_kubelets: Mapping[str, str] = field(default_factory=dict)

    def of(self, plural: str) -> Sequence[Object]:
        return self.objects.get(plural, ())

    @property
    def nodes(self) -> Sequence[Object]:
        return self.of("nodes")

    @property
    def pods(self) -> Sequence[Object]:
        return self.of("pods")

    @cached_property
    def node(self) -> Mapping[str, Object]:
        return {name_of_object(node): node for node in self.nodes}

    @cached_property
    def endpoints(self) -> Mapping[tuple[str, str], Object]:
        return {key_of_object(one): one for one in self.of("endpoints")}

    @cached_property
    def service(self) -> Mapping[tuple[str, str], Object]:
        return {key_of_object(one): one for one in self.of("services")}

    @cached_property
    def _labelled(self) -> Mapping[tuple[str, str, str], list[int]]:
        """Indexes of pods by namespace, label and value."""
        found: dict[tuple[str, str, str], list[int]] = {}
        for at, pod in enumerate(self.pods):
            namespace = key_of_object(pod)[0]
            for label, value in (pod["metadata"].get("labels") or {}).items():
                found.setdefault((namespace, label, str(value)), []).append(at)
        return found

    @cached_property
    def _of_namespace(self) -> Mapping[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self.pods:
            found.setdefault(key_of_object(pod)[0], []).append(pod)
        return found

    def pods_in(self, namespace: str) -> Sequence[Object]:
        return self._of_namespace.get(namespace, ())

    def selected(self, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Pods of a namespace with all of these labels; at least one."""
        found = sorted(
            (self._labelled.get((namespace, k, str(v)), []) for k, v in labels.items()), key=len
        )
        if not found:
            return []
        rest = [set(positions) for positions in found[1:]]
        return [self.pods[at] for at in found[0] if all(at in positions for positions in rest)]

    def ready_addresses(self, service: tuple[str, str]) -> list[Any]:
        subsets = self.endpoints.get(service, {}).get("subsets") or ()
        return [address for subset in subsets for address in subset.get("addresses") or ()]

    @cached_property
    def _events(self) -> Mapping[tuple[str, str, str], list[Object]]:
        found: dict[tuple[str, str, str], list[Object]] = {}
        for event in sorted(self.of("events"), key=event_time, reverse=True):
            about = event.get("involvedObject") or {}
            place = (about.get("kind", ""), about.get("namespace", ""), about.get("name", ""))
            found.setdefault(place, []).append(event)
        return found

    def events_of(self, kind: str, obj: Object) -> list[Object]:
        """All events about an object, newest first; excludes those about an earlier object of the
        same name.
        """
        uid = obj["metadata"].get("uid", "")
        return [
            event
            for event in self._events.get((kind, *key_of_object(obj)), ())
            if uid in ("", (event.get("involvedObject") or {}).get("uid") or uid)
        ]

    def warnings_of(self, kind: str, obj: Object, *reasons: str) -> list[Object]:
        """Warning events about an object, newest first; only those with these reasons, if any are
        given.
        """
        return [
            event
            for event in self.events_of(kind, obj)
            if event.get("type") == "Warning" and (not reasons or event.get("reason") in reasons)
        ]

    def on_windows(self, pod: Object) -> bool:
        node = self.node.get((pod.get("spec") or {}).get("nodeName", ""))
        return node is not None and is_windows_node(node)


def name_of_object(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def key_of_object(obj: Object) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace", "")), name_of_object(obj)


def place_of_object(kind: str, obj: Object) -> str:
    """ "pod/default/web-0"."""
    return "/".join(part for part in (kind, *key_of_object(obj)) if part)


def is_windows_node(node: Object) -> bool:
    """By what its kubelet reports; a label may be wrong."""
    labels = node["metadata"].get("labels") or {}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return (info.get("operatingSystem") or labels.get("kubernetes.io/os")) == "windows"


def reported_windows_build(node: Object) -> int:
    """The Windows build; 0 if the node does not report it."""
    found = re.match(
        r"10\.0\.(\d+)",
        str(((node.get("status") or {}).get("nodeInfo") or {}).get("kernelVersion", "")),
    )
    return int(found[1]) if found else 0


def status_condition(obj: Object, kind: str) -> Object:
    conditions: Iterable[Object] = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def pod_is_ready(pod: Object) -> bool:
    return status_condition(pod, "Ready").get("status") == "True"


def condition_text(found: Object) -> str:
    """Reason and message of a condition."""
    return ": ".join(part for part in (found.get("reason"), found.get("message")) if part)


def event_time(event: Object) -> float:
    """The time of its last occurrence."""
    series = event.get("series") or {}
    text = (
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    )
    return time_of(text or event["metadata"].get("creationTimestamp") or "")


def event_message(event: Object) -> str:
    """In one line, without the note that similar events were aggregated."""
    return " ".join(
        str(event.get("message") or "").removeprefix("(combined from similar events): ").split()
    )


@lru_cache(maxsize=16384)
def time_of(text: str) -> float:
    """0 if it is not a valid time. Checks ask for the times of the same events again and again."""
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0
