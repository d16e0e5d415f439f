"""kube-proxy's metrics, and the server that it has them on, with the few other things that are asked there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

import orjson

from transom.http.messages import Request, Response
from transom.kit.clock import Clock
from transom.proxy.healthcheck import ProxierHealth, not_found
from transom.proxy.tracker import Tracker

METRICS_PORT: Final = 10249
_BUCKETS: Final = tuple(0.001 * 2**i for i in range(15))
_PLAIN: Final = [(b"Content-Type", b"text/plain; charset=utf-8"), (b"X-Content-Type-Options", b"nosniff")]
_METRICS: Final = [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")]
_PREFIX: Final = "kubeproxy_sync_proxy_rules_"


class ProxyMetrics:
    """Told by a proxier when it syncs; passes that on to /healthz."""

    def __init__(self, tracker: Tracker, clock: Clock, health: ProxierHealth | None = None) -> None:
        self._tracker = tracker
        self._clock = clock
        self._health = health
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0
        self._last = 0.0
        self._last_queued = clock.time()
        self._seen = (0, 0)  # changes of endpoints and services when the last sync began

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
        out: list[str] = []
        name = _PREFIX + "duration_seconds"
        out += _head(name, "[ALPHA] SyncProxyRules latency in seconds", "histogram")
        total = 0
        for bound, count in zip(_BUCKETS, self._counts, strict=False):
            total += count
            out.append(f'{name}_bucket{{le="{bound:g}"}} {total}')
        total += self._counts[-1]
        out += [f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {self._sum:g}", f"{name}_count {total}"]
        for kind, spoken, changes, seen in (
            ("endpoint", "Endpoint", tracker.endpoint_changes, self._seen[0]),
            ("service", "Service", tracker.service_changes, self._seen[1]),
        ):
            name = f"{_PREFIX}{kind}_changes_pending"
            out += [*_head(name, f"[ALPHA] Pending proxy rules {spoken} changes", "gauge"), f"{name} {changes - seen}"]
            name = f"{_PREFIX}{kind}_changes_total"
            out += [*_head(name, f"[ALPHA] Cumulative proxy rules {spoken} changes", "counter"), f"{name} {changes}"]
        name = _PREFIX + "last_queued_timestamp_seconds"
        out += _head(name, "[ALPHA] The last time a sync of proxy rules was queued", "gauge")
        out.append(f"{name} {self._last_queued!r}")
        name = _PREFIX + "last_timestamp_seconds"
        out += _head(name, "[ALPHA] The last time proxy rules were successfully synced", "gauge")
        out.append(f"{name} {self._last!r}")
        return "\n".join(out) + "\n"


def _head(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


class MetricsHandler:
    """On 10249: /metrics, /healthz, /proxyMode and /configz."""

    def __init__(self, metrics: ProxyMetrics, mode: str, config: Mapping[str, Any]) -> None:
        self._metrics = metrics
        self._mode = mode
        self._config = config

    def __call__(self, request: Request) -> Response:
        if request.path == "/metrics":
            return Response(200, list(_METRICS), self._metrics.render().encode())
        if request.path == "/healthz":
            return Response(200, list(_PLAIN), b"ok")
        if request.path == "/proxyMode":
            return Response(200, list(_PLAIN), self._mode.encode())
        if request.path == "/configz":
            body = orjson.dumps({"kubeproxy.config.k8s.io": self._config})
            return Response(200, [(b"Content-Type", b"application/json")], body)
        return not_found()
