"""Request counters under Kubernetes' own metric names, in Prometheus' text format."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.http.messages import Answer, StreamResponse

if TYPE_CHECKING:
    from transom.apiserver.requestinfo import RequestInfo

_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5,
            3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60)
_VERBS = {"get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
          "delete": "DELETE", "deletecollection": "DELETECOLLECTION"}


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0


Head = Callable[[list[str], str, str, str], None]
Renderer = Callable[[Head, list[str]], None]
Labels = tuple[str, str, str, str, str, str]  # verb, group, version, resource, subresource, scope


class Metrics:
    def __init__(self) -> None:
        self._requests: dict[tuple[Labels, int], int] = defaultdict(int)
        self._durations: dict[Labels, _Histogram] = defaultdict(_Histogram)
        self._watches: dict[Labels, int] = defaultdict(int)
        self.started = time.time()
        self.gauges: dict[str, float] = {}

    def record(self, info: RequestInfo | None, answer: Answer, seconds: float) -> None:
        labels = _labels(info)
        self._requests[labels, answer.status] += 1
        if isinstance(answer, StreamResponse):
            return
        histogram = self._durations[labels]
        histogram.counts[bisect_left(_BUCKETS, seconds)] += 1
        histogram.total += seconds

    def render(self, objects: dict[str, int], *others: Renderer) -> str:
        """`others` add the metrics of their own part."""
        out: list[str] = []
        _head(out, "apiserver_request_total", "counter",
              "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, "
              "component, and HTTP response code.")
        for (labels, code), count in self._requests.items():
            out.append(f'apiserver_request_total{{code="{code}",{_text(labels)}}} {count}')
        name = "apiserver_request_duration_seconds"
        _head(out, name, "histogram",
              "Response latency distribution in seconds for each verb, dry run value, group, version, resource, "
              "subresource, scope and component.")
        for labels, histogram in self._durations.items():
            text, running = _text(labels), 0
            for bound, count in zip((*_BUCKETS, "+Inf"), histogram.counts, strict=True):
                running += count
                out.append(f'{name}_bucket{{{text},le="{bound}"}} {running}')
            out.append(f"{name}_sum{{{text}}} {histogram.total:.9g}")
            out.append(f"{name}_count{{{text}}} {running}")
        _head(out, "etcd_object_counts", "gauge", "Number of stored objects at the time of last check split by kind.")
        out.extend(f'etcd_object_counts{{resource="{k}"}} {n}' for k, n in sorted(objects.items()))
        for metric, value in sorted(self.gauges.items()):
            _head(out, metric, "gauge", metric.replace("_", " "))
            out.append(f"{metric} {value:.9g}")
        for other in others:
            other(_head, out)
        _head(out, "process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
        out.append(f"process_start_time_seconds {self.started:.3f}")
        return "\n".join(out) + "\n"


def _head(out: list[str], name: str, kind: str, text: str) -> None:
    out.append(f"# HELP {name} [STABLE] {text}")
    out.append(f"# TYPE {name} {kind}")


def _labels(info: RequestInfo | None) -> Labels:
    if info is None:
        return ("", "", "", "", "", "")
    if not info.is_resource:
        return (info.verb.upper(), "", "", "", info.path if info.path in _PATHS else "", "")
    if info.name or info.verb == "create":
        scope = "resource" if info.name else ("namespace" if info.namespace else "cluster")
    else:
        scope = "namespace" if info.namespace else "cluster"
    return (_VERBS.get(info.verb, info.verb.upper()), info.group, info.version, info.resource, info.subresource, scope)


_PATHS = {"/healthz", "/livez", "/readyz", "/version", "/metrics", "/openapi/v2", "/openapi/v3", "/api", "/apis"}


def _text(labels: Labels) -> str:
    verb, group, version, resource, sub, scope = labels
    return (f'component="apiserver",group="{group}",resource="{resource}",scope="{scope}",subresource="{sub}",'
            f'verb="{verb}",version="{version}"')
