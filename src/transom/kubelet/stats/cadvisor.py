"""/metrics/cadvisor: containers, pods and the machine as cAdvisor metrics.

Where cAdvisor does not measure containers, only the machine's metrics are left. What a simulated
machine does not count is zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from transom.kit.prometheus import Family, Labels, Sample, render_metrics
from transom.kubelet.base import KubeletContext
from transom.kubelet.labels import CONTAINER_NAME
from transom.kubelet.stats.summary import Measured, StatsProvider, container_memory_limit, pod_limit
from transom.machinery import podutil
from transom.machinery.objects import Object
from transom.machinery.quantity import parse_quantity
from transom.runtime.api import InterfaceStats

_DEVICE: Final = "/dev/sda1"
_NO_LIMIT: Final = 0
_MANY: Final = 20  # rows; a small node responds at once
_TIMELESS: Final = (
    "container_spec_",
    "container_start_time_",
)  # not measured: no timestamp
_STATES: Final = ("iowaiting", "running", "sleeping", "stopped", "uninterruptible")


class _Row(NamedTuple):
    """A cgroup."""

    labels: Labels
    time: float
    created: float
    cpu: float = 0.0  # seconds
    usage: int = 0
    working_set: int = 0
    rss: int = 0
    faults: int = 0
    major_faults: int = 0
    processes: int = 0
    memory_limit: int = _NO_LIMIT
    cpu_limit: int = 0  # milli
    cpu_request: int = 0
    disk_used: int | None = None
    interfaces: Sequence[InterfaceStats] = ()


Values = list[tuple[Labels, float]]
_Read = Callable[[_Row, KubeletContext], Values]


def _one(value: Callable[[_Row], float]) -> _Read:
    return lambda row, env: [((), value(row))]


def _disk(value: Callable[[_Row, KubeletContext], float]) -> _Read:
    return lambda row, env: (
        [] if row.disk_used is None else [((("device", _DEVICE),), value(row, env))]
    )


def _net(value: Callable[[InterfaceStats], float]) -> _Read:
    return lambda row, env: [((("interface", i.name),), value(i)) for i in row.interfaces]


def _quota(value: Callable[[_Row, KubeletContext], float]) -> _Read:
    return lambda row, env: (
        [((), value(row, env))] if row.cpu_limit and env.config.cpu_cfs_quota else []
    )


def _failures(row: _Row, env: KubeletContext) -> Values:
    out: Values = []
    for kind, value in (("pgfault", row.faults), ("pgmajfault", row.major_faults)):
        out += [
            ((("failure_type", kind), ("scope", scope)), value)
            for scope in ("container", "hierarchy")
        ]
    return out


def _shares(row: _Row) -> int:
    return max(2, row.cpu_request * 1024 // 1000)


_ZERO: Final = _one(lambda row: 0)
_NO_IO: Final = _disk(lambda row, env: 0)
_NO_PACKETS: Final = _net(lambda i: 0)

_METRICS: Final[tuple[tuple[str, Literal["counter", "gauge"], str, _Read], ...]] = (
    (
        "container_cpu_cfs_periods_total",
        "counter",
        "Number of elapsed enforcement period intervals.",
        _quota(lambda r, env: int((r.time - r.created) * 10)),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Number of throttled period intervals.",
        _quota(lambda r, env: 0),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        _quota(lambda r, env: 0),
    ),
    (
        "container_cpu_load_average_10s",
        "gauge",
        "Value of container cpu load average over the last 10 seconds.",
        _ZERO,
    ),
    (
        "container_cpu_system_seconds_total",
        "counter",
        "Cumulative system cpu time consumed in seconds.",
        _one(lambda r: round(r.cpu * 0.3, 2)),
    ),
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        lambda row, env: [((("cpu", "total"),), row.cpu)],
    ),
    (
        "container_cpu_user_seconds_total",
        "counter",
        "Cumulative user cpu time consumed in seconds.",
        _one(lambda r: round(r.cpu * 0.7, 2)),
    ),
    (
        "container_file_descriptors",
        "gauge",
        "Number of open file descriptors for the container.",
        _one(lambda r: 8 * r.processes),
    ),
    (
        "container_fs_inodes_free",
        "gauge",
        "Number of available Inodes",
        _disk(lambda r, env: env.host.disk().inodes - env.host.disk().inodes_used),
    ),
    (
        "container_fs_inodes_total",
        "gauge",
        "Number of Inodes",
        _disk(lambda r, env: env.host.disk().inodes),
    ),
    ("container_fs_io_current", "gauge", "Number of I/Os currently in progress", _NO_IO),
    (
        "container_fs_io_time_seconds_total",
        "counter",
        "Cumulative count of seconds spent doing I/Os",
        _NO_IO,
    ),
    (
        "container_fs_limit_bytes",
        "gauge",
        "Number of bytes that can be consumed by the container on this filesystem.",
        _disk(lambda r, env: env.host.disk().capacity),
    ),
    (
        "container_fs_read_seconds_total",
        "counter",
        "Cumulative count of seconds spent reading",
        _NO_IO,
    ),
    ("container_fs_reads_bytes_total", "counter", "Cumulative count of bytes read", _NO_IO),
    ("container_fs_reads_total", "counter", "Cumulative count of reads completed", _NO_IO),
    (
        "container_fs_usage_bytes",
        "gauge",
        "Number of bytes that are consumed by the container on this filesystem.",
        _disk(lambda r, env: r.disk_used or 0),
    ),
    (
        "container_fs_write_seconds_total",
        "counter",
        "Cumulative count of seconds spent writing",
        _NO_IO,
    ),
    (
        "container_fs_writes_bytes_total",
        "counter",
        "Cumulative count of bytes written",
        _disk(lambda r, env: r.disk_used or 0),
    ),
    ("container_fs_writes_total", "counter", "Cumulative count of writes completed", _NO_IO),
    (
        "container_last_seen",
        "gauge",
        "Last time a container was seen by the exporter",
        _one(lambda r: int(r.time)),
    ),
    (
        "container_memory_cache",
        "gauge",
        "Number of bytes of page cache memory.",
        _one(lambda r: max(0, r.usage - r.rss)),
    ),
    ("container_memory_failcnt", "counter", "Number of memory usage hits limits", _ZERO),
    (
        "container_memory_failures_total",
        "counter",
        "Cumulative count of memory allocation failures.",
        _failures,
    ),
    ("container_memory_mapped_file", "gauge", "Size of memory mapped files in bytes.", _ZERO),
    (
        "container_memory_max_usage_bytes",
        "gauge",
        "Maximum memory usage recorded in bytes",
        _one(lambda r: r.usage),
    ),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", _one(lambda r: r.rss)),
    ("container_memory_swap", "gauge", "Container swap usage in bytes.", _ZERO),
    (
        "container_memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        _one(lambda r: r.usage),
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "Current working set in bytes.",
        _one(lambda r: r.working_set),
    ),
    (
        "container_network_receive_bytes_total",
        "counter",
        "Cumulative count of bytes received",
        _net(lambda i: i.rx_bytes),
    ),
    (
        "container_network_receive_errors_total",
        "counter",
        "Cumulative count of errors encountered while receiving",
        _net(lambda i: i.rx_errors or 0),
    ),
    (
        "container_network_receive_packets_dropped_total",
        "counter",
        "Cumulative count of packets dropped while receiving",
        _NO_PACKETS,
    ),
    (
        "container_network_receive_packets_total",
        "counter",
        "Cumulative count of packets received",
        _net(lambda i: -(-i.rx_bytes // 1400)),
    ),
    (
        "container_network_transmit_bytes_total",
        "counter",
        "Cumulative count of bytes transmitted",
        _net(lambda i: i.tx_bytes),
    ),
    (
        "container_network_transmit_errors_total",
        "counter",
        "Cumulative count of errors encountered while transmitting",
        _net(lambda i: i.tx_errors or 0),
    ),
    (
        "container_network_transmit_packets_dropped_total",
        "counter",
        "Cumulative count of packets dropped while transmitting",
        _NO_PACKETS,
    ),
    (
        "container_network_transmit_packets_total",
        "counter",
        "Cumulative count of packets transmitted",
        _net(lambda i: -(-i.tx_bytes // 1400)),
    ),
    (
        "container_processes",
        "gauge",
        "Number of processes running inside the container.",
        _one(lambda r: r.processes),
    ),
    ("container_sockets", "gauge", "Number of open sockets for the container.", _ZERO),
    (
        "container_spec_cpu_period",
        "gauge",
        "CPU period of the container.",
        lambda r, env: [((), env.config.cpu_period)],
    ),
    (
        "container_spec_cpu_quota",
        "gauge",
        "CPU quota of the container.",
        _quota(lambda r, env: r.cpu_limit * env.config.cpu_period // 1000),
    ),
    ("container_spec_cpu_shares", "gauge", "CPU share of the container.", _one(_shares)),
    (
        "container_spec_memory_limit_bytes",
        "gauge",
        "Memory limit for the container.",
        _one(lambda r: r.memory_limit),
    ),
    (
        "container_spec_memory_reservation_limit_bytes",
        "gauge",
        "Memory reservation limit for the container.",
        _ZERO,
    ),
    (
        "container_spec_memory_swap_limit_bytes",
        "gauge",
        "Memory swap limit for the container.",
        _one(lambda r: r.memory_limit),
    ),
    (
        "container_start_time_seconds",
        "gauge",
        "Start time of the container since unix epoch in seconds.",
        _one(lambda r: int(r.created)),
    ),
    (
        "container_tasks_state",
        "gauge",
        "Number of tasks in given state",
        lambda row, env: [((("state", state),), 0) for state in _STATES],
    ),
    (
        "container_threads",
        "gauge",
        "Number of threads running inside the container",
        _one(lambda r: r.processes),
    ),
    (
        "container_threads_max",
        "gauge",
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        _ZERO,
    ),
)


async def cadvisor_metrics(env: KubeletContext, stats: StatsProvider) -> str:
    """Many containers take long, so other tasks may run after each metric."""
    families = [
        Family(
            "container_scrape_error",
            "gauge",
            "1 if there was an error while getting container metrics, 0 otherwise",
            [Sample((), 0)],
        ),
        *_machine(env),
    ]
    parts = {family.name: render_metrics([family]) for family in families}
    if env.os.cadvisor_containers():
        rows = _rows(env, stats)
        for name, kind, text, read in _METRICS:
            timeless = name.startswith(_TIMELESS)
            samples = [
                Sample(_merged(row.labels, more), value, None if timeless else row.time)
                for row in rows
                for more, value in read(row, env)
            ]
            parts[name] = render_metrics([Family(name, kind, text, samples)])
            if len(rows) > _MANY:
                await asyncio.sleep(0)
    return "".join(parts[name] for name in sorted(parts))


def _merged(labels: Labels, more: Labels) -> Labels:
    return tuple(sorted((*labels, *more))) if more else labels


def _machine(env: KubeletContext) -> list[Family]:
    identity, hardware = env.host.identity, env.host.hardware
    runtime = env.runtime.version
    boot = (
        ("boot_id", identity.boot_id),
        ("machine_id", identity.machine_id),
        ("system_uuid", identity.system_uuid),
    )
    version: Labels = (
        ("cadvisorRevision", ""),
        ("cadvisorVersion", ""),
        ("dockerVersion", runtime.version if runtime.name == "docker" else "Unknown"),
        ("kernelVersion", identity.kernel_version),
        ("osVersion", identity.os_image),
    )
    info = (
        "A metric with a constant '1' value labeled by kernel version, OS version, docker "
        "version, cadvisor version & cadvisor revision."
    )
    return [
        Family("cadvisor_version_info", "gauge", info, [Sample(version, 1)]),
        Family(
            "machine_cpu_cores",
            "gauge",
            "Number of logical CPU cores.",
            [Sample(boot, hardware.cpus)],
        ),
        Family(
            "machine_cpu_physical_cores",
            "gauge",
            "Number of physical CPU cores.",
            [Sample(boot, hardware.cpus)],
        ),
        Family("machine_cpu_sockets", "gauge", "Number of CPU sockets.", [Sample(boot, 1)]),
        Family(
            "machine_memory_bytes",
            "gauge",
            "Amount of memory installed on the machine.",
            [Sample(boot, hardware.memory)],
        ),
        Family(
            "machine_scrape_error",
            "gauge",
            "1 if there was an error while getting machine metrics, 0 otherwise.",
            [Sample((), 0)],
        ),
    ]


def _labels(
    id: str, pod: tuple[str, str] = ("", ""), container: str = "", image: str = "", name: str = ""
) -> Labels:
    return (
        ("container", container),
        ("id", id),
        ("image", image),
        ("name", name),
        ("namespace", pod[0]),
        ("pod", pod[1]),
    )


def _rows(env: KubeletContext, stats: StatsProvider) -> list[_Row]:
    now = env.clock.time()
    boot = env.host.boot_time
    use = env.host.memory()
    root = _Row(
        _labels("/"),
        now,
        boot,
        env.host.cpu_seconds(),
        use.usage,
        use.working_set,
        use.rss,
        memory_limit=use.total,
        disk_used=env.host.disk().used,
    )
    networks = {each.id: each.interfaces for each in env.runtime.sandbox_stats()}
    pods: list[_Row] = []
    below: list[_Row] = []
    for each in stats.measured():
        own = _containers(env, each)
        pods.append(_pod(each, own, now))
        below += [*own, _sandbox(env, each, networks.get(each.sandbox.id, ()), now)]
    kubepods = _sum(_labels("/kubepods"), pods, now, boot)
    return [root, kubepods, *pods, *below]


def _folder(each: Measured) -> str:
    quality = podutil.qos_class(each.pod) if each.pod is not None else "BestEffort"
    middle = "" if quality == "Guaranteed" else f"/{quality.lower()}"
    return f"/kubepods{middle}/pod{each.sandbox.config.uid}"


def _owner_labels(each: Measured) -> tuple[str, str]:
    return each.sandbox.config.namespace, each.sandbox.config.name


def _containers(env: KubeletContext, each: Measured) -> list[_Row]:
    out = []
    for container, stats in each.containers:
        name = container.labels.get(CONTAINER_NAME, container.name)
        labels = _labels(
            f"{_folder(each)}/{container.id}",
            _owner_labels(each),
            name,
            container.image,
            _runtime_name(env, each, name, container.attempt, container.id),
        )
        out.append(
            _Row(
                labels,
                stats.time,
                container.created_at,
                stats.cpu.core_nanoseconds / 1e9 if stats.cpu is not None else 0.0,
                stats.usage,
                stats.working_set or 0,
                stats.rss,
                stats.page_faults,
                stats.major_page_faults,
                stats.processes,
                container_memory_limit(each.pod, name),
                _milli(each.pod, name, "limits"),
                _milli(each.pod, name, "requests"),
                stats.writable_layer.used if stats.writable_layer is not None else 0,
            )
        )
    return out


def _sandbox(
    env: KubeletContext, each: Measured, interfaces: Sequence[InterfaceStats], now: float
) -> _Row:
    sandbox = each.sandbox
    name = _runtime_name(env, each, "POD", sandbox.config.attempt, sandbox.id)
    image = env.config.pod_infra_image or env.os.default_pause_image(env.config.release)
    labels = _labels(f"{_folder(each)}/{sandbox.id}", _owner_labels(each), "POD", image, name)
    return _Row(labels, now, sandbox.created_at, processes=1, interfaces=interfaces)


def _pod(each: Measured, own: Sequence[_Row], now: float) -> _Row:
    row = _sum(_labels(_folder(each), _owner_labels(each)), own, now, each.sandbox.created_at)
    return row._replace(memory_limit=pod_limit(each.pod))


def _sum(labels: Labels, rows: Sequence[_Row], now: float, created: float) -> _Row:
    def total(field: str) -> Any:
        return sum(getattr(row, field) for row in rows)

    return _Row(
        labels,
        now,
        created,
        total("cpu"),
        total("usage"),
        total("working_set"),
        total("rss"),
        total("faults"),
        total("major_faults"),
        total("processes"),
        cpu_request=total("cpu_request"),
    )


def _runtime_name(
    env: KubeletContext, each: Measured, container: str, attempt: int, id: str
) -> str:
    if env.runtime.version.name != "docker":
        return id
    config = each.sandbox.config
    return f"k8s_{container}_{config.name}_{config.namespace}_{config.uid}_{attempt}"


def _milli(pod: Object | None, name: str, what: str) -> int:
    for kind in ("containers", "initContainers"):
        for container in (pod or {"spec": {}})["spec"].get(kind) or ():
            if container["name"] == name:
                value = ((container.get("resources") or {}).get(what) or {}).get("cpu")
                return parse_quantity(value).milli_value() if value else 0
    return 0
