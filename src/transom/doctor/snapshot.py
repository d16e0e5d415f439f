"""A cluster at one moment, as far as it lets itself be read. Checks are functions of this alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transom.doctor.inside import Inside
from transom.kit.clock import parse_rfc3339

Object = Mapping[str, Any]


@dataclass
class Snapshot:
    now: float = 0.0
    server: str = ""  # where the API server is
    unreachable: str = ""  # why it does not answer
    unhealthy: tuple[str, ...] = ()  # what it says is wrong with itself
    version: Object = field(default_factory=dict)
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)  # by the plural of their kind
    unread: Mapping[str, str] = field(default_factory=dict)  # kinds that could not be read, and why
    inside: Mapping[str, Inside] = field(default_factory=dict)  # by node, of our own clusters
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)  # the ends of some pods' logs

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
        return {name(node): node for node in self.nodes}

    @cached_property
    def endpoints(self) -> Mapping[tuple[str, str], Object]:
        return {key(one): one for one in self.of("endpoints")}

    @cached_property
    def service(self) -> Mapping[tuple[str, str], Object]:
        return {key(one): one for one in self.of("services")}

    @cached_property
    def _events(self) -> Mapping[tuple[str, str, str], list[Object]]:
        found: dict[tuple[str, str, str], list[Object]] = {}
        for event in sorted(self.of("events"), key=seen, reverse=True):
            about = event.get("involvedObject") or {}
            place = (about.get("kind", ""), about.get("namespace", ""), about.get("name", ""))
            found.setdefault(place, []).append(event)
        return found

    def warnings(self, kind: str, namespace: str, name: str, *reasons: str, uid: str = "") -> list[Object]:
        """Events about an object that something went wrong, the newest first; of these reasons only, if there are any."""
        return [
            event for event in self._events.get((kind, namespace, name), ())
            if event.get("type") == "Warning" and (not reasons or event.get("reason") in reasons)
            and uid in ("", (event.get("involvedObject") or {}).get("uid", uid))
        ]  # fmt: skip

    def on_windows(self, pod: Object) -> bool:
        node = self.node.get((pod.get("spec") or {}).get("nodeName", ""))
        return node is not None and is_windows(node)


def name(obj: Object) -> str:
    return str(obj["metadata"].get("name", ""))


def key(obj: Object) -> tuple[str, str]:
    return str(obj["metadata"].get("namespace", "")), name(obj)


def place(kind: str, obj: Object) -> str:
    """"pod/default/web-0"."""
    return "/".join(part for part in (kind, *key(obj)) if part)


def is_windows(node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return "windows" in (labels.get("kubernetes.io/os"), info.get("operatingSystem"))


def build(node: Object) -> int:
    """Of Windows; 0 if the node does not say."""
    found = re.match(r"10\.0\.(\d+)", str(((node.get("status") or {}).get("nodeInfo") or {}).get("kernelVersion", "")))
    return int(found[1]) if found else 0


def condition(obj: Object, kind: str) -> Object:
    conditions: Iterable[Object] = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def seen(event: Object) -> float:
    """When it happened last."""
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return moment(text or event["metadata"].get("creationTimestamp") or "")


def message(event: Object) -> str:
    """In one line. That several like it were put together is not told."""
    return " ".join(str(event.get("message") or "").removeprefix("(combined from similar events): ").split())


def moment(text: str) -> float:
    """0 for what is no time."""
    try:
        return parse_rfc3339(text)
    except ValueError:
        return 0.0
