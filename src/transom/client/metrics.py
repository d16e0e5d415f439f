"""The metrics that every client of the API server has in Kubernetes: work queues, requests and
leader election. A component creates one `ClientMetrics` and passes its parts to its queues and
clients.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from transom.kit.clock import Clock
from transom.kit.metric_table import BucketCounts, MetricRow, MetricTable, exponential_buckets
from transom.kit.prometheus import Family, Histogram, Labels, Sample
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.metrics import MetricRules, metric_rules

_QUEUE_BUCKETS: Final = exponential_buckets(1e-8, 10, 10)
_REQUESTS: Final = "rest_client_requests_total"
_REQUEST_SECONDS: Final = "rest_client_request_duration_seconds"


class QueueMetrics:
    """The counters of one work queue, which reports each step of an item."""

    __slots__ = ("_added", "_clock", "_started", "adds", "queued", "retries", "worked")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.adds = 0
        self.retries = 0
        self.queued = BucketCounts(len(_QUEUE_BUCKETS))
        self.worked = BucketCounts(len(_QUEUE_BUCKETS))
        self._added: dict[Hashable, float] = {}
        self._started: dict[Hashable, float] = {}

    @property
    def depth(self) -> int:
        return len(self._added)

    def end_work(self) -> None:
        """The queue is no longer used; its counters stay."""
        self._added.clear()
        self._started.clear()

    def add(self, item: Hashable) -> None:
        self.adds += 1
        self._added[item] = self._clock.monotonic()

    def get(self, item: Hashable) -> None:
        now = self._started[item] = self._clock.monotonic()
        self.queued.observe(_QUEUE_BUCKETS, now - self._added.pop(item, now))

    def done(self, item: Hashable) -> None:
        now = self._clock.monotonic()
        self.worked.observe(_QUEUE_BUCKETS, now - self._started.pop(item, now))

    def running_seconds(self) -> list[float]:
        """How long each item in progress has been processed."""
        now = self._clock.monotonic()
        return [now - started for started in self._started.values()]


class WorkQueueMetrics:
    """The work queues of a component. Queues with the same name are counted together."""

    def __init__(self, stability: str = "ALPHA") -> None:
        self._stability = stability
        self._queues: dict[str, QueueMetrics] = {}

    def new_queue(self, name: str, clock: Clock) -> QueueMetrics:
        """Continues the counters of an earlier queue with this name."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = QueueMetrics(clock)
        return found

    def end_work(self) -> None:
        """The controllers have ended. New queues may continue the counters."""
        for queue in self._queues.values():
            queue.end_work()

    def collect(self) -> list[Family]:
        found = [((("name", name),), queue) for name, queue in sorted(self._queues.items())]
        running = [(labels, queue.running_seconds()) for labels, queue in found]
        return [
            self._gauge(
                "depth", "Current depth of workqueue", ((at, queue.depth) for at, queue in found)
            ),
            self._counter(
                "adds_total",
                "Total number of adds handled by workqueue",
                ((at, queue.adds) for at, queue in found),
            ),
            self._counter(
                "retries_total",
                "Total number of retries handled by workqueue",
                ((at, queue.retries) for at, queue in found),
            ),
            self._histogram(
                "queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested.",
                ((at, queue.queued) for at, queue in found),
            ),
            self._histogram(
                "work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                ((at, queue.worked) for at, queue in found),
            ),
            self._gauge(
                "unfinished_work_seconds",
                "How many seconds of work has done that is in progress and hasn't been observed by "
                "work_duration. Large values indicate stuck threads. One can deduce the number of "
                "stuck threads by observing the rate at which this increases.",
                ((at, sum(seconds)) for at, seconds in running),
            ),
            self._gauge(
                "longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
                ((at, max(seconds, default=0)) for at, seconds in running),
            ),
        ]

    def _gauge(self, name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Family:
        samples = [Sample(labels, value) for labels, value in values]
        return Family(f"workqueue_{name}", "gauge", f"[{self._stability}] {text}", samples)

    def _counter(self, name: str, text: str, values: Iterable[tuple[Labels, float]]) -> Family:
        return self._gauge(name, text, values)._replace(kind="counter")

    def _histogram(
        self, name: str, text: str, values: Iterable[tuple[Labels, BucketCounts]]
    ) -> Family:
        samples = [
            Histogram(labels, _QUEUE_BUCKETS, tuple(found.counts), found.total)
            for labels, found in values
        ]
        return Family(f"workqueue_{name}", "histogram", f"[{self._stability}] {text}", samples)


class RestClientMetrics:
    """The requests of a component to one API server. `host` is its address, with the port."""

    def __init__(self, rules: MetricRules, host: str) -> None:
        self._host = host
        # Kubernetes' client replaces the whole path if the server's address ends with a slash.
        self._target = host if rules.rest_client_host else f"https://{host}/%7Bprefix%7D"
        by = "and host" if rules.rest_client_host else "and URL"
        self._table = MetricTable(
            {
                _REQUESTS: MetricRow(
                    "counter",
                    "Number of HTTP requests, partitioned by status code, method, and host.",
                    ("code", "host", "method"),
                ),
                _REQUEST_SECONDS: MetricRow(
                    "histogram",
                    f"Request latency in seconds. Broken down by verb{',' * rules.rest_client_host} "
                    f"{by}.",
                    ("host", "verb") if rules.rest_client_host else ("url", "verb"),
                    rules.rest_client_buckets,
                ),
            }
        )

    def record(self, method: str, code: str, seconds: float) -> None:
        """`code` is the HTTP status, or `<error>` if the server did not answer."""
        self._table.count(_REQUESTS, code, self._host, method)
        self._table.observe(_REQUEST_SECONDS, seconds, self._target, method)

    def collect(self) -> list[Family]:
        return self._table.collect()


class LeaderMetrics:
    """Whether the component holds its lease. A component that does not elect has no sample."""

    def __init__(self) -> None:
        self._leases: dict[str, bool] = {}

    def set_leading(self, lease: str, leading: bool) -> None:
        self._leases[lease] = leading

    def collect(self) -> list[Family]:
        text = (
            "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates "
            "backup, 1 indicates master. 'name' is the string used to identify the lease. Please "
            "make sure to group by name."
        )
        samples = [Sample((("name", name),), int(on)) for name, on in self._leases.items()]
        return [Family("leader_election_master_status", "gauge", text, samples)]


class ClientMetrics:
    """All of them, for one component."""

    def __init__(self, host: str = "", release: Release = DEFAULT) -> None:
        rules = metric_rules(release)
        self.queues = WorkQueueMetrics(rules.workqueue_stability)
        self.requests = RestClientMetrics(rules, host)
        self.leases = LeaderMetrics()

    def collect(self) -> list[Family]:
        return [*self.queues.collect(), *self.requests.collect(), *self.leases.collect()]
