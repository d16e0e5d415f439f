"""CPU, memory and open files of this process, in Prometheus' names."""

from __future__ import annotations

import os

from transom.kit.process_metrics import collect_process_metrics
from transom.kit.prometheus import Sample


def values() -> dict[str, float]:
    found: dict[str, float] = {}
    for family in collect_process_metrics():
        [sample] = family.samples
        assert isinstance(sample, Sample)
        found[family.name] = sample.value
    return found


def test_the_usual_metrics_of_a_process() -> None:
    before = values()
    assert 0 < before["process_resident_memory_bytes"] < before["process_virtual_memory_bytes"]
    assert before["process_cpu_seconds_total"] > 0
    left, right = os.pipe()
    after = values()
    os.close(left)
    os.close(right)
    assert after["process_open_fds"] == before["process_open_fds"] + 2
    assert after["process_open_fds"] < after["process_max_fds"]
