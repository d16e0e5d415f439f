"""Client certificates are valid from their first second to their last, on every connection."""

from __future__ import annotations

import pytest
from tests.apiserver.security.support import DEFAULT, account, run, with_token

from transom.http.messages import PeerCertificate

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def test_certificate_ends_with_its_time() -> None:
    async with run() as api:
        now = api.clock.time()
        jane = PeerCertificate("jane", ["dev"], now, now + 60)

        async def ask(**more: object) -> tuple[int, str]:
            status, answer = await api.call("POST", WHO, {}, peer=jane, **more)
            return status, answer["status"]["userInfo"]["username"] if status == 201 else answer[
                "message"
            ]

        assert await ask() == (201, "jane")
        api.clock.advance(60)
        assert await ask() == (201, "jane")
        api.clock.advance(1)
        assert await ask() == (401, "Unauthorized")
        assert (await api.call("GET", "/version", peer=jane))[0] == 401  # not anonymous
        # Another credential of the same request may still be good.
        await account(api)
        token = (await api.ok("POST", f"{DEFAULT}/serviceaccounts/robot/token", {"spec": {}}))[
            "status"
        ]["token"]
        assert await ask(headers=with_token(token)["headers"]) == (
            201,
            "system:serviceaccount:default:robot",
        )


async def test_certificate_of_tomorrow() -> None:
    async with run() as api:
        early = PeerCertificate("jane", [], api.clock.time() + 1)
        assert (await api.call("GET", "/version", peer=early))[0] == 401


async def test_the_user_has_the_hash_of_the_certificate_since_1_32() -> None:
    peer = PeerCertificate("jane", ["dev"], sha256="ab12")
    for release, extra in (
        ("1.31", None),
        ("1.32", {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab12"]}),
    ):
        async with run(release=release) as api:
            made = await api.ok("POST", WHO, {}, peer=peer)
            assert made["status"]["userInfo"].get("extra") == extra


async def test_the_subject_may_have_a_uid_since_1_33() -> None:
    gate = {"AllowParsingUserUIDFromCertAuth": False}
    peer = PeerCertificate("jane", ["dev"], uids=("1234",))
    for release, gates, uid in (
        ("1.32", {}, None),
        ("1.33", {}, "1234"),
        ("1.33", gate, None),
        ("1.36", {}, "1234"),
    ):
        async with run(release=release, feature_gates=gates) as api:
            made = await api.ok("POST", WHO, {}, peer=peer)
            assert made["status"]["userInfo"].get("uid") == uid


@pytest.mark.parametrize("uids", [("1", "2"), ("",), (None,)])
async def test_a_subject_with_an_unclear_uid_is_refused(uids: tuple[str | None, ...]) -> None:
    peer = PeerCertificate("jane", ["dev"], uids=uids)
    async with run(release="1.32") as api:
        assert (await api.call("POST", WHO, {}, peer=peer))[0] == 201
    async with run(release="1.33") as api:
        assert (await api.call("POST", WHO, {}, peer=peer))[0] == 401
