"""Thresholds as settings write them."""

from __future__ import annotations

from typing import Any

import pytest

from transom.kubelet import os_linux, os_windows
from transom.kubelet.config import KubeletConfig
from transom.kubelet.eviction import thresholds
from transom.kubelet.eviction.thresholds import EvictionThreshold, SignalObservation


def limits(**config: Any) -> list[EvictionThreshold]:
    return thresholds.configured_thresholds(KubeletConfig("n", "1.2.3.4", **config), os_linux.RULES)  # type: ignore[arg-type]


def test_defaults_of_both_systems() -> None:
    assert [limit.signal for limit in limits()] == [
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "allocatableMemory.available",
    ]
    config = KubeletConfig("n", "1.2.3.4", enforce_node_allocatable=())
    windows = thresholds.configured_thresholds(config, os_windows.RULES)  # type: ignore[arg-type]
    assert [limit.signal for limit in windows] == [
        "memory.available",
        "nodefs.available",
        "imagefs.available",
    ]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"eviction_hard": {"cpu": "1"}}, "unsupported eviction signal cpu"),
        (
            {"eviction_hard": {"memory.available": "-1Mi"}},
            "eviction threshold memory.available must be positive: -1Mi",
        ),
        (
            {"eviction_hard": {"memory.available": "-5%"}},
            "eviction percentage threshold memory.available must be >= 0%: -5%",
        ),
        (
            {"eviction_soft": {"memory.available": "1Gi"}},
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (
            {"eviction_soft_grace_period": {"memory.available": "-1s"}},
            "invalid eviction grace period specified: -1s, must be a positive value",
        ),
        (
            {"eviction_soft_grace_period": {"memory.available": "1"}},
            'time: missing unit in duration "1"',
        ),
        (
            {"eviction_minimum_reclaim": {"memory.available": "-1"}},
            "negative eviction minimum reclaim specified for memory.available",
        ),
        (
            {"eviction_minimum_reclaim": {"memory.available": "0%"}},
            "eviction percentage minimum reclaim memory.available must be positive: 0%",
        ),
    ],
)
def test_settings_that_make_no_sense(config: Any, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        limits(**config)
    assert str(error.value) == problem


def test_crossing() -> None:
    (soft,) = limits(
        eviction_hard={"nodefs.available": "0%"},
        eviction_soft={"memory.available": "10%"},
        eviction_soft_grace_period={"memory.available": "1m30s"},
        eviction_minimum_reclaim={"memory.available": "50"},
    )
    assert (soft.grace, soft.hard) == (90, False)
    assert [soft.crossed(SignalObservation(free, 1000), False) for free in (99, 100)] == [
        True,
        False,
    ]
    assert [soft.crossed(SignalObservation(free, 1000), True) for free in (149, 150)] == [
        True,
        False,
    ]
