"""Tokens of service accounts and of bootstrapping nodes: their users, and everything that
invalidates them.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from tests.apiserver.harness import Api
from tests.apiserver.security.support import DEFAULT, account, message, private_key, run, with_token

from transom.kit.jws import PublicKey, SignedToken, TokenSigner, base64url_decode, base64url_encode
from transom.machinery import serviceaccounts

ISSUER = serviceaccounts.DEFAULT_ISSUER
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NAME = "system:serviceaccount:default:robot"


async def request(api: Api, name: str = "robot", **spec: Any) -> str:
    answer = await api.ok("POST", f"{DEFAULT}/serviceaccounts/{name}/token", {"spec": spec})
    token: str = answer["status"]["token"]
    return token


async def review(api: Api, token: str, *audiences: str) -> dict[str, Any]:
    spec = {"token": token, "audiences": list(audiences)}
    status: dict[str, Any] = (await api.ok("POST", REVIEW, {"spec": spec}))["status"]
    return status


async def pod(api: Api, name: str = "p", **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = await api.ok(
        "POST",
        f"{DEFAULT}/pods",
        {
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "serviceAccountName": "robot",
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        },
    )
    return made


async def test_a_token_authenticates_its_account_until_it_expires() -> None:
    async with run() as api:
        made = await account(api)
        token = await request(api, expirationSeconds=600)
        who = (await api.ok("POST", WHO, {}, **with_token(token)))["status"]["userInfo"]
        assert who == {
            "username": NAME,
            "uid": made["metadata"]["uid"],
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ],
        }
        api.clock.advance(600 + 59)
        await api.ok("POST", WHO, {}, **with_token(token))
        api.clock.advance(2)
        assert await message(api, 401, "POST", WHO, {}, **with_token(token)) == "Unauthorized"
        assert await review(api, token) == {
            "error": "[invalid bearer token, Token has expired.]",
            "user": {},
        }


async def test_claims_are_those_of_kubernetes() -> None:
    async with run() as api:
        robot = await account(api)
        made = await pod(api)
        token = await request(
            api,
            boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"},
            audiences=["vault"],
        )
        parsed = SignedToken.parse(token)
        assert parsed is not None and parsed.algorithm == "ES256"
        now = int(api.clock.time())
        assert parsed.claims == {
            "iss": ISSUER,
            "sub": NAME,
            "aud": ["vault"],
            "iat": now,
            "nbf": now,
            "exp": now + 3600,
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {"name": "robot", "uid": robot["metadata"]["uid"]},
                "pod": {"name": "p", "uid": made["metadata"]["uid"]},
            },
        }
        key = TokenSigner(private_key()).public
        key.verify("ES256", parsed.signed, parsed.signature)
        assert (await api.ok("GET", "/openid/v1/jwks"))["keys"] == [key.jwk()]
        found = await api.ok("GET", "/.well-known/openid-configuration")
        assert found["issuer"] == ISSUER and found["id_token_signing_alg_values_supported"] == [
            "ES256"
        ]


async def test_a_token_for_another_audience_is_nothing_here() -> None:
    async with run() as api:
        await account(api)
        token = await request(api, audiences=["vault", "db"])
        await message(api, 401, "GET", "/api", **with_token(token))
        assert (await review(api, token))["error"] == (
            '[invalid bearer token, token audiences ["vault" "db"] is invalid for the target '
            "audiences "
            f'["{ISSUER}"]]'
        )
        meant = await review(api, token, "db", "x")
        assert (
            meant["authenticated"]
            and meant["audiences"] == ["db"]
            and meant["user"]["username"] == NAME
        )


async def _delete_account(api: Api) -> None:
    await api.ok("DELETE", f"{DEFAULT}/serviceaccounts/robot")


async def _replace_account(api: Api) -> None:
    await _delete_account(api)
    await account(api)


async def _delete_pod(api: Api) -> None:
    await api.ok("DELETE", f"{DEFAULT}/pods/p")


async def _replace_pod(api: Api) -> None:
    await _delete_pod(api)
    await pod(api)


async def _delete_secret(api: Api) -> None:
    await api.ok("DELETE", f"{DEFAULT}/secrets/s")


@pytest.mark.parametrize(
    ("bound_to", "end", "why"),
    [
        ("", _delete_account, 'serviceaccounts "robot" not found'),
        ("", _replace_account, "ServiceAccount UID ("),
        ("Pod", _delete_pod, "Token has been invalidated"),
        ("Pod", _replace_pod, "Pod UID ("),
        ("Pod", _delete_account, 'serviceaccounts "robot" not found'),
        ("Secret", _delete_secret, "Token has been invalidated"),
    ],
)
async def test_a_token_ends_at_once_with_what_it_is_bound_to(
    bound_to: str, end: Callable[[Api], Awaitable[None]], why: str
) -> None:
    async with run() as api:
        await account(api)
        await pod(api)
        await api.ok("POST", f"{DEFAULT}/secrets", {"metadata": {"name": "s"}})
        reference = (
            {"kind": bound_to, "apiVersion": "v1", "name": bound_to[0].lower()}
            if bound_to
            else None
        )
        token = await request(api, **({"boundObjectRef": reference} if reference else {}))
        await api.ok("POST", WHO, {}, **with_token(token))  # it is known and cached now
        await end(api)
        await message(api, 401, "POST", WHO, {}, **with_token(token))
        assert (await review(api, token))["error"].startswith(f"[invalid bearer token, {why}")


async def test_a_pod_on_its_way_out_keeps_its_token_until_it_is_gone() -> None:
    async with run() as api:
        await account(api)
        await pod(api, nodeName="n", terminationGracePeriodSeconds=30)
        token = await request(api, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
        await api.ok("DELETE", f"{DEFAULT}/pods/p")
        extra = (await api.ok("POST", WHO, {}, **with_token(token)))["status"]["userInfo"]["extra"]
        assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
        await api.ok("DELETE", f"{DEFAULT}/pods/p?gracePeriodSeconds=0")
        await message(api, 401, "POST", WHO, {}, **with_token(token))


def claims(api: Api, robot: dict[str, Any], **changes: Any) -> dict[str, Any]:
    good = serviceaccounts.bound_claims(ISSUER, robot, [ISSUER], api.clock.time(), 3600)
    return {k: v for k, v in {**good, **changes}.items() if v is not None}


_PRIMITIVE = "square/go-jose: error in cryptographic primitive"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda api, robot: TokenSigner(private_key("other")).sign(claims(api, robot)), _PRIMITIVE),
        (
            lambda api, robot: TokenSigner(private_key("rsa", "rsa")).sign(claims(api, robot)),
            "square/go-jose: unknown/unsupported algorithm",
        ),
        (
            lambda api, robot: _tampered(TokenSigner(private_key()).sign(claims(api, robot))),
            _PRIMITIVE,
        ),
        (
            lambda api, robot: _unsigned(claims(api, robot)),
            "square/go-jose: unknown/unsupported algorithm",
        ),
        (
            lambda api, robot: TokenSigner(private_key()).sign(
                claims(api, robot, iss="https://else.where")
            ),
            "",
        ),
        (
            lambda api, robot: TokenSigner(private_key()).sign(
                claims(api, robot, nbf=api.clock.time() + 120)
            ),
            "Token could not be validated.",
        ),
        (
            lambda api, robot: TokenSigner(private_key()).sign(
                claims(api, robot, iat=api.clock.time() + 120)
            ),
            "Token could not be validated.",
        ),
        (
            lambda api, robot: TokenSigner(private_key()).sign(claims(api, robot, exp="soon")),
            "Token could not be validated.",
        ),
        (
            lambda api, robot: TokenSigner(private_key()).sign(
                claims(api, robot, iss=serviceaccounts.LEGACY_ISSUER)
            ),
            "namespace claim is missing",
        ),
        (lambda api, robot: "a.b.c", ""),
        (lambda api, robot: "nonsense", ""),
    ],
)
@pytest.mark.loop_budget(None)  # it makes an RSA key
async def test_forged_and_spoilt_tokens(spoil: Callable[[Api, Any], str], why: str) -> None:
    async with run() as api:
        token = spoil(api, await account(api))
        await message(api, 401, "GET", "/api", **with_token(token))
        problem = f"[invalid bearer token, {why}]" if why else "invalid bearer token"
        assert await review(api, token) == {"error": problem, "user": {}}


def _tampered(token: str) -> str:
    """The same token for another account."""
    head, payload, signature = token.split(".")
    return f"{head}.{base64url_encode(base64url_decode(payload).replace(b'robot', b'admin'))}.{signature}"


def _unsigned(content: dict[str, Any]) -> str:
    return f"{base64url_encode(orjson.dumps({'alg': 'none'}))}.{base64url_encode(orjson.dumps(content))}."


async def test_legacy_tokens_live_in_their_secret() -> None:
    async with run() as api:
        robot = await account(api)
        secret = await api.ok(
            "POST",
            f"{DEFAULT}/secrets",
            {
                "metadata": {
                    "name": "robot-token",
                    "annotations": {"kubernetes.io/service-account.name": "robot"},
                },
                "type": serviceaccounts.TOKEN_SECRET,
            },
        )
        token = api.server.security.issuer.legacy(robot, secret)
        assert (await review(api, token))[
            "error"
        ] == "[invalid bearer token, Token does not match server's copy]"
        patch = {"data": {"token": base64.b64encode(token.encode()).decode()}}
        await api.ok(
            "PATCH", f"{DEFAULT}/secrets/robot-token", patch, media="application/merge-patch+json"
        )
        good = await review(api, token)
        assert good["user"]["username"] == NAME and good["audiences"] == [ISSUER]
        assert (await review(api, token, "vault"))["error"] == (
            f'[invalid bearer token, token audiences ["{ISSUER}"] is invalid for the target '
            'audiences ["vault"]]'
        )
        await api.ok("DELETE", f"{DEFAULT}/secrets/robot-token")
        assert (await review(api, token))[
            "error"
        ] == "[invalid bearer token, Token has been invalidated]"


@pytest.fixture
def old_key() -> bytes:
    """Generated before the event loop runs: it takes long."""
    return private_key("old", "rsa")


async def test_tokens_of_an_older_key_are_still_believed(old_key: bytes) -> None:
    loaded: Any = serialization.load_pem_private_key(old_key, None)
    pem = loaded.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert PublicKey.load(pem).algorithm == "RS256"
    async with run(service_account_keys=[pem]) as api:
        robot = await account(api)
        old = TokenSigner(old_key)
        assert (await review(api, old.sign(claims(api, robot))))["authenticated"]
        keys = (await api.ok("GET", "/openid/v1/jwks"))["keys"]
        assert [key["alg"] for key in keys] == ["ES256", "RS256"]


def bootstrap_secret(**data: str) -> dict[str, Any]:
    content = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        **{k.replace("_", "-"): v for k, v in data.items()},
    }
    return {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in content.items() if v},
    }


@pytest.mark.parametrize(
    ("data", "token", "groups"),
    [
        ({}, "abcdef.0123456789abcdef", ["system:bootstrappers", "system:authenticated"]),
        (
            {"auth_extra_groups": "system:bootstrappers:b,system:bootstrappers:a"},
            "abcdef.0123456789abcdef",
            [
                "system:bootstrappers",
                "system:bootstrappers:a",
                "system:bootstrappers:b",
                "system:authenticated",
            ],
        ),
        (
            {"expiration": "2020-01-02T03:04:06Z"},
            "abcdef.0123456789abcdef",
            ["system:bootstrappers", "system:authenticated"],
        ),
        ({"expiration": "2020-01-02T03:04:05Z"}, "abcdef.0123456789abcdef", None),
        ({"expiration": "tomorrow"}, "abcdef.0123456789abcdef", None),
        ({"auth_extra_groups": "system:masters"}, "abcdef.0123456789abcdef", None),
        ({"usage_bootstrap_authentication": ""}, "abcdef.0123456789abcdef", None),
        ({"token_id": "zzzzzz"}, "abcdef.0123456789abcdef", None),
        ({}, "abcdef.0123456789abcdee", None),
        ({}, "abcdef.0123456789abcdef\n", None),
    ],
)
async def test_bootstrap_tokens(data: dict[str, str], token: str, groups: list[str] | None) -> None:
    async with run() as api:
        await api.ok("POST", "/api/v1/namespaces/kube-system/secrets", bootstrap_secret(**data))
        status = await review(api, token)
        if groups is None:
            assert status == {"error": "invalid bearer token", "user": {}}
        else:
            assert status["user"] == {"username": "system:bootstrap:abcdef", "groups": groups}
            assert (await review(api, token, "elsewhere"))["error"] == "invalid bearer token"


async def test_a_token_in_the_protocols_of_a_web_socket() -> None:
    async with run() as api:
        await account(api)
        token = await request(api)
        offered = f"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.{base64url_encode(token.encode())}"
        headers = {b"upgrade": b"websocket", b"sec-websocket-protocol": offered.encode()}
        text = await message(api, 403, "GET", f"{DEFAULT}/pods/x/exec", peer=None, headers=headers)
        assert f'User "{NAME}"' in text


@pytest.mark.parametrize(
    ("release", "gates", "warned"),
    [
        ("1.24", {}, False),
        ("1.26", {}, False),
        ("1.26", {"LegacyServiceAccountTokenTracking": True}, True),
        ("1.27", {}, True),
        ("1.36", {}, True),
    ],
)
async def test_a_generated_legacy_token_causes_a_warning(
    release: str, gates: dict[str, bool], warned: bool
) -> None:
    text = (
        "Use tokens from the TokenRequest API or manually created secret-based tokens instead of "
        "auto-generated secret-based tokens."
    )
    header = (b"Warning", f'299 - "{text}"'.encode())
    async with run(release=release, feature_gates=gates) as api:
        robot = await account(api)
        tokens = {}
        for name in ("robot-token-x7k2p", "by-hand"):
            meta = {"name": name, "annotations": {"kubernetes.io/service-account.name": "robot"}}
            body = {"metadata": meta, "type": serviceaccounts.TOKEN_SECRET}
            secret = await api.ok("POST", f"{DEFAULT}/secrets", body)
            token = tokens[name] = api.server.security.issuer.legacy(robot, secret)
            patch = {"data": {"token": base64.b64encode(token.encode()).decode()}}
            path = f"{DEFAULT}/secrets/{name}"
            await api.ok("PATCH", path, patch, media="application/merge-patch+json")
        await api.ok(
            "PATCH",
            f"{DEFAULT}/serviceaccounts/robot",
            {"secrets": [{"name": "robot-token-x7k2p"}]},
            media="application/merge-patch+json",
        )
        for target, status in (("/version", 200), (f"{DEFAULT}/pods", 403)):
            answer = await api.send("GET", target, **with_token(tokens["robot-token-x7k2p"]))
            assert (answer.status, header in answer.headers) == (status, warned)
            answer = await api.send("GET", target, **with_token(tokens["by-hand"]))
            assert (answer.status, header in answer.headers) == (status, False)
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
        spec = {"spec": {"token": tokens["robot-token-x7k2p"]}}
        answer = await api.send("POST", reviews, spec)
        assert (answer.status, header in answer.headers) == (201, warned)


async def test_a_space_before_the_token_causes_a_warning_since_1_25() -> None:
    text = (
        "the provided Authorization header contains extra space before the bearer token, "
        "and is ignored"
    )
    header = (b"Warning", f'299 - "{text}"'.encode())
    for release, warned in (("1.20", False), ("1.24", False), ("1.25", True)):
        async with run(release=release) as api:
            for value, expected in ((b"Bearer  abc", warned), (b"Bearer ", False)):
                headers = {b"authorization": value}
                answer = await api.send("GET", "/version", peer=None, headers=headers)
                assert (answer.status, header in answer.headers) == (200, expected)


async def test_the_use_of_a_legacy_token_is_recorded_and_invalid_ones_are_rejected() -> None:
    async with run(release="1.36") as api:
        robot = await account(api)
        meta = {
            "name": "robot-token",
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        }
        body = {"metadata": meta, "type": serviceaccounts.TOKEN_SECRET}
        path = f"{DEFAULT}/secrets/robot-token"
        secret = await api.ok("POST", f"{DEFAULT}/secrets", body)
        token = api.server.security.issuer.legacy(robot, secret)
        patch = {"data": {"token": base64.b64encode(token.encode()).decode()}}
        await api.ok("PATCH", path, patch, media="application/merge-patch+json")
        assert (await review(api, token))["user"]["username"] == NAME
        for _ in range(20):
            await asyncio.sleep(0)
        labels = (await api.ok("GET", path))["metadata"]["labels"]
        assert labels == {"kubernetes.io/legacy-token-last-used": "2020-01-02"}
        patch = {"metadata": {"labels": {serviceaccounts.INVALID_SINCE: "2020-01-02"}}}
        await api.ok("PATCH", path, patch, media="application/merge-patch+json")
        assert (await review(api, token))["error"] == (
            "[invalid bearer token, the token in secret default/robot-token for service account "
            "default/robot has been marked invalid. Use tokens from the TokenRequest API or "
            "manually created secret-based tokens, or remove the "
            "'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow "
            "use of this token]"
        )


@pytest.mark.parametrize("release", ["1.20", "1.36"])
async def test_a_token_cannot_be_bound_to_nothing(release: str) -> None:
    async with run(release=release) as api:
        await account(api)
        path = f"{DEFAULT}/serviceaccounts/robot/token"
        status, problem = await api.call("POST", path, {"spec": {"boundObjectRef": {}}})
        assert (status, problem["message"]) == (400, "cannot bind token to object of type /, Kind=")
