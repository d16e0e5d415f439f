"""AuthorizationConfiguration: defaults, and errors as in Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.authorization_config import load_authorization_config
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet

NEWEST = FeatureSet(parse_release("1.36"))
RBAC = {"type": "RBAC", "name": "rbac"}


def load(authorizers: Any, features: FeatureSet = NEWEST, version: str = "v1") -> Any:
    content = {
        "apiVersion": f"apiserver.config.k8s.io/{version}",
        "kind": "AuthorizationConfiguration",
        "authorizers": authorizers,
    }
    return load_authorization_config(yaml.safe_dump(content).encode(), features)


def webhook(**changes: Any) -> dict[str, Any]:
    given = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "InClusterConfig"},
        **changes,
    }
    return {"type": "Webhook", "name": "w", "webhook": given}


def test_defaults(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("")
    connection = {"type": "KubeConfigFile", "kubeConfigFile": str(file)}
    (one, two) = load([webhook(connectionInfo=connection), RBAC])
    assert (one.webhook.authorized_ttl, one.webhook.unauthorized_ttl) == (300, 30)
    assert (one.webhook.timeout, one.webhook.denies_on_failure) == (3, True)
    assert (one.webhook.kubeconfig, two.type) == (str(file), "RBAC")
    (one,) = load([webhook(cacheAuthorizedRequests=False, unauthorizedTTL="1m")])
    assert (one.webhook.authorized_ttl, one.webhook.unauthorized_ttl) == (0, 60)


@pytest.mark.parametrize(
    ("authorizers", "text"),
    [
        ([], "authorizers: Required value: at least one authorization mode must be defined"),
        ([{}], "authorizers[0].type: Required value"),
        (
            [{"type": "Foo", "name": "foo"}],
            'authorizers[0].type: Unsupported value: "Foo": supported values: "AlwaysAllow", '
            '"AlwaysDeny", "Node", "RBAC", "Webhook"',
        ),
        ([RBAC, RBAC], 'authorizers[1].type: Duplicate value: "RBAC"'),
        ([{"type": "RBAC"}], "authorizers[0].name: Required value"),
        (
            [{"type": "RBAC", "name": "x"}],
            "expected name rbac for authorizer RBAC instead of x",
        ),
        (
            [{**RBAC, "webhook": {}}],
            'authorizers[0].webhook: Invalid value: "non-null": may only be specified when '
            "type=Webhook",
        ),
        (
            [{"type": "Webhook", "name": "w"}],
            "authorizers[0].webhook: Required value: required when type=Webhook",
        ),
        (
            [webhook(timeout="31s")],
            'authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s',
        ),
        ([webhook(authorizedTTL="-1s")], '"-1s": must be > 0s'),
        (
            [webhook(failurePolicy="Foo")],
            'authorizers[0].failurePolicy: Unsupported value: "Foo"',
        ),
        (
            [webhook(connectionInfo={"type": "KubeConfigFile", "kubeConfigFile": "a"})],
            'authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "a": must be an '
            "absolute path",
        ),
        (
            [webhook(connectionInfo={"type": "KubeConfigFile", "kubeConfigFile": "/none"})],
            "error loading file: stat /none: no such file or directory",
        ),
        (
            [webhook(matchConditions=[{"expression": "true"}])],
            "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if "
            "match conditions are specified",
        ),
        (
            [
                webhook(
                    matchConditionSubjectAccessReviewVersion="v1",
                    matchConditions=[{"expression": "request.user"}, {"expression": "x"}],
                )
            ],
            '[authorizers[0].matchConditions[0].expression: Invalid value: "request.user": must '
            "evaluate to bool but got string, authorizers[0].matchConditions[1].expression: "
            'Invalid value: "x": compilation failed: ERROR: <input>:1:1: undeclared reference',
        ),
        ([webhook(foo=1)], 'unknown field "authorizers[0].webhook.foo"'),
    ],
)
def test_errors(authorizers: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(authorizers)
    assert text in str(caught.value)


def test_versions_by_release() -> None:
    def accepts(release: str, version: str) -> bool:
        try:
            load([RBAC], FeatureSet(parse_release(release)), version)
        except ConfigurationError:
            return False
        return True

    assert [accepts(release, "v1beta1") for release in ("1.29", "1.30", "1.36")] == [
        False,
        True,
        True,
    ]
    assert [accepts(release, "v1") for release in ("1.31", "1.32", "1.37")] == [False, True, True]
