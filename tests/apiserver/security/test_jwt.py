"""Tokens of other issuers: the keys come from the issuer, the claims make the user, and the file
can change while the server runs.
"""

from __future__ import annotations

import hmac
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from tests.apiserver.harness import Api
from tests.apiserver.security.issuer import SigningKey, TokenIssuerServer, new_ca
from tests.apiserver.security.support import run

from transom.apiserver.core.access_options import AccessOptions
from transom.kit.clock import RealClock
from transom.kit.jws import SignedToken, base64url_encode
from transom.machinery.apiserver_config import ConfigurationError

CA = new_ca()
REVIEWS = "/apis/authentication.k8s.io/v1"


def claims(issuer: TokenIssuerServer, **more: Any) -> dict[str, Any]:
    return {
        "iss": issuer.url,
        "aud": "transom",
        "sub": "jane",
        "exp": int(time.time()) + 600,
        "groups": ["admins", "devs"],
        **more,
    }


def configuration(at: TokenIssuerServer, /, *, anonymous: Any = None, **jwt: Any) -> dict[str, Any]:
    given = {
        "url": at.url,
        "audiences": ["transom"],
        "certificateAuthority": CA.certificate.decode(),
        **jwt.pop("issuer", {}),
    }
    mappings = {
        "username": {"claim": "sub", "prefix": "oidc:"},
        "groups": {"claim": "groups", "prefix": "oidc:"},
    }
    made: dict[str, Any] = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": given, "claimMappings": mappings, **jwt}],
    }
    return made if anonymous is None else {**made, "anonymous": anonymous}


def server(file: Path, config: dict[str, Any], **options: Any) -> Any:
    file.write_text(yaml.safe_dump(config))
    return run(
        release="1.36",
        clock=RealClock(),
        access=AccessOptions(authentication_file=str(file)),
        **options,
    )


