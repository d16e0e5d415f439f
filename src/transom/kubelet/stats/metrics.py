"""/metrics and /metrics/probes: the kubelet's own metrics.

Callers use `count` and `observe` with a name from the table; nothing is stored for metrics without
samples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal, Protocol

from transom.kit.lazy import lazy_import
from transom.kit.metric_table import MetricRow, MetricTable
from transom.kit.prometheus import Family, Sample, render_metrics
from transom.kubelet.base import KubeletContext
from transom.machinery.build_info import build_info
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.metrics import metric_rules

if TYPE_CHECKING:
    import resource
else:
    resource = lazy_import("resource")  # not on Windows

_COUNTS: Final = (1, 2, 4, 8, 16)
_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024  # bytes
_DRA_SECONDS: Final = tuple(0.1 * 400 ** (number / 14) for number in range(15))
_MANAGER_EVENTS: Final = {"cpu": "pinning", "memory": "pinning", "topology": "admission"}


TABLE: Final[dict[str, MetricRow]] = {
    "kubelet_cpu_manager_pinning_requests_total": MetricRow(
        "counter", "The number of cpu core allocations which required pinning."
    ),
    "kubelet_cpu_manager_pinning_errors_total": MetricRow(
        "counter", "The number of cpu core allocations which required pinning failed."
    ),
    "kubelet_memory_manager_pinning_requests_total": MetricRow(
        "counter", "The number of memory pages allocations which required pinning."
    ),
    "kubelet_memory_manager_pinning_errors_total": MetricRow(
        "counter", "The number of memory pages allocations which required pinning that failed."
    ),
    "kubelet_topology_manager_admission_requests_total": MetricRow(
        "counter", "The number of admission requests where resources have to be aligned."
    ),
    "kubelet_topology_manager_admission_errors_total": MetricRow(
        "counter",
        "The number of admission request failures where resources could not be aligned.",
    ),
    "kubelet_graceful_shutdown_start_time_seconds": MetricRow(
        "gauge", "Last graceful shutdown start time since unix epoch in seconds"
    ),
    "kubelet_graceful_shutdown_end_time_seconds": MetricRow(
        "gauge", "Last graceful shutdown end time since unix epoch in seconds"
    ),
    "dra_operations_duration_seconds": MetricRow(
        "histogram",
        "Latency histogram in seconds for the duration of handling all ResourceClaims referenced "
        "by a pod when the pod starts or stops. Identified by the name of the operation "
        "(PrepareResources or UnprepareResources) and separated by the success of the operation. "
        "The number of failed operations is provided through the histogram's overall count.",
        ("operation_name", "is_error"),
        _DRA_SECONDS,
    ),
    "dra_grpc_operations_duration_seconds": MetricRow(
        "histogram",
        "Duration in seconds of the DRA gRPC operations",
        ("driver_name", "method_name", "grpc_status_code"),
        _DRA_SECONDS,
    ),
    "kubelet_pod_resources_endpoint_requests_total": MetricRow(
        "counter",
        "Cumulative number of requests to the PodResource endpoint. "
        "Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_pod_resources_endpoint_requests_list": MetricRow(
        "counter",
        "Number of requests to the PodResource List endpoint. Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_pod_resources_endpoint_requests_get_allocatable": MetricRow(
        "counter",
        "Number of requests to the PodResource GetAllocatableResources endpoint. "
        "Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_pod_resources_endpoint_errors_get_allocatable": MetricRow(
        "counter",
        "Number of requests to the PodResource GetAllocatableResources endpoint which returned error. "
        "Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_pod_resources_endpoint_requests_get": MetricRow(
        "counter",
        "Number of requests to the PodResource Get endpoint. Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_pod_resources_endpoint_errors_get": MetricRow(
        "counter",
        "Number of requests to the PodResource Get endpoint which returned error. "
        "Broken down by server api version.",
        ("server_api_version",),
    ),
    "kubelet_started_containers_total": MetricRow(
        "counter", "Cumulative number of containers started", ("container_type",)
    ),
    "kubelet_started_containers_errors_total": MetricRow(
        "counter",
        "Cumulative number of errors when starting containers",
        ("container_type", "code"),
    ),
    "kubelet_started_host_process_containers_total": MetricRow(
        "counter",
        "Cumulative number of hostprocess containers started. This metric will only be collected "
        "on Windows.",
        ("container_type",),
    ),
    "kubelet_started_host_process_containers_errors_total": MetricRow(
        "counter",
        "Cumulative number of errors when starting hostprocess containers. This metric will only "
        "be collected on Windows.",
        ("container_type", "code"),
    ),
    "kubelet_started_pods_total": MetricRow("counter", "Cumulative number of pods started"),
    "kubelet_started_pods_errors_total": MetricRow(
        "counter", "Cumulative number of errors when starting pods"
    ),
    "kubelet_containers_per_pod_count": MetricRow(
        "histogram", "The number of containers per pod.", (), _COUNTS
    ),
    "kubelet_evictions": MetricRow(
        "counter", "Cumulative number of pod evictions by eviction signal", ("eviction_signal",)
    ),
    "kubelet_http_requests_total": MetricRow(
        "counter",
        "Number of the http requests received since the server started",
        ("long_running", "method", "path", "server_type"),
    ),
    "kubelet_http_requests_duration_seconds": MetricRow(
        "histogram",
        "Duration in seconds to serve http requests",
        ("long_running", "method", "path", "server_type"),
    ),
    "kubelet_pleg_relist_duration_seconds": MetricRow(
        "histogram", "Duration in seconds for relisting pods in PLEG."
    ),
    "kubelet_pleg_relist_interval_seconds": MetricRow(
        "histogram", "Interval in seconds between relisting in PLEG."
    ),
    "kubelet_pod_start_duration_seconds": MetricRow(
        "histogram", "Duration in seconds for a single pod to go from pending to running."
    ),
    "kubelet_pod_worker_duration_seconds": MetricRow(
        "histogram",
        (
            "Duration in seconds to sync a single pod. Broken down by operation type: create, "
            "update, or sync"
        ),
        ("operation_type",),
    ),
    "kubelet_pod_worker_start_duration_seconds": MetricRow(
        "histogram", "Duration in seconds from seeing a pod to starting a worker."
    ),
    "kubelet_preemptions": MetricRow(
        "counter",
        "Cumulative number of pod preemptions by preemption resource",
        ("preemption_signal",),
    ),
    "kubelet_run_podsandbox_duration_seconds": MetricRow(
        "histogram",
        (
            "Duration in seconds of the run_podsandbox operations. Broken down by "
            "RuntimeClass.Handler."
        ),
        ("runtime_handler",),
    ),
    "kubelet_run_podsandbox_errors_total": MetricRow(
        "counter",
        "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
        ("runtime_handler",),
    ),
    "kubelet_runtime_operations_duration_seconds": MetricRow(
        "histogram",
        "Duration in seconds of runtime operations. Broken down by operation type.",
        ("operation_type",),
    ),
    "kubelet_runtime_operations_errors_total": MetricRow(
        "counter",
        "Cumulative number of runtime operation errors by operation type.",
        ("operation_type",),
    ),
    "kubelet_runtime_operations_total": MetricRow(
        "counter", "Cumulative number of runtime operations by operation type.", ("operation_type",)
    ),
}


class KubeletMetrics(MetricTable):
    """Label values are in the order of the table."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TABLE)


