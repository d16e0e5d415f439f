"""The metrics of a process that every Prometheus client library has: CPU, memory and open files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from transom.kit.prometheus import Family, Sample

_SELF = Path("/proc/self")


def collect_process_metrics() -> list[Family]:
    """The metrics that are available without /proc."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    values: list[tuple[str, str, float]] = [
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            float(soft),
        )
    ]
    if _SELF.exists():
        virtual, resident = (_SELF / "statm").read_text().split()[:2]
        page = os.sysconf("SC_PAGE_SIZE")
        values += [
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                float(int(resident) * page),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
                float(int(virtual) * page),
            ),
            (
                "process_open_fds",
                "Number of open file descriptors.",
                float(len(os.listdir(_SELF / "fd"))),
            ),
        ]
    return [
        Family(
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            [Sample((), round(used.ru_utime + used.ru_stime, 2))],
        ),
        *(Family(name, "gauge", text, [Sample((), value)]) for name, text, value in values),
    ]
