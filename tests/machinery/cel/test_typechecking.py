"""Warnings about expressions that do not fit the types that a policy matches."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.cel.typechecking import CheckedType, check_policy_types
from transom.machinery.kinds import GVK
from transom.machinery.releases import Release

DEPLOYMENT = CheckedType(GVK("apps", "v1", "Deployment"))
JOB = CheckedType(GVK("batch", "v1", "Job"))
CUSTOM = CheckedType(
    GVK("e.com", "v1", "Widget"),
    {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
)


def warnings(kinds: list[CheckedType], *expressions: str, **spec: Any) -> list[str]:
    policy = {"spec": {"validations": [{"expression": text} for text in expressions], **spec}}
    params = CUSTOM if "paramKind" in spec else None
    found = check_policy_types(Release(1, 36), policy, kinds, params)
    return [f"{w['fieldRef']}: {w['warning']}" for w in found]


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas > 1",
        "object.metadata.labels['a'] == 'b'",
        "object.metadata.creationTimestamp < timestamp('2020-01-01T00:00:00Z')",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('r/'))",
        "object.spec.strategy.rollingUpdate.maxSurge == 1",
        "oldObject.spec.selector.matchLabels.size() == 0",
        "request.namespace == namespaceObject.metadata.name",
    ],
)
def test_expressions_that_fit_have_no_warning(expression: str) -> None:
    assert warnings([DEPLOYMENT], expression) == []


def test_all_types_that_do_not_fit_are_named() -> None:
    text = "object.spec.replicas > 1"
    assert warnings([DEPLOYMENT, JOB], "true", text) == [
        "spec.validations[1].expression: batch/v1, Kind=Job: ERROR: <input>:1:12: undefined field "
        "'replicas'\n | object.spec.replicas > 1\n | ...........^\n"
    ]
    both = warnings([DEPLOYMENT, JOB], "object.x == 1")
    assert [line for line in both[0].split("\n") if "Kind=" in line] == [
        "spec.validations[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined "
        "field 'x'",
        "batch/v1, Kind=Job: ERROR: <input>:1:7: undefined field 'x'",
    ]


def test_custom_kinds_variables_and_params_have_types() -> None:
    kind = {"apiVersion": "e.com/v1", "kind": "Widget"}
    good = "object.spec.n > params.spec.n && object.metadata.name == variables.a"
    named = [{"name": "a", "expression": "object.metadata.name"}]
    assert warnings([CUSTOM], good, paramKind=kind, variables=named) == []
    (wrong,) = warnings([CUSTOM], "params.spec.m == 1", paramKind=kind)
    assert "undefined field 'm'" in wrong
    number = [{"name": "a", "expression": "object.spec.n"}]
    (wrong,) = warnings([CUSTOM], "variables.a == 'x'", variables=number)
    assert "found no matching overload for '_==_' applied to '(int, string)'" in wrong


def test_a_kind_without_a_schema_is_not_checked() -> None:
    assert warnings([CheckedType(GVK("e.com", "v1", "Other"))], "object.x == 1") == []
