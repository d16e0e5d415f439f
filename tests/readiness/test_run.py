"""Results of test cases, and that each leaves nothing behind. `transom readiness` on a cluster runs
them all.
"""

from __future__ import annotations

from typing import Any

import pytest

from transom.client.api import ObjectList
from transom.kit.clock import VirtualClock
from transom.kit.user_errors import UserError
from transom.readiness.cases import READINESS_CASES, ReadinessCase
from transom.readiness.run import CaseResult, run_readiness
from transom.readiness.session import CaseFailed, ReadinessSession

NODE = {
    "metadata": {"name": "windows-1", "labels": {"kubernetes.io/os": "windows"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kubeletVersion": "v1.22.17"},
    },
}


class RecordingClient:
    """A cluster that accepts everything."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes = list(nodes)
        self.namespaces: list[str] = []

    async def list(self, resource: Any, namespace: str, **options: Any) -> ObjectList:
        return ObjectList(self.nodes, "1", "")

    async def get(self, resource: Any, namespace: str, name: str) -> dict[str, Any]:
        return {}

    async def create(self, resource: Any, namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
        if obj["kind"] == "Namespace":
            self.namespaces.append(obj["metadata"]["name"])
        return obj

    async def delete(self, resource: Any, namespace: str, name: str) -> None:
        self.namespaces.remove(name)


async def run(client: RecordingClient, *cases: ReadinessCase) -> list[CaseResult]:
    reported: list[CaseResult] = []
    results = await run_readiness(
        client,  # type: ignore[arg-type]
        VirtualClock(),
        cases,
        5,
        reported.append,
    )
    assert reported == results
    return results


async def passes(_session: ReadinessSession) -> None:
    return


async def fails(session: ReadinessSession) -> None:
    raise CaseFailed(f"{session.node} does not work")


async def test_results_and_namespaces() -> None:
    client = RecordingClient(NODE)
    results = await run(
        client,
        ReadinessCase("A", "one", passes),
        ReadinessCase("A", "two", fails),
        ReadinessCase("B", "three", fails, "it needs something"),
    )
    assert [(one.result, one.message) for one in results] == [
        ("passed", ""),
        ("failed", "windows-1 does not work"),
        ("skipped", "it needs something"),
    ]
    assert client.namespaces == []


async def test_a_cluster_without_windows() -> None:
    with pytest.raises(UserError, match="no Windows node"):
        await run(RecordingClient(), ReadinessCase("A", "one", passes))


@pytest.mark.windows("W-OS-16")
def test_categories_are_those_of_the_specification() -> None:
    assert list(dict.fromkeys(case.category for case in READINESS_CASES)) == [
        "Core.Network",
        "Core.Storage",
        "Core.Scheduling",
        "Core.Concurrent",
        "Extend.HostProcess",
        "Extend.ActiveDirectory",
        "Extend.NetworkPolicy",
        "Extend.Network",
    ]
    assert len({case.description for case in READINESS_CASES}) == len(READINESS_CASES)


async def test_cases_that_the_kubelet_is_too_old_for() -> None:
    client = RecordingClient(NODE)
    early, late = await run(
        client,
        ReadinessCase("A", "early", passes, since=(1, 22)),
        ReadinessCase("A", "late", fails, since=(1, 23)),
    )
    assert early.result == "passed"
    assert (late.result, late.message) == ("skipped", "it needs Kubernetes 1.23")
