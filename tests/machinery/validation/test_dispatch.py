"""Every kind finds its rules, only when needed, and an update is judged by the common rules
first.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from transom.machinery import validation
from transom.machinery.kinds import BY_KEY, KINDS

# Kinds that no request can write.
READ_ONLY = {"/ComponentStatus"}


@pytest.mark.parametrize("key", sorted({kind.key for kind in KINDS} - READ_ONLY))
def test_every_kind_has_rules(key: str) -> None:
    assert callable(validation.validation_rules(key).create)


def test_versions_may_have_rules_of_their_own() -> None:
    assert validation.validation_rules(
        "/Event", "events.k8s.io/v1"
    ) is not validation.validation_rules("/Event", "v1")
    assert validation.validation_rules(
        "/Event", "events.k8s.io/v1beta1"
    ) is validation.validation_rules("/Event")


def test_rules_are_not_loaded_before_they_are_needed() -> None:
    code = (
        "import sys, transom.machinery.validation as v; print(sum(m.startswith(v.__name__) for m "
        "in sys.modules))"
    )
    loaded = int(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, text=True
        ).stdout
    )
    assert loaded < 10


def _map(**meta: str) -> dict[str, object]:
    return {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", **meta}
    }


def test_metadata_is_judged_in_common_and_by_the_kind() -> None:
    errors = validation.validate_update(BY_KEY["/ConfigMap"], _map(uid="v"), _map())
    assert [error.field for error in errors] == ["metadata.uid", "metadata.uid"]


def test_common_rules_report_only_when_the_kind_reports_nothing() -> None:
    budget = BY_KEY["policy/PodDisruptionBudget"]
    assert [error.field for error in validation.validate_create(budget, _map(name="a/b"))] == [
        "metadata.name"
    ]
    assert validation.validate_create(budget, _map(name="A_b")) == []


def test_the_status_of_a_budget_is_believed() -> None:
    bad = {**_map(), "status": {"currentHealthy": -1}}
    assert (
        validation.validate_update(BY_KEY["policy/PodDisruptionBudget"], bad, _map(), "status")
        == []
    )
    assert len(validation.validate_update(BY_KEY["policy/PodDisruptionBudget"], bad, _map())) == 1
