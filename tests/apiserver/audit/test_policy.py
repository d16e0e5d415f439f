"""How much of a request is recorded, and which policy files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transom.apiserver.audit import policy
from transom.apiserver.audit.policy import (
    METADATA,
    NONE,
    REQUEST,
    REQUEST_RESPONSE,
    AuditPolicyError,
)
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import parse_request_info

JANE = UserInfo("jane", ("dev", "system:authenticated"))


def made(*rules: dict[str, Any], **more: Any) -> policy.AuditPolicy:
    return policy.parse_audit_policy(
        {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}
    )


def level(rule: dict[str, Any], method: str, path: str, watch: bool = False) -> int:
    return (
        made({"level": "RequestResponse", **rule})
        .evaluate(JANE, parse_request_info(method, path, watch))
        .level
    )


POD, PODS = "/api/v1/namespaces/a/pods/x", "/api/v1/namespaces/a/pods"


@pytest.mark.parametrize(
    ("rule", "method", "path", "matches"),
    [
        ({}, "GET", PODS, True),
        ({}, "GET", "/version", True),
        ({"users": ["jane"]}, "GET", PODS, True),
        ({"users": ["joe"]}, "GET", PODS, False),
        ({"userGroups": ["ops", "dev"]}, "GET", PODS, True),
        ({"userGroups": ["ops"]}, "GET", PODS, False),
        ({"verbs": ["list"]}, "GET", PODS, True),
        ({"verbs": ["get"]}, "GET", PODS, False),
        ({"namespaces": ["a"]}, "GET", PODS, True),
        ({"namespaces": ["b"]}, "GET", PODS, False),
        ({"namespaces": [""]}, "GET", "/api/v1/nodes", True),
        ({"namespaces": [""]}, "GET", "/version", False),
        ({"resources": [{"group": "", "resources": ["pods"]}]}, "GET", POD, True),
        ({"resources": [{"group": "", "resources": ["pods"]}]}, "GET", POD + "/log", False),
        ({"resources": [{"group": "", "resources": ["pods/log"]}]}, "GET", POD + "/log", True),
        ({"resources": [{"group": "", "resources": ["pods/*"]}]}, "GET", POD + "/log", True),
        (
            {"resources": [{"group": "", "resources": ["pods/*"]}]},
            "GET",
            POD,
            True,
        ),  # as Kubernetes reads it
        ({"resources": [{"group": "", "resources": ["*/log"]}]}, "GET", POD + "/log", True),
        ({"resources": [{"group": "", "resources": ["*/log"]}]}, "GET", POD, False),
        ({"resources": [{"group": "", "resources": ["*"]}]}, "GET", POD + "/log", True),
        ({"resources": [{"group": "apps"}]}, "GET", POD, False),
        ({"resources": [{}]}, "GET", POD, True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}, "GET", POD, True),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["y"]}]}, "GET", POD, False),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["x"]}]}, "GET", PODS, False),
        ({"nonResourceURLs": ["/healthz*"]}, "GET", "/healthz/ping", True),
        ({"nonResourceURLs": ["/healthz"]}, "GET", "/healthz/ping", False),
        ({"nonResourceURLs": ["*"]}, "GET", "/version", True),
        ({"nonResourceURLs": ["*"]}, "GET", PODS, False),
    ],
)
def test_rules(rule: dict[str, Any], method: str, path: str, matches: bool) -> None:
    assert (level(rule, method, path) != NONE) is matches


def test_the_first_rule_that_matches_decides_and_stages_add_up() -> None:
    first = {"level": "None", "verbs": ["get"], "omitStages": ["Panic"]}
    both = made(first, {"level": "Request"}, omitStages=["RequestReceived"])
    assert both.evaluate(JANE, parse_request_info("GET", POD)) == (
        NONE,
        {"Panic", "RequestReceived"},
        False,
    )
    assert both.evaluate(JANE, parse_request_info("GET", PODS)) == (
        REQUEST,
        {"RequestReceived"},
        False,
    )
    assert (
        made({"level": "Request", "verbs": ["get"]})
        .evaluate(JANE, parse_request_info("GET", PODS))
        .level
        == NONE
    )


SECRET = "/api/v1/namespaces/a/secrets/x"


@pytest.mark.parametrize(
    ("rule", "path", "expected"),
    [
        ({}, SECRET, METADATA),
        ({"resources": [{"group": ""}]}, SECRET, METADATA),
        ({"resources": [{"group": "", "resources": ["*"]}]}, SECRET, METADATA),
        (
            {
                "resources": [
                    {"group": "", "resources": ["configmaps"]},
                    {"group": "", "resources": ["secrets"]},
                ]
            },
            SECRET,
            REQUEST_RESPONSE,
        ),
        ({}, "/api/v1/namespaces/a/configmaps/x", REQUEST_RESPONSE),
        (
            {"resources": [{"group": "authentication.k8s.io", "resources": ["tokenreviews"]}]},
            "/apis/authentication.k8s.io/v1/tokenreviews",
            METADATA,
        ),
        (
            {"resources": [{"group": "", "resources": ["serviceaccounts/token"]}]},
            "/api/v1/namespaces/a/serviceaccounts/x/token",
            METADATA,
        ),
    ],
)
def test_bodies_of_secrets_are_recorded_only_on_request_and_tokens_never(
    rule: dict[str, Any], path: str, expected: int
) -> None:
    assert level(rule, "POST", path) == expected


def test_managed_fields_are_left_out_where_the_policy_says_so() -> None:
    first = {"level": "Request", "verbs": ["get"], "omitManagedFields": False}
    both = made(first, {"level": "Request"}, omitManagedFields=True)
    assert not both.evaluate(JANE, parse_request_info("GET", POD)).omit_managed_fields
    assert both.evaluate(JANE, parse_request_info("GET", PODS)).omit_managed_fields


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "apiVersion audit.k8s.io/v1 and kind Policy"),
        ([], "apiVersion audit.k8s.io/v1 and kind Policy"),
        ({"rules": []}, "loaded illegal policy with 0 rules"),
        ({"rules": [{}]}, "rules[0].level: Required value"),
        (
            {"rules": [{"level": "All"}]},
            'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", '
            '"Request", "RequestResponse"',
        ),
        (
            {"rules": [{"level": "None", "omitStages": ["x"]}]},
            (
                'rules[0].omitStages[0]: Invalid value: "x": allowed stages are '
                "RequestReceived,ResponseStarted,ResponseComplete,Panic"
            ),
        ),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["a"]}]},
            "non-resource URL rules must begin with a '/' character",
        ),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["/a*b"]}]},
            "must be the final character of the rule",
        ),
        (
            {"rules": [{"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["x"]}]},
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            {"rules": [{"level": "None", "resources": [{"group": "a/v1"}]}]},
            'rules[0].resources.group: Invalid value: "a/v1"',
        ),
        (
            {"rules": [{"level": "None", "resources": [{"resourceNames": ["a"]}]}]},
            "using resourceNames requires at least one resource",
        ),
        ({"rules": [{"level": "None", "verb": ["get"]}]}, "unknown field 'verb' in rules[0]"),
        (
            {"rules": [{"level": "None", "verbs": "get"}]},
            "rules[0].verbs must be a list of strings",
        ),
        ({"rules": ["x"]}, "rules must be a list of objects"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(content: Any, text: str) -> None:
    if isinstance(content, dict) and content:
        content = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **content}
    with pytest.raises(AuditPolicyError) as refused:
        policy.parse_audit_policy(content)
    assert text in str(refused.value)


def test_the_file_is_named_in_errors(tmp_path: Path) -> None:
    for text in ("a: [", "kind: Policy"):
        (tmp_path / "p.yaml").write_text(text)
        with pytest.raises(AuditPolicyError, match=str(tmp_path / "p.yaml")):
            policy.load_audit_policy(tmp_path / "p.yaml")
    with pytest.raises(AuditPolicyError, match="No such file"):
        policy.load_audit_policy(tmp_path / "none.yaml")
