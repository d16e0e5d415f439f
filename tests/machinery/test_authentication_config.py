"""AuthenticationConfiguration: errors are Kubernetes', with field paths."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.authentication_config import load_authentication_config
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet

NEWEST = FeatureSet(parse_release("1.36"))
ISSUER = {"url": "https://a", "audiences": ["b"]}
MAPPINGS = {"username": {"claim": "sub", "prefix": ""}}


def load(content: Any, features: FeatureSet = NEWEST, version: str = "v1") -> Any:
    head = {
        "apiVersion": f"apiserver.config.k8s.io/{version}",
        "kind": "AuthenticationConfiguration",
    }
    return load_authentication_config(
        yaml.safe_dump({**head, **content}).encode(), features, ["https://own"]
    )


def jwt(**changes: Any) -> dict[str, Any]:
    return {"jwt": [{"issuer": ISSUER, "claimMappings": MAPPINGS, **changes}]}


def issuer(**changes: Any) -> dict[str, Any]:
    return jwt(issuer={**ISSUER, **changes})


def mapped(**changes: Any) -> dict[str, Any]:
    return jwt(claimMappings={**MAPPINGS, **changes})


def test_valid_configurations() -> None:
    assert load({"jwt": []}).jwt == ()
    (one,) = load(jwt()).jwt
    assert (one.issuer, one.audiences, one.username.claim) == ("https://a", ("b",), "sub")
    email = "claims.email_verified ? claims.email : 'nobody'"
    load(jwt(claimMappings={"username": {"expression": email}}))
    assert load({"anonymous": {"enabled": True}}).anonymous.paths is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (issuer(url=""), "jwt[0].issuer.url: Required value"),
        (issuer(url="https://own"), "URL must not overlap with disallowed issuers: [https://own]"),
        (
            issuer(url="http://u:p@a?q#f"),
            '[jwt[0].issuer.url: Invalid value: "http://u:p@a?q#f": URL scheme must be https, '
            'jwt[0].issuer.url: Invalid value: "http://u:p@a?q#f": URL must not contain a '
            'username or password, jwt[0].issuer.url: Invalid value: "http://u:p@a?q#f": URL must '
            'not contain a query, jwt[0].issuer.url: Invalid value: "http://u:p@a?q#f": URL must '
            "not contain a fragment]",
        ),
        (
            issuer(discoveryURL="https://a/"),
            'jwt[0].issuer.discoveryURL: Invalid value: "https://a/": discoveryURL must be '
            "different from URL",
        ),
        (
            issuer(audiences=[]),
            "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is "
            "required",
        ),
        (issuer(audiences=["b", "b"]), 'jwt[0].issuer.audiences[1]: Duplicate value: "b"'),
        (
            issuer(audiences=["b", "c"]),
            'jwt[0].issuer.audienceMatchPolicy: Invalid value: "": audienceMatchPolicy must be '
            "MatchAny for multiple audiences",
        ),
        (
            issuer(certificateAuthority="x"),
            'jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data does not '
            "contain any valid RSA or ECDSA certificates",
        ),
        (
            jwt(claimMappings={}),
            "jwt[0].claimMappings.username: Required value: claim or expression is required",
        ),
        (
            jwt(claimMappings={"username": {"claim": "sub"}}),
            "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim "
            "is set. It can be set to an empty string to disable prefixing",
        ),
        (
            jwt(claimMappings={"username": {"expression": "claims.email"}}),
            'jwt[0].claimMappings.username.expression: Invalid value: "claims.email": '
            "claims.email_verified must be used in",
        ),
        (
            mapped(uid={"claim": "a", "expression": "b"}),
            'jwt[0].claimMappings.uid: Invalid value: "": claim and expression can\'t both be set',
        ),
        (
            mapped(extra=[{"key": "k8s.io/a", "valueExpression": "claims.a"}]),
            'jwt[0].claimMappings.extra[0].key: Invalid value: "k8s.io/a": k8s.io, kubernetes.io '
            "and their subdomains are reserved for Kubernetes use",
        ),
        (
            mapped(extra=[{"key": "example.com/A"}]),
            '[jwt[0].claimMappings.extra[0].key: Invalid value: "example.com/A": must be '
            "lowercase, jwt[0].claimMappings.extra[0].valueExpression: Required value]",
        ),
        (
            jwt(claimValidationRules=[{"expression": "1"}]),
            'jwt[0].claimValidationRules[0].expression: Invalid value: "1": must evaluate to bool',
        ),
        (
            jwt(claimValidationRules=[{"claim": "a", "message": "m"}]),
            'jwt[0].claimValidationRules[0].message: Invalid value: "m": may not be specified '
            "when claim is set",
        ),
        (
            jwt(userValidationRules=[{"expression": "user.foo"}]),
            'jwt[0].userValidationRules[0].expression: Invalid value: "user.foo": compilation '
            "failed: ERROR: <input>:1:5: undefined field 'foo'",
        ),
        (
            {"jwt": [jwt()["jwt"][0]] * 2},
            'jwt[1].issuer.url: Duplicate value: "https://a"',
        ),
        (
            {"anonymous": {"enabled": False, "conditions": [{"path": "/livez"}]}},
            "enabled should be set to true when conditions are defined",
        ),
        (
            jwt(foo=1, issuer={**ISSUER, "bar": 2}),
            'strict decoding error: unknown field "jwt[0].foo", unknown field "jwt[0].issuer.bar"',
        ),
        ({"jwt": "x"}, "json: cannot unmarshal string into Go struct field jwt of type []struct"),
    ],
)
def test_errors(content: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(content)
    assert text in str(caught.value)


def test_versions_and_gates_by_release() -> None:
    def accepts(release: str, version: str, **gates: bool) -> bool:
        try:
            load(jwt(), FeatureSet(parse_release(release), gates), version)
        except ConfigurationError:
            return False
        return True

    gate = {"StructuredAuthenticationConfiguration": True}
    assert [accepts("1.29", "v1alpha1"), accepts("1.29", "v1alpha1", **gate)] == [False, True]
    assert [accepts(release, "v1beta1") for release in ("1.29", "1.30", "1.36")] == [
        False,
        True,
        True,
    ]
    assert [accepts(release, "v1") for release in ("1.33", "1.34", "1.36")] == [False, True, True]
    with pytest.raises(ConfigurationError, match="AnonymousAuthConfigurableEndpoints"):
        load({"anonymous": {"enabled": True}}, FeatureSet(parse_release("1.31")), "v1beta1")
