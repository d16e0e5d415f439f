"""Runs test cases one after another, each in a namespace of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from transom.client.http import HttpClient
from transom.client.resources import builtin_resource
from transom.kit.clock import Clock
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.readiness.cases import ReadinessCase
from transom.readiness.session import CaseFailed, ReadinessSession


class CaseResult(NamedTuple):
    category: str
    description: str
    result: Literal["passed", "failed", "skipped"]
    message: str
    seconds: float


async def run_readiness(
    client: HttpClient,
    clock: Clock,
    cases: Sequence[ReadinessCase],
    seconds: float,
    report: Callable[[CaseResult], None],
) -> list[CaseResult]:
    """Raises UserError if the cluster has no Windows node that is ready."""
    nodes = (await client.list(builtin_resource("/Node"), "")).items
    windows = [node for node in nodes if _is_ready_windows(node)]
    if not windows:
        raise UserError("the cluster has no Windows node that is ready")
    release = _kubelet_release(windows[0])
    stamp = f"{int(clock.time()) % 100000:05d}"
    results = []
    for i, case in enumerate(cases):
        session = ReadinessSession(client, clock, f"readiness-{stamp}-{i}", windows[0], seconds)
        began = clock.monotonic()
        result, message = await _run_case(case, session, release)
        found = CaseResult(
            case.category, case.description, result, message, clock.monotonic() - began
        )
        report(found)
        results.append(found)
    return results


async def _run_case(
    case: ReadinessCase, session: ReadinessSession, release: tuple[int, int]
) -> tuple[Literal["passed", "failed", "skipped"], str]:
    if case.skip:
        return "skipped", case.skip
    if release < case.since:
        return "skipped", f"it needs Kubernetes {case.since[0]}.{case.since[1]}"
    try:
        await session.begin(session.namespace)
        await case.run(session)
    except (CaseFailed, ApiError) as problem:
        return "failed", str(problem)
    finally:
        await session.end(session.namespace)
    return "passed", ""


def _kubelet_release(node: dict[str, Any]) -> tuple[int, int]:
    major, minor, *_ = node["status"]["nodeInfo"]["kubeletVersion"].lstrip("v").split(".")
    return int(major), int(minor)


def _is_ready_windows(node: dict[str, Any]) -> bool:
    ready = any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in node["status"].get("conditions") or ()
    )
    labels = node["metadata"].get("labels") or {}
    return ready and labels.get("kubernetes.io/os") == "windows"
