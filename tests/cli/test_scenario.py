"""`transom scenario run` on a cluster whose release does not have the fault."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest

from transom.cli.scenario import run_scenario_command
from transom.cluster import lifecycle
from transom.kit.user_errors import EXIT_USAGE, UserError


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
