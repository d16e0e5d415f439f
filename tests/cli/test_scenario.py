"""`transom scenario run` on a cluster whose release does not have the fault."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from transom.cli.scenario import run_scenario_command
from transom.cluster import lifecycle
from transom.kit.user_errors import EXIT_USAGE, UserError


def test_a_scenario_that_the_release_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SimpleNamespace(name="blue", release="1.36")
    monkeypatch.setattr(lifecycle, "existing_cluster", lambda name: cluster)
    args = argparse.Namespace(
        verb="run", scenario="linux-security-context", name="blue", node="", output="text"
    )
    with pytest.raises(
        UserError, match=r"happens until Kubernetes 1\.30; cluster blue runs 1\.36"
    ) as found:
        run_scenario_command(args)
    assert found.value.code == EXIT_USAGE
