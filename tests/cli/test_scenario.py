"""`transom scenario run` on a cluster whose release does not have the fault."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from transom.cli import scenario
from transom.cli.scenario import run_scenario_command
from transom.cluster import lifecycle
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.scenarios import cluster_calls


@pytest.mark.parametrize("release", ["1.20", "1.36"])
def test_a_scenario_that_the_release_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    cluster = SimpleNamespace(name="blue", release=release)
    monkeypatch.setattr(lifecycle, "existing_cluster", lambda name: cluster)
    args = argparse.Namespace(
        verb="run", scenario="linux-security-context", name="blue", node="", output="text"
    )
    with pytest.raises(
        UserError, match=rf"happens in Kubernetes 1\.21 to 1\.30; cluster blue runs {release}"
    ) as found:
        run_scenario_command(args)
    assert found.value.code == EXIT_USAGE


@pytest.mark.parametrize(("reports", "code"), [(2, 0), (1000, 1)])
def test_run_asks_doctor_until_it_reports_the_scenario(
    monkeypatch: pytest.MonkeyPatch, reports: int, code: int
) -> None:
    node = {"name": "w", "os": "windows", "build": 20348, "ready": True}
    asked: list[int] = []

    def findings(args: argparse.Namespace) -> list[dict[str, Any]]:
        asyncio.run(asyncio.sleep(0))  # as doctor does
        asked.append(1)
        what = "gets no suffix" if len(asked) >= reports else "something else"
        return [{"severity": "warning", "where": ["pod/a"], "what": what, "remedy": "y"}]

    async def wait(seconds: float) -> None:
        return

    def control(config: Any) -> Callable[..., Any]:
        return lambda method, path, *body: {"items": [node]}

    monkeypatch.setattr(
        lifecycle, "existing_cluster", lambda name: SimpleNamespace(name="blue", release="1.36")
    )
    monkeypatch.setattr(lifecycle, "control_client", control)
    monkeypatch.setattr(scenario, "_findings", findings)
    monkeypatch.setattr(cluster_calls.ClusterCalls, "sleep", lambda self, seconds: wait(seconds))
    args = argparse.Namespace(
        verb="run", scenario="dns-suffix", name="blue", node="", output="text"
    )
    assert run_scenario_command(args) == code
    assert len(asked) == (2 if code == 0 else 31)