class ResourceManagerMetrics:
    """The counters of the CPU, memory and topology managers that a release has, from 0 on."""

    __slots__ = ("_metrics", "_names")

    def __init__(self, metrics: KubeletMetrics, release: tuple[int, int]) -> None:
        managers = metric_rules(Release(*release)).resource_managers
        self._metrics = metrics
        self._names = {
            (manager, event): f"kubelet_{manager}_manager_{_MANAGER_EVENTS[manager]}_{event}_total"
            for manager in managers
            for event in ("requests", "errors")
        }
        for name in self._names.values():
            metrics.count(name, by=0)

    def count(
        self, manager: Literal["cpu", "memory", "topology"], event: Literal["requests", "errors"]
    ) -> None:
        name = self._names.get((manager, event))
        if name is not None:
            self._metrics.count(name)


class ShutdownMetrics:
    """When the last graceful shutdown of the node began and ended; 0 if it has not."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: KubeletMetrics) -> None:
        self._metrics = metrics

    def set(self, started: float, ended: float) -> None:
        for name, value in (("start", started), ("end", ended)):
            self._metrics.set(f"kubelet_graceful_shutdown_{name}_time_seconds", int(value))


class StartMetrics:
    """The counters of started pods and containers that a release has; implements
    `kubelet.interfaces.StartCounter`.
    """

    __slots__ = ("_host_process", "_metrics", "_started")

    def __init__(self, metrics: KubeletMetrics, release: tuple[int, int]) -> None:
        rules = metric_rules(Release(*release))
        self._metrics = metrics
        self._started = rules.started_containers
        self._host_process = rules.started_host_process

    def pod(self, *, failed: bool = False) -> None:
        if self._started:
            self._metrics.count(f"kubelet_started_pods{'_errors' if failed else ''}_total")

    def container(self, kind: str, *, host_process: bool, code: str = "") -> None:
        labels = (kind, code) if code else (kind,)
        suffix = "_errors_total" if code else "_total"
        if self._started:
            self._metrics.count(f"kubelet_started_containers{suffix}", *labels)
        if host_process and self._host_process:
            self._metrics.count(f"kubelet_started_host_process_containers{suffix}", *labels)


def kubelet_metrics(
    env: KubeletContext, metrics: KubeletMetrics, started: float, others: Iterable[Family]
) -> str:
    return render_metrics(
        [
            *metrics.collect(),
            *_gauges(env),
            *_process(started),
            *others,
        ]
    )


class ProbeCount(Protocol):
    """How often a probe had this result; `prober.manager.Count` implements it. `pod` is a
    reference.
    """

    @property
    def kind(self) -> str: ...
    @property
    def pod(self) -> Object: ...
    @property
    def container(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def times(self) -> int: ...


def probe_metrics(counts: Iterable[ProbeCount], started: float) -> str:
    samples = [
        Sample(
            (
                ("container", count.container),
                ("namespace", count.pod.get("namespace", "")),
                ("pod", count.pod.get("name", "")),
                ("pod_uid", count.pod.get("uid", "")),
                ("probe_type", count.kind.capitalize()),
                ("result", count.result),
            ),
            count.times,
        )
        for count in counts
    ]
    text = (
        "[ALPHA] Cumulative number of a liveness, readiness or startup probe for a container by "
        "result."
    )
    return render_metrics(
        [Family("prober_probe_total", "counter", text, samples), _process(started)[0]]
    )


def _gauges(env: KubeletContext) -> list[Family]:
    states: dict[str, int] = {}
    for container in env.runtime.containers():
        states[container.state] = states.get(container.state, 0) + 1
    sandboxes = sum(1 for sandbox in env.runtime.sandboxes() if sandbox.state == "ready")
    identity = env.host.identity
    return [
        _gauge(
            "kubelet_node_name",
            "The node's name. The count is always 1.",
            [Sample((("node", env.config.node_name),), 1)],
        ),
        _gauge(
            "kubelet_running_containers",
            "Number of containers currently running",
            [
                Sample((("container_state", state),), count)
                for state, count in sorted(states.items())
            ],
        ),
        _gauge("kubelet_running_pods", "Number of pods currently running", [Sample((), sandboxes)]),
        _gauge(
            "kubelet_node_config_error",
            (
                "This metric is true (1) if the node is experiencing a configuration-related "
                "error, false (0) otherwise."
            ),
            [Sample((), 0)],
        ),
        build_info(env.config.version, f"{identity.operating_system}/{identity.architecture}"),
    ]


def _gauge(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(name, "gauge", f"[ALPHA] {text}", samples)


def _process(started: float) -> list[Family]:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return [
        _gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            [Sample((), started)],
        ),
        Family(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            [Sample((), round(use.ru_utime + use.ru_stime, 2))],
        ),
        Family(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            [Sample((), use.ru_maxrss * _MAXRSS_UNIT)],
        ),
        Family(
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            [Sample((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])],
        ),
    ]
