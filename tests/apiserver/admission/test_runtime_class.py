from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.apiserver.admission.support import PODS, pod, refused, run

from transom.apiserver.admission.runtime_class import _toleration, merge_tolerations

CLASS = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "kata", "operator": "Exists"}],
    },
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {
                "runtimeClassName": "kata",
                "overhead": {"cpu": "0.25"},
                "nodeSelector": {"disk": "ssd", "a": "b"},
            },
            {"overhead": {"cpu": "250m"}, "nodeSelector": {"disk": "ssd", "a": "b"}},
        ),
        ({"runtimeClassName": "ghost"}, 'pod rejected: RuntimeClass "ghost" not found'),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"disk": "hdd"}},
            (
                "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; "
                "pod.spec.nodeSelector[disk] = hdd"
            ),
        ),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "251m"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"cpu": "250m"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    ],
)
async def test_the_class_is_merged_into_the_pod(spec: dict[str, Any], expected: Any) -> None:
    async with run() as api:
        await api.ok("POST", "/apis/node.k8s.io/v1/runtimeclasses", CLASS)
        if isinstance(expected, str):
            assert await refused(api, "POST", PODS, pod(**spec)) == expected
            return
        made = (await api.ok("POST", PODS, pod(**spec)))["spec"]
        assert {name: made[name] for name in expected} == expected
        assert [t["key"] for t in made["tolerations"]] == [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "kata",
        ]


TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["a", "b"]),
            "operator": st.sampled_from(["Equal", "Exists"]),
            "value": st.sampled_from(["x", "y"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
            "tolerationSeconds": st.integers(0, 2),
        },
    ),
    max_size=4,
)


@settings(max_examples=300)
@given(TOLERATIONS, TOLERATIONS)
def test_merging_loses_no_toleration_and_repeats_none(first: list[Any], second: list[Any]) -> None:
    merged = merge_tolerations(first, second)
    assert all(
        any(_toleration(kept).covers(_toleration(t)) for kept in merged) for t in first + second
    )
    assert len(merged) == len({repr(sorted(t.items())) for t in merged})
