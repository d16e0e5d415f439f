"""Facts about pods that several components compute."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.podutil import qos_class


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
