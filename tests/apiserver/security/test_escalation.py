"""Attempts to gain permissions through roles, bindings and impersonation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.security.support import RBAC, as_user, binding, grant, message, role, rule, run

from transom.apiserver.core.context import UserInfo

ROLES, BINDINGS = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
EVE = as_user("eve")
WRITE_ROLES = rule("create update patch get", "roles rolebindings", "rbac.authorization.k8s.io")
NOT_HELD = (
    'user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not '
    "currently held:\n"
)
MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        (rule("get list", "pods"), rule("list", "pods"), ""),
        (
            rule("get", "pods"),
            rule("get delete", "pods secrets"),
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}',
        ),
        (
            rule("get", "pods"),
            rule("*", "pods"),
            '{APIGroups:[""], Resources:["pods"], Verbs:["*"]}',
        ),
        (rule("*", "*", "*"), rule("*", "*", "*"), ""),
        (rule("get", "pods", names="a"), rule("get", "pods", names="a"), ""),
        (
            rule("get", "pods", names="a"),
            rule("get", "pods"),
            '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}',
        ),
        (
            rule("get", "pods", names="a"),
            rule("get", "pods", names="a b"),
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}',
        ),
        (rule("get", "*/scale", "apps"), rule("get", "deployments/scale", "apps"), ""),
        (
            rule("get", "deployments", "apps"),
            rule("get", "deployments/scale", "apps"),
            '{APIGroups:["apps"], Resources:["deployments/scale"], Verbs:["get"]}',
        ),
    ],
)
async def test_a_role_may_hold_what_its_writer_holds(held: Any, wanted: Any, missing: str) -> None:
    async with run() as api:
        await grant(api, "eve", WRITE_ROLES, held)
        if not missing:
            await api.ok("POST", ROLES, role("more", wanted), **EVE)
            return
        expected = f'roles.rbac.authorization.k8s.io "more" is forbidden: {NOT_HELD}{missing}'
        assert await message(api, 403, "POST", ROLES, role("more", wanted), **EVE) == expected
        # Neither by putting it there, nor piece by piece, nor in a dry run.
        assert (
            await message(api, 403, "PUT", f"{ROLES}/more", role("more", wanted), **EVE) == expected
        )
        await api.ok("POST", ROLES, role("more"), **EVE)
        for method, media in (("PUT", "application/json"), ("PATCH", MERGE)):
            text = await message(
                api, 403, method, f"{ROLES}/more", role("more", wanted), media=media, **EVE
            )
            assert text == expected
        assert await message(api, 403, "POST", f"{ROLES}?dryRun=All", role("new", wanted), **EVE)


async def test_the_verb_escalate_lifts_the_check_by_name() -> None:
    async with run() as api:
        escalate = rule("escalate", "roles", "rbac.authorization.k8s.io", names="mine")
        await grant(api, "eve", WRITE_ROLES, escalate)
        await api.ok("POST", ROLES, role("mine"))
        await api.ok("PUT", f"{ROLES}/mine", role("mine", rule("*", "secrets")), **EVE)
        await api.ok("POST", ROLES, role("other"))
        await message(api, 403, "PUT", f"{ROLES}/other", role("other", rule("*", "secrets")), **EVE)
        # A name in the body of a POST is not a name in the URL.
        await api.ok("DELETE", f"{ROLES}/mine")
        await message(api, 403, "POST", ROLES, role("mine", rule("*", "secrets")), **EVE)


async def test_binding_needs_the_rights_or_the_verb_bind() -> None:
    async with run() as api:
        await grant(api, "eve", WRITE_ROLES)
        await api.ok("POST", ROLES, role("strong", rule("get list", "secrets")))
        refused = await message(
            api, 403, "POST", BINDINGS, binding("b", "Role", "strong", "eve"), **EVE
        )
        assert refused == (
            f'rolebindings.rbac.authorization.k8s.io "b" is forbidden: {NOT_HELD}'
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
        )
        assert await message(
            api, 404, "POST", BINDINGS, binding("b", "Role", "ghost", "eve"), **EVE
        ) == ('roles.rbac.authorization.k8s.io "ghost" not found')
        await message(
            api, 403, "POST", BINDINGS, binding("b", "ClusterRole", "cluster-admin", "eve"), **EVE
        )
        # A subject added to another user's binding is a grant too.
        await api.ok("POST", BINDINGS, binding("theirs", "Role", "strong", "bob"))
        await message(
            api,
            403,
            "PATCH",
            f"{BINDINGS}/theirs",
            binding("theirs", "Role", "strong", "eve"),
            media=MERGE,
            **EVE,
        )
        bind = rule("bind", "roles", "rbac.authorization.k8s.io", names="strong")
        await grant(api, "eve", bind, name="binder")
        await api.ok("POST", BINDINGS, binding("b", "Role", "strong", "eve"), **EVE)
        await message(
            api, 403, "POST", BINDINGS, binding("c", "ClusterRole", "cluster-admin", "eve"), **EVE
        )


async def test_changes_by_the_garbage_collector_grant_nothing() -> None:
    async with run() as api:
        await grant(api, "eve", WRITE_ROLES)
        await api.ok("POST", ROLES, role("strong", rule("get", "secrets")))
        patch = {"metadata": {"finalizers": ["example.com/keep"]}}
        await api.ok("PATCH", f"{ROLES}/strong", patch, media=MERGE, **EVE)
        await message(
            api,
            403,
            "PATCH",
            f"{ROLES}/strong",
            {"metadata": {"labels": {"a": "b"}}},
            media=MERGE,
            **EVE,
        )


async def test_aggregation_gathers_anything_so_it_needs_everything() -> None:
    async with run() as api:
        await grant(
            api, "eve", rule("create", "clusterroles", "rbac.authorization.k8s.io"), namespace=""
        )
        gather = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
        assert await message(
            api, 403, "POST", f"{RBAC}/clusterroles", role("all", aggregationRule=gather), **EVE
        ) == (
            'clusterroles.rbac.authorization.k8s.io "all" is forbidden: '
            "must have cluster-admin privileges to use the aggregationRule"
        )


async def test_impersonation_is_a_right_for_each_thing_one_wants_to_be() -> None:
    async with run(tokens={"eve-token": UserInfo("eve")}) as api:
        tokens = {b"authorization": b"Bearer eve-token"}
        pods = "/api/v1/namespaces/default/pods"

        async def refused(**headers: bytes) -> str:
            wanted = {f"impersonate-{k.replace('_', '-')}".encode(): v for k, v in headers.items()}
            return await message(api, 403, "GET", pods, peer=None, headers={**tokens, **wanted})

        assert await refused(user=b"admin") == (
            'users "admin" is forbidden: User "eve" cannot impersonate resource "users" in '
            'API group "" at the cluster scope'
        )
        assert await refused(user=b"system:serviceaccount:kube-system:robot") == (
            'serviceaccounts "robot" is forbidden: User "eve" cannot impersonate resource '
            '"serviceaccounts" in API group ""'
            ' in the namespace "kube-system"'
        )
        await grant(api, "eve", rule("impersonate", "users"), namespace="", name="imp")
        assert 'User "bob" cannot list' in await refused(user=b"bob")
        assert await refused(user=b"bob", group=b"system:masters") == (
            'groups "system:masters" is forbidden: User "eve" cannot impersonate resource '
            '"groups" in API group ""'
            " at the cluster scope"
        )
        assert await refused(user=b"bob", extra_scopes=b"all") == (
            'userextras.authentication.k8s.io "all" is forbidden: User "eve" cannot '
            "impersonate resource"
            ' "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope'
        )


@pytest.mark.parametrize("release", ["1.20", "1.21"])
async def test_a_uid_is_not_impersonated_before_1_22(release: str) -> None:
    async with run(release=release, tokens={"eve-token": UserInfo("eve")}) as api:
        await grant(api, "eve", rule("impersonate", "users"), namespace="", name="imp")
        tokens = {b"authorization": b"Bearer eve-token", b"impersonate-uid": b"7"}
        pods = "/api/v1/namespaces/default/pods"
        answer = await message(
            api, 403, "GET", pods, peer=None, headers={**tokens, b"impersonate-user": b"bob"}
        )
        assert 'User "bob" cannot list' in answer
        answer = await message(api, 403, "GET", pods, peer=None, headers=tokens)
        assert 'User "eve" cannot list' in answer


async def test_a_uid_is_impersonated_since_1_22() -> None:
    async with run(release="1.22", tokens={"eve-token": UserInfo("eve")}) as api:
        await grant(api, "eve", rule("impersonate", "users"), namespace="", name="imp")
        headers = {
            b"authorization": b"Bearer eve-token",
            b"impersonate-user": b"bob",
            b"impersonate-uid": b"7",
        }
        pods = "/api/v1/namespaces/default/pods"
        answer = await message(api, 403, "GET", pods, peer=None, headers=headers)
        assert 'uids.authentication.k8s.io "7" is forbidden' in answer
        uids = rule("impersonate", "uids", "authentication.k8s.io")
        await grant(api, "eve", uids, namespace="", name="uids")
        answer = await message(api, 403, "GET", pods, peer=None, headers=headers)
        assert 'User "bob" cannot list' in answer


async def test_impersonated_groups_keep_their_commas_and_extras_arrive() -> None:
    async with run() as api:
        target = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        more = as_user("bob", "cn=a, ou=b", "devs", **{"example.com%2fscope": "x"})
        info = (await api.ok("POST", target, {}, **more))["status"]["userInfo"]
        assert info == {
            "username": "bob",
            "groups": ["cn=a, ou=b", "devs", "system:authenticated"],
            "extra": {"example.com/scope": ["x"]},
        }
        robot = (await api.ok("POST", target, {}, **as_user("system:serviceaccount:a:b")))[
            "status"
        ]["userInfo"]
        assert robot["groups"] == [
            "system:serviceaccounts",
            "system:serviceaccounts:a",
            "system:authenticated",
        ]


async def test_a_group_without_a_user_is_refused_in_plain_text() -> None:
    async with run() as api:
        status, text = await api.call("GET", "/api?x=1", headers={b"impersonate-group": b"devs"})
        assert (status, text) == (
            500,
            'Internal Server Error: "/api?x=1": requested [{Group  devs    }] '
            "without impersonating a user\n",
        )
