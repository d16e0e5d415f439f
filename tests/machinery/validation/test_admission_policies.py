"""Which policies and bindings are accepted, with the texts of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from transom.machinery.releases import Release
from transom.machinery.validation.admission_policies import VALIDATORS
from transom.machinery.validation.match_conditions import validate_match_conditions

NEW = Release(1, 36)
GROUP = "admissionregistration.k8s.io"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
MATCH = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "resourceRules": [RULE],
}


def problems(kind: str, spec: dict[str, Any], release: Release = NEW) -> list[str]:
    obj = {"metadata": {"name": "p"}, "spec": spec}
    found = VALIDATORS[f"{GROUP}/{kind}"].create(release, obj)
    return [f"{e.field}: {e.body()}" for e in found]


def policy(**spec: Any) -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": MATCH,
        "validations": [{"expression": "true"}],
        **spec,
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (policy(), []),
        (policy(failurePolicy=None), ["spec.failurePolicy: Required value"]),
        (
            policy(paramKind={"apiVersion": "a/b/c", "kind": ""}),
            [
                'spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion '
                "string: a/b/c",
                "spec.paramKind.kind: Required value",
            ],
        ),
        (
            policy(variables=[{"name": "for", "expression": "1"}]),
            ['spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier'],
        ),
        (
            policy(validations=[], auditAnnotations=[]),
            [
                "spec.validations: Required value: validations or auditAnnotations must contain at "
                "least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must "
                "contain at least one item",
            ],
        ),
        (
            policy(validations=[{"expression": "object.x", "message": " "}]),
            [
                'spec.validations[0].expression: Invalid value: "object.x": must evaluate to bool '
                "but got dyn",
                'spec.validations[0].message: Invalid value: " ": must be non-empty if specified',
            ],
        ),
        (
            policy(auditAnnotations=[{"key": "a", "valueExpression": "1"}] * 2),
            [
                'spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to '
                "one of [string null_type] but got int",
                'spec.auditAnnotations[1].valueExpression: Invalid value: "1": must evaluate to '
                "one of [string null_type] but got int",
                'spec.auditAnnotations[1].key: Duplicate value: "a"',
            ],
        ),
        (
            policy(
                matchConstraints={**MATCH, "resourceRules": [{**RULE, "resourceNames": ["a", "a"]}]}
            ),
            ['spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"'],
        ),
    ],
)
def test_a_validating_policy_is_checked(spec: dict[str, Any], expected: list[str]) -> None:
    assert problems("ValidatingAdmissionPolicy", spec) == expected


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        ({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}, []),
        (
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "object"}},
            [
                'spec.mutations[0].applyConfiguration.expression: Invalid value: "object": must '
                "evaluate to Object but got dyn"
            ],
        ),
        ({"patchType": ""}, ["spec.mutations[0].patchType: Required value"]),
    ],
)
def test_a_mutating_policy_is_checked(mutation: dict[str, Any], expected: list[str]) -> None:
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": MATCH,
        "reinvocationPolicy": "Never",
        "mutations": [mutation],
    }
    assert problems("MutatingAdmissionPolicy", spec) == expected


def test_a_mutating_policy_cannot_match_deletes() -> None:
    match = {**MATCH, "resourceRules": [{**RULE, "operations": ["DELETE"]}]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": match,
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
        ],
    }
    assert problems("MutatingAdmissionPolicy", spec) == [
        'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported '
        'values: "*", "CONNECT", "CREATE", "UPDATE"'
    ]


def test_new_expressions_may_use_the_libraries_of_the_release_before() -> None:
    condition = [{"name": "a", "expression": "semver('1.2.3').major() == 1"}]

    def accepted(release: Release, stored: bool = False) -> bool:
        texts = {condition[0]["expression"]} if stored else ()
        return not validate_match_conditions(release, condition, "c", stored=texts)

    assert not accepted(Release(1, 32))
    assert not accepted(Release(1, 33))
    assert accepted(Release(1, 33), stored=True)
    assert accepted(Release(1, 34))
