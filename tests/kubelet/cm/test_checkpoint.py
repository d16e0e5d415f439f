"""State files of real kubelets, with their checksums."""

from __future__ import annotations

import pytest

from transom.kubelet.cm.checkpoint import (
    cpu_manager_checkpoint,
    memory_manager_checkpoint,
    read_cpu_manager_checkpoint,
    read_memory_manager_checkpoint,
)

ENTRIES = {"pod": {"container1": "4-6", "container2": "1-3"}}


@pytest.mark.parametrize(
    ("policy", "default", "entries", "checksum"),
    [
        ("none", "", {}, 1353318690),
        ("static", "0-3", {}, 611748604),
        ("none", "4-6", {}, 354655845),
        ("none", "1-3", ENTRIES, 3610638499),
    ],
)
def test_checksums_are_those_of_kubernetes(
    policy: str, default: str, entries: dict[str, dict[str, str]], checksum: int
) -> None:
    data = cpu_manager_checkpoint(policy, default, entries)
    assert data.endswith(b'"checksum":%d}' % checksum)
    assert read_cpu_manager_checkpoint(data, policy) == (default, entries)


def test_the_file_of_a_new_kubelet() -> None:
    assert cpu_manager_checkpoint("none", "", {}) == (
        b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    )


def test_a_changed_file_is_not_used() -> None:
    data = cpu_manager_checkpoint("static", "0-3", {}).replace(b"0-3", b"0-2")
    with pytest.raises(ValueError, match="checkpoint is corrupted"):
        read_cpu_manager_checkpoint(data, "static")


MACHINE = {
    "0": {
        "numberOfAssignments": 0,
        "memoryMap": {
            "memory": {
                "total": 2048,
                "systemReserved": 512,
                "allocatable": 1536,
                "reserved": 512,
                "free": 1024,
            }
        },
        "cells": [],
    }
}
MEMORY = {"pod": {"container1": [{"numaAffinity": [0], "type": "memory", "size": 512}]}}


def test_the_memory_checksum_is_that_of_kubernetes() -> None:
    data = memory_manager_checkpoint("static", MACHINE, MEMORY)
    assert data.endswith(b'"checksum":4215593881}')
    assert read_memory_manager_checkpoint(data, "static") == (MACHINE, MEMORY)


def test_a_changed_memory_file_is_not_used() -> None:
    data = memory_manager_checkpoint("static", MACHINE, MEMORY)
    with pytest.raises(ValueError, match="checkpoint is corrupted"):
        read_memory_manager_checkpoint(data.replace(b"1536", b"1537"), "static")
    with pytest.raises(ValueError, match=r'configured policy "None" differs .* policy "static"'):
        read_memory_manager_checkpoint(data, "None")
