from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, PODS, pod, refused, run

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def a_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **more}


@pytest.mark.parametrize(
    ("name", "priority", "default", "expected"),
    [
        ("", None, None, (0, "PreemptLowerPriority", None)),
        ("", None, {"value": 7, "preemptionPolicy": "Never"}, (7, "Never", "usual")),
        ("", 7, {"value": 7}, (7, "PreemptLowerPriority", "usual")),
        (
            "system-node-critical",
            None,
            {"value": 7},
            (2000001000, "PreemptLowerPriority", "system-node-critical"),
        ),
        (
            "",
            8,
            {"value": 7},
            "the integer value of priority (8) must not be provided in pod spec; priority "
            "admission "
            "controller computed 7 from the given PriorityClass name",
        ),
        ("ghost", None, None, "no PriorityClass with name ghost was found"),
    ],
)
async def test_the_class_gives_the_number(
    name: str, priority: int | None, default: Any, expected: Any
) -> None:
    async with run() as api:
        if default is not None:
            await api.ok(
                "POST", CLASSES, {"metadata": {"name": "usual"}, "globalDefault": True, **default}
            )
        given = pod(
            **({"priorityClassName": name} if name else {}),
            **({"priority": priority} if priority is not None else {}),
        )
        if isinstance(expected, str):
            assert await refused(api, "POST", PODS, given) == expected
            return
        spec = (await api.ok("POST", PODS, given))["spec"]
        assert (
            spec["priority"],
            spec["preemptionPolicy"],
            spec.get("priorityClassName"),
        ) == expected


async def test_an_update_without_the_number_keeps_it() -> None:
    async with run() as api:
        made = await api.ok("POST", PODS, pod(priorityClassName="system-node-critical"))
        del made["spec"]["priority"], made["spec"]["preemptionPolicy"]
        made["metadata"]["labels"] = {"a": "b"}
        assert (await api.ok("PUT", PODS + "/p", made))["spec"]["priority"] == 2000001000


async def test_one_default_only_and_the_system_classes_stay() -> None:
    async with run() as api:
        await api.ok("POST", CLASSES, a_class("one", 1, globalDefault=True))
        text = "PriorityClass one is already marked as default. Only one default can exist"
        assert await refused(api, "POST", CLASSES, a_class("two", 2, globalDefault=True)) == text
        await api.ok("POST", CLASSES, a_class("two", 2))
        mark = {"globalDefault": True}
        assert await refused(api, "PATCH", f"{CLASSES}/two", mark, media=MERGE) == text
        # the default itself may change
        await api.ok("PATCH", f"{CLASSES}/one", {"description": "d"}, media=MERGE)
        assert await refused(api, "DELETE", f"{CLASSES}/system-cluster-critical") == (
            "this is a system priority class and cannot be deleted"
        )