async def identity(api: Api, token: str) -> tuple[int, Any]:
    """The user of a request with the token."""
    return await api.call(
        "POST",
        f"{REVIEWS}/selfsubjectreviews",
        {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"},
        peer=None,
        headers={b"authorization": f"Bearer {token}".encode()},
    )


async def error_of(api: Api, token: str) -> str:
    """Why a token is rejected, as a TokenReview reports it."""
    review = await api.ok(
        "POST",
        f"{REVIEWS}/tokenreviews",
        {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"token": token},
        },
    )
    return str(review["status"].get("error", ""))


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("EC", "ES256"), ("RSA", "RS256"), ("RSA", "PS512")]
)
async def test_a_token_of_the_issuer(tmp_path: Path, kind: str, algorithm: str) -> None:
    key = SigningKey("one", kind)
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            token = key.sign(claims(issuer, jti="7"), algorithm)
            status, review = await identity(api, token)
            assert status == 201
            assert review["status"]["userInfo"] == {
                "username": "oidc:jane",
                "groups": ["oidc:admins", "oidc:devs", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7"]},
            }
            assert (await identity(api, token))[0] == 201
            # Discovery and keys are fetched once.
            assert [path for _, path, _ in issuer.requests] == [
                "/.well-known/openid-configuration",
                "/jwks",
            ]


async def test_tokens_that_are_rejected(tmp_path: Path) -> None:
    key, other = SigningKey("one"), SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        config = configuration(
            issuer,
            claimValidationRules=[
                {"claim": "hd", "requiredValue": "example.com"},
                {"expression": "claims.level > 2", "message": "level is too low"},
            ],
            userValidationRules=[
                {
                    "expression": "!user.username.startsWith('oidc:system')",
                    "message": "system users are reserved",
                }
            ],
        )
        good = claims(issuer, hd="example.com", level=3)
        async with server(tmp_path / "c.yaml", config) as api:
            assert await error_of(api, key.sign(good)) == ""
            rejected = {
                "expected audience": {"aud": "other"},
                "oidc: token is expired": {"exp": 5},
                "before the nbf": {"nbf": int(time.time()) + 3600},
                "required claim hd value does not match. Got = x, want = example.com": {"hd": "x"},
                "validation expression 'claims.level > 2' failed: level is too low": {"level": 1},
                "failed: system users are reserved": {"sub": "system:root"},
                'oidc: parse username claims "sub": json: cannot unmarshal number': {"sub": 5},
            }
            for text, change in rejected.items():
                assert text in await error_of(api, key.sign({**good, **change}))
                assert (await identity(api, key.sign({**good, **change})))[0] == 401
            assert "failed to verify id token signature" in await error_of(api, other.sign(good))
            assert "failed to verify id token signature" in await error_of(
                api, SigningKey("unknown").sign(good)
            )


@pytest.mark.parametrize("kind", ["EC", "RSA"])
async def test_forged_tokens(tmp_path: Path, kind: str) -> None:
    """Other algorithms, the public key as a secret, zero signatures, and texts that are no tokens:
    each is answered with 401.
    """
    key = SigningKey("one", kind)
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            good = claims(issuer)
            assert (await identity(api, key.sign(good)))[0] == 201
            _, body, signature = key.sign(good).split(".")
            secret = orjson.dumps(key.jwk())

            def token(header: Any, signed: bytes = b"") -> str:
                head = base64url_encode(orjson.dumps(header))
                return f"{head}.{body}.{base64url_encode(signed) if signed else signature}"

            mac = base64url_encode(orjson.dumps({"alg": "HS256", "kid": "one"})) + f".{body}"
            forged = [
                token({"alg": "none"}),
                f"{token({'alg': 'none'}).rpartition('.')[0]}.",
                token({"alg": "NONE", "kid": "one"}),
                token({"alg": "HS256"}, hmac.digest(secret, mac.encode(), "sha256")),
                *(
                    token({"alg": name, "kid": "one"}, bytes(size))
                    for name in ("ES256", "ES384", "RS256", "PS256", "EdDSA")
                    for size in (1, 64, 96, 132, 256)
                ),
                token({"alg": "ES256", "jwk": SigningKey("one").jwk()}),
                token({"alg": "ES256", "kid": "one", "crit": ["b64"], "b64": False}),
                key.sign({**good, "aud": [[["transom"]]]}),
                key.sign({**good, "exp": [1]}),
                *(
                    f"{base64url_encode(head)}.{base64url_encode(claim)}.{signature}"
                    for head in (b'{"alg":"ES256"}', b"[" * 9000)
                    for claim in (b"[" * 30000, b'{"a":' * 9000, b'{"iss":1e400,"exp":NaN}')
                ),
                ".." + "." * 60000,
            ]
            for one in forged:
                assert (await identity(api, one))[0] == 401, one[:200]


async def test_expressions_map_claims(tmp_path: Path) -> None:
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        config = configuration(
            issuer,
            issuer={"audiences": ["transom", "other"], "audienceMatchPolicy": "MatchAny"},
            claimMappings={
                "username": {"expression": "claims.sub + '@' + claims.realm"},
                "groups": {"expression": "claims.roles.map(r, 'role:' + r)"},
                "uid": {"expression": "string(claims.number)"},
                "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
            },
        )
        async with server(tmp_path / "c.yaml", config) as api:
            token = key.sign(
                claims(issuer, aud="other", realm="r", roles=["a", "b"], number=7, tenant="t")
            )
            _, review = await identity(api, token)
            assert review["status"]["userInfo"] == {
                "username": "jane@r",
                "uid": "7",
                "groups": ["role:a", "role:b", "system:authenticated"],
                "extra": {"example.com/tenant": ["t"]},
            }


async def test_new_keys_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.apiserver.authentication.key_sets._REFRESH_SECONDS", 0.0)
    key, rotated = SigningKey("one"), SigningKey("two")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201
            issuer.keys = [rotated]
            assert (await identity(api, rotated.sign(claims(issuer))))[0] == 201
            assert (await identity(api, key.sign(claims(issuer))))[0] == 401


async def test_keys_that_cannot_be_used_are_ignored(tmp_path: Path) -> None:
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        issuer.more_keys = [
            {"kty": ["EC"]},
            {"kty": "EC", "crv": {}},
            {"kty": "RSA", "n": "AQ", "e": "AQ"},
            {"kty": "RSA", "n": "_" * 16000, "e": "AQAB"},
            {"kty": "oct", "k": "c2VjcmV0"},
            "key",
        ]
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201


async def test_an_issuer_that_does_not_answer(tmp_path: Path) -> None:
    """The failure is not repeated with every request."""
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        issuer.broken = True
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            for _ in range(3):
                assert "oidc: authenticator not initialized" in await error_of(
                    api, key.sign(claims(issuer))
                )
            assert len(issuer.requests) == 1


async def test_discovery_at_another_address(tmp_path: Path) -> None:
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        config = configuration(issuer, issuer={"discoveryURL": f"{issuer.url}/elsewhere"})
        async with server(tmp_path / "c.yaml", config) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201
            assert issuer.requests[0][1] == "/elsewhere"


async def test_an_issuer_with_an_unknown_authority(tmp_path: Path) -> None:
    key = SigningKey("one")
    async with TokenIssuerServer(new_ca(), key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        async with server(tmp_path / "c.yaml", configuration(issuer)) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 401
            assert issuer.requests == []


async def test_anonymous_requests_by_path(tmp_path: Path) -> None:
    async with TokenIssuerServer(CA).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        config = configuration(
            issuer, anonymous={"enabled": True, "conditions": [{"path": "/livez"}]}
        )
        async with server(tmp_path / "c.yaml", config) as api:
            assert (await api.call("GET", "/livez", peer=None))[0] == 200
            assert (await api.call("GET", "/version", peer=None))[0] == 401


async def test_the_file_is_read_again(tmp_path: Path) -> None:
    """Invalid content is not used, and counted."""
    key, file = SigningKey("one"), tmp_path / "c.yaml"
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        async with server(file, configuration(issuer)) as api:
            token = key.sign(claims(issuer))
            (watched,) = api.server.security._files
            watched.reload(b"jwt: 5")
            assert (await identity(api, token))[1]["status"]["userInfo"]["username"] == "oidc:jane"
            changed = configuration(
                issuer, claimMappings={"username": {"claim": "sub", "prefix": "new:"}}
            )
            watched.reload(yaml.safe_dump(changed).encode())
            assert (await identity(api, token))[1]["status"]["userInfo"]["username"] == "new:jane"
            page = (await api.send("GET", "/metrics")).body.decode()
            prefix = "apiserver_authentication_config_controller_automatic_reloads_total"
            assert f'{prefix}{{status="success"}} 1' in page
            assert f'{prefix}{{status="failure"}} 1' in page


async def test_a_configuration_needs_its_release(tmp_path: Path) -> None:
    async with TokenIssuerServer(CA).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        file = tmp_path / "c.yaml"
        file.write_text(yaml.safe_dump(configuration(issuer)))
        access = AccessOptions(authentication_file=str(file))
        for release, text in (
            ("1.28", "set --feature-gates=StructuredAuthenticationConfiguration=true"),
            ("1.33", 'no kind "AuthenticationConfiguration" is registered for version'),
        ):
            with pytest.raises(ConfigurationError, match=text):
                async with run(release=release, access=access):
                    raise AssertionError("the server started")


async def test_a_token_is_parsed_once_for_all_issuers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        config = configuration(issuer)
        (own,) = config["jwt"]
        config["jwt"] = [
            *({**own, "issuer": {**own["issuer"], "url": f"{issuer.url}/{i}"}} for i in range(63)),
            own,
        ]
        async with server(tmp_path / "c.yaml", config) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201
            parsed: list[str] = []
            parse = SignedToken.parse
            monkeypatch.setattr(
                SignedToken, "parse", lambda text: parsed.append(text) or parse(text)
            )
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201
            own_parsing = len(parsed)  # of service accounts and of the issuers
            assert own_parsing <= 4
            token = key.sign({**claims(issuer), "iss": "https://other.example"})
            assert (await identity(api, token))[0] == 401


async def test_expressions_that_cost_much_are_evaluated_in_a_worker(tmp_path: Path) -> None:
    """The event loop's budget in tests is 100 ms; this expression costs the limit of Kubernetes."""
    key = SigningKey("one")
    async with TokenIssuerServer(CA, key).serving() as issuer:
        assert isinstance(issuer, TokenIssuerServer)
        rule = "user.groups.all(g, user.groups.exists(h, g == h))"
        config = configuration(
            issuer, userValidationRules=[{"expression": rule, "message": "never shown"}]
        )
        async with server(tmp_path / "c.yaml", config) as api:
            assert (await identity(api, key.sign(claims(issuer))))[0] == 201
            many = key.sign(claims(issuer, groups=[f"g{i}" for i in range(5000)]))
            assert "actual cost limit exceeded" in await error_of(api, many)
            some = key.sign(claims(issuer, groups=[f"g{i}" for i in range(150)]))
            status, review = await identity(api, some)
            assert status == 201
            assert len(review["status"]["userInfo"]["groups"]) == 151
