"""Facts about pods that several components compute."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.podutil import current_pod_ips, qos_class


def _pod(*resources: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "spec": {
            "containers": [{"name": f"c{i}", "resources": one} for i, one in enumerate(resources)]
        }
    }


_BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}, "limits": {"memory": "0"}}], "BestEffort"),
        ([{"requests": {"ephemeral-storage": "1Gi"}}], "BestEffort"),
        ([{"requests": {"cpu": "1m"}}], "Burstable"),
        ([{"limits": _BOTH}], "Burstable"),
        ([{"requests": _BOTH, "limits": _BOTH}], "Guaranteed"),
        ([{"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": _BOTH}], "Guaranteed"),
        (
            [{"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}, "limits": _BOTH}],
            "Guaranteed",
        ),
        ([{"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}], "Burstable"),
        ([{"requests": _BOTH, "limits": _BOTH}, {}], "Burstable"),
        (
            [{"requests": _BOTH, "limits": _BOTH}, {"requests": _BOTH, "limits": _BOTH}],
            "Guaranteed",
        ),
        (
            [
                {"requests": _BOTH, "limits": _BOTH},
                {"requests": {"cpu": "1", "memory": "1"}, "limits": _BOTH},
            ],
            "Burstable",
        ),
    ],
)
def test_qos_class(resources: list[dict[str, dict[str, str]]], expected: str) -> None:
    assert qos_class(_pod(*resources)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ()),
        ({"phase": "Running", "podIP": "10.0.0.1"}, ("10.0.0.1",)),
        (
            {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
            ("10.0.0.1", "fd00::1"),
        ),
        ({"phase": "Succeeded", "podIPs": [{"ip": "10.0.0.1"}]}, ()),
        ({"phase": "Failed", "podIP": "10.0.0.1"}, ()),
    ],
)
def test_a_terminated_pod_uses_no_address(
    status: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert current_pod_ips({"status": status}) == expected
