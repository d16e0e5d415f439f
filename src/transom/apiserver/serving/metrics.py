"""Request counters with Kubernetes' metric names, in Prometheus' text format.

Clients choose paths, so only served resources become labels: other resources, subresources, paths
and methods are counted under fixed labels. Kubernetes likewise counts requests by the routes it has
installed.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

from transom.apiserver.core.requestinfo import RequestInfo
from transom.http.messages import Answer, StreamResponse
from transom.kit.prometheus import Collector, Family, Histogram, Kind, Sample, render_metrics
from transom.machinery.build_info import build_info
from transom.machinery.releases import BUILDS, DEFAULT, Release
from transom.machinery.releases.metrics import metric_rules

_BUCKETS = (
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    4.5,
    5,
    6,
    7,
    8,
    9,
    10,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
)
_VERBS = {
    "get": "GET",
    "list": "LIST",
    "watch": "WATCH",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}


_SLI_BUCKETS = (
    *(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5),
    *(2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)


_ALL_BUCKETS = tuple(sorted({*_BUCKETS, *_SLI_BUCKETS}))


class _Histogram:
    """Durations, counted once for both metrics."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_ALL_BUCKETS) + 1)
        self.total = 0.0

    def counts_for(self, buckets: Sequence[float]) -> list[int]:
        """The counts of some of the buckets."""
        out = [0] * (len(buckets) + 1)
        for bound, count in zip((*_ALL_BUCKETS, math.inf), self.counts, strict=True):
            out[bisect_left(buckets, bound)] += count
        return out


Labels = tuple[str, str, str, str, str, str]  # verb, group, version, resource, subresource, scope

IsServed = Callable[[str, str, str, str], bool]
"""Whether the server serves this group, version, resource and subresource ("" for none)."""

_OTHER_METHOD = "other"
_METHODS = frozenset(_VERBS.values()) | {"CONNECT", "PROXY"}
MAX_LABEL_SETS = 2000


class ApiServerMetrics:
    def __init__(self, is_served: IsServed, release: Release = DEFAULT) -> None:
        self._is_served = is_served
        self._version = BUILDS[str(release)].git_version
        self._shows_sli = metric_rules(release).request_sli
        self._requests: dict[tuple[Labels, int], int] = defaultdict(int)
        self._durations: dict[Labels, _Histogram] = defaultdict(_Histogram)
        self._known: set[Labels] = set()
        self.started = time.time()
        self.gauges: dict[str, float] = {}

    def record(self, info: RequestInfo | None, answer: Answer, seconds: float) -> None:
        labels = _labels(info)
        if labels not in self._known:
            labels = self._clean(labels)
        self._requests[labels, answer.status] += 1
        if isinstance(answer, StreamResponse):
            return
        histogram = self._durations[labels]
        histogram.counts[bisect_left(_ALL_BUCKETS, seconds)] += 1
        histogram.total += seconds

    def _clean(self, labels: Labels) -> Labels:
        """The labels for a request: as far as the server serves them, otherwise empty ones."""
        verb, group, version, resource, subresource, scope = labels
        if verb not in _METHODS:
            verb = _OTHER_METHOD
        if resource and not self._is_served(group, version, resource, subresource):
            subresource = ""
            if not self._is_served(group, version, resource, ""):
                group = version = resource = scope = ""
        clean = (verb, group, version, resource, subresource, scope)
        if clean not in self._known:
            if len(self._known) >= MAX_LABEL_SETS:
                self._forget_unserved()
            if len(self._known) >= MAX_LABEL_SETS:
                return (verb, "", "", "", "", "")
            self._known.add(clean)
        return clean

    def _forget_unserved(self) -> None:
        """Drops the counters of custom resources whose definitions are deleted."""
        gone = set()
        for labels in self._known:
            _, group, version, resource, subresource, _ = labels
            if resource and not self._is_served(group, version, resource, subresource):
                gone.add(labels)
                self._durations.pop(labels, None)
        self._known -= gone
        for key in [key for key in self._requests if key[0] in gone]:
            del self._requests[key]

    @property
    def is_large(self) -> bool:
        """Whether `render` is so slow that it should run in a thread."""
        return len(self._durations) > 200

    def render(self, objects: dict[str, int], *others: Collector) -> str:
        """`others` collect the metrics of other parts."""
        families = [
            _family(
                "apiserver_request_total",
                "counter",
                "Counter of apiserver requests broken out for each verb, dry run value, group, "
                "version, resource, scope, component, and HTTP response code.",
                [
                    Sample((("code", str(code)), *_named(labels)), count)
                    for (labels, code), count in list(self._requests.items())
                ],
            ),
            _family(
                "apiserver_request_duration_seconds",
                "histogram",
                "Response latency distribution in seconds for each verb, dry run value, group, "
                "version, resource, subresource, scope and component.",
                [
                    Histogram(_named(labels), _BUCKETS, found.counts_for(_BUCKETS), found.total)
                    for labels, found in list(self._durations.items())
                ],
            ),
            _family(
                "etcd_object_counts",
                "gauge",
                "Number of stored objects at the time of last check split by kind.",
                [Sample((("resource", k),), n) for k, n in sorted(objects.items())],
            ),
            _family(
                "process_start_time_seconds",
                "gauge",
                "Start time of the process since unix epoch in seconds.",
                [Sample((), round(self.started, 3))],
            ),
        ]
        families.append(build_info(self._version))
        if self._shows_sli:
            families.append(self._sli())
        for metric, value in self.gauges.items():
            families.append(_family(metric, "gauge", metric.replace("_", " "), [Sample((), value)]))
        for other in others:
            families.extend(other())
        return render_metrics(families)

    def _sli(self) -> Family:
        return Family(
            "apiserver_request_sli_duration_seconds",
            "histogram",
            "[ALPHA] Response latency distribution (not counting webhook duration and priority & "
            "fairness queue wait times) in seconds for each verb, group, version, resource, "
            "subresource, scope and component.",
            [
                Histogram(_named(labels), _SLI_BUCKETS, found.counts_for(_SLI_BUCKETS), found.total)
                for labels, found in list(self._durations.items())
            ],
        )


def _family(name: str, kind: Kind, text: str, samples: Sequence[Sample | Histogram]) -> Family:
    return Family(name, kind, f"[STABLE] {text}", samples)


def _labels(info: RequestInfo | None) -> Labels:
    if info is None:
        return (_OTHER_METHOD, "", "", "", "", "")
    if not info.is_resource:
        return (info.verb.upper(), "", "", "", info.path if info.path in _PATHS else "", "")
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    return (
        _VERBS.get(info.verb, info.verb.upper()),
        info.group,
        info.version,
        info.resource,
        info.subresource,
        scope,
    )


_PATHS = {
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/api",
    "/apis",
}


def _named(labels: Labels) -> tuple[tuple[str, str], ...]:
    verb, group, version, resource, subresource, scope = labels
    return (
        ("component", "apiserver"),
        ("group", group),
        ("resource", resource),
        ("scope", scope),
        ("subresource", subresource),
        ("verb", verb),
        ("version", version),
    )
