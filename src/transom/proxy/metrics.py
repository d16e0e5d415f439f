"""kube-proxy's metrics, and the handler that serves them together with a few other paths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

import orjson

from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.clock import Clock
from transom.kit.prometheus import (
    CONTENT_TYPE,
    Collector,
    Family,
    Histogram,
    Sample,
    render_metrics,
)
from transom.proxy.healthcheck import ProxierHealth, health_not_found
from transom.proxy.tracker import ServiceTracker

METRICS_PORT: Final = 10249
_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
_PLAIN: Final = [
    (b"Content-Type", b"text/plain; charset=utf-8"),
    (b"X-Content-Type-Options", b"nosniff"),
]
_METRICS: Final = [(b"Content-Type", CONTENT_TYPE.encode())]
_PREFIX: Final = "kubeproxy_sync_proxy_rules_"


class ProxyMetrics:
    """Updated by a proxier when it syncs; also updates /healthz."""

    def __init__(
        self,
        tracker: ServiceTracker,
        clock: Clock,
        health: ProxierHealth | None = None,
        more: Collector = tuple,
    ) -> None:
        """`more` has the metrics of one kind of proxier."""
        self._tracker = tracker
        self._clock = clock
        self._health = health
        self._more = more
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0
        self._last = 0.0
        self._last_queued = clock.time()
        # pending changes of endpoints and services at the start of the last sync
        self._seen = (0, 0)

    def queued(self) -> None:
        self._last_queued = self._clock.time()
        if self._health is not None:
            self._health.queued()

    def synced(self, seconds: float, *, complete: bool) -> None:
        self._counts[bisect_left(_BUCKETS, seconds)] += 1
        self._sum += seconds
        if not complete:
            return
        self._last = self._clock.time()
        self._seen = (self._tracker.endpoint_changes, self._tracker.service_changes)
        if self._health is not None:
            self._health.updated()

    def render(self) -> str:
        tracker = self._tracker
        latency = Histogram((), _BUCKETS, self._counts, self._sum)
        families = [
            Family(
                _PREFIX + "duration_seconds",
                "histogram",
                "[ALPHA] SyncProxyRules latency in seconds",
                [latency],
            )
        ]
        for kind, title, changes, seen in (
            ("endpoint", "Endpoint", tracker.endpoint_changes, self._seen[0]),
            ("service", "Service", tracker.service_changes, self._seen[1]),
        ):
            pending = f"Pending proxy rules {title} changes"
            families.append(_gauge(f"{kind}_changes_pending", pending, changes - seen))
            total = f"[ALPHA] Cumulative proxy rules {title} changes"
            families.append(
                Family(f"{_PREFIX}{kind}_changes_total", "counter", total, [Sample((), changes)])
            )
        text = "The last time a sync of proxy rules was queued"
        families.append(_gauge("last_queued_timestamp_seconds", text, self._last_queued))
        text = "The last time proxy rules were successfully synced"
        families.append(_gauge("last_timestamp_seconds", text, self._last))
        return render_metrics([*families, *self._more()])


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(_PREFIX + name, "gauge", f"[ALPHA] {text}", [Sample((), value)])


class MetricsHandler:
    """Serves port 10249: /metrics, /healthz, /proxyMode and /configz."""

    def __init__(self, metrics: ProxyMetrics, mode: str, config: Mapping[str, Any]) -> None:
        self._metrics = metrics
        self._mode = mode
        self._config = config

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/metrics":
            return HttpResponse(200, list(_METRICS), self._metrics.render().encode())
        if request.path == "/healthz":
            return HttpResponse(200, list(_PLAIN), b"ok")
        if request.path == "/proxyMode":
            return HttpResponse(200, list(_PLAIN), self._mode.encode())
        if request.path == "/configz":
            body = orjson.dumps({"kubeproxy.config.k8s.io": self._config})
            return HttpResponse(200, [(b"Content-Type", b"application/json")], body)
        return health_not_found()
