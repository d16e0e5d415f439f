"""The flags of kube-apiserver for authentication and authorization, as options of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.cli import console
from transom.cli.main import make_parser
from transom.cluster.access import check_access, choose_access, read_access_section
from transom.cluster.access_flags import ACCESS_FLAGS
from transom.cluster.config import ClusterConfig
from transom.kit.user_errors import UserError

ISSUER = ["oidc-issuer-url=https://issuer.example.com", "oidc-client-id=transom"]


def test_flags_are_kept_and_removed() -> None:
    config = choose_access(
        ClusterConfig(name="blue"),
        {"authorization-mode": "RBAC", "anonymous-auth": "false"},
        {"authorization-mode": "Node,RBAC"},
    )
    assert config.access_flags == ("authorization-mode=Node,RBAC", "anonymous-auth=false")
    again = choose_access(config, {}, {"anonymous-auth": ""})
    assert again.access_flags == ("authorization-mode=Node,RBAC",)


def test_the_command_line() -> None:
    words = ["--oidc-required-claim", "a=b", "--oidc-required-claim", "c=d"]
    words += ["--authentication-config", "", "--authorization-config", "authz.yaml"]
    given = console.add_up_options(make_parser("up")[0].parse_args(words)).access
    assert given == {
        "authentication-config": "",
        "authorization-config": str(Path("authz.yaml").absolute()),
        "oidc-required-claim": "a=b,c=d",
    }


def test_the_cluster_file(tmp_path: Path) -> None:
    section = {"authentication-config": "authn.yaml", "anonymous-auth": False}
    assert read_access_section(section, tmp_path) == {
        "authentication-config": str(tmp_path / "authn.yaml"),
        "anonymous-auth": "false",
    }
    with pytest.raises(UserError, match="unknown field 'etcd-servers'"):
        read_access_section({"etcd-servers": "x"}, tmp_path)


def test_the_oidc_flags_are_an_authenticator() -> None:
    access = check_access(
        [*ISSUER, "oidc-groups-claim=groups", "oidc-required-claim=a=b,c=d"], "1.20", {}
    )
    assert access.authentication is not None
    (one,) = access.authentication["jwt"]
    assert one["issuer"] == {
        "url": "https://issuer.example.com",
        "audiences": ["transom"],
        "algorithms": ["RS256"],
    }
    assert one["claimMappings"] == {
        "username": {"claim": "sub", "prefix": "https://issuer.example.com#"},
        "groups": {"claim": "groups", "prefix": ""},
    }
    assert [rule["claim"] for rule in one["claimValidationRules"]] == ["a", "c"]


@pytest.mark.parametrize(
    ("claim", "prefix", "expected"),
    [("email", "", ""), ("email", "x:", "x:"), ("sub", "-", "")],
)
def test_prefixes_of_user_names(claim: str, prefix: str, expected: str) -> None:
    flags = [*ISSUER, f"oidc-username-claim={claim}"]
    flags += [f"oidc-username-prefix={prefix}"] if prefix else []
    access = check_access(flags, "1.36", {})
    assert access.authentication is not None
    assert access.authentication["jwt"][0]["claimMappings"]["username"]["prefix"] == expected


@pytest.mark.parametrize(
    ("flags", "release", "text"),
    [
        (ISSUER[:1], "1.36", "oidc-issuer-url and oidc-client-id must be specified together"),
        (
            ["oidc-issuer-url=http://a", "oidc-client-id=b"],
            "1.36",
            'jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https',
        ),
        (
            [*ISSUER, "authentication-config=x"],
            "1.36",
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            ["authorization-config=x", "authorization-mode=RBAC"],
            "1.36",
            "--authorization-config can not be specified when --authorization-mode or",
        ),
        (["authorization-mode=Webhook"], "1.36", "authorization config file not passed"),
        (["authentication-config=/none"], "1.36", "open /none: no such file or directory"),
    ],
)
def test_flags_that_are_rejected(flags: list[str], release: str, text: str) -> None:
    with pytest.raises(UserError) as caught:
        check_access(flags, release, {})
    assert text in caught.value.message


def test_files_need_their_release(tmp_path: Path) -> None:
    file = tmp_path / "authz.yaml"
    file.write_text(
        "{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, "
        "authorizers: [{type: RBAC, name: rbac}]}"
    )
    flags = [f"authorization-config={file}"]
    assert check_access(flags, "1.32", {}).authorization_file == str(file)
    with pytest.raises(UserError, match="is registered for version"):
        check_access(flags, "1.31", {})
    with pytest.raises(UserError, match="StructuredAuthorizationConfiguration feature gate"):
        check_access(flags, "1.20", {})


def test_every_flag_has_an_option() -> None:
    text = make_parser("up")[0].parse_args([])
    for name in ACCESS_FLAGS:
        assert vars(text)["access_" + name.replace("-", "_")] is None
