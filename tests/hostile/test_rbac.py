"""Roles and bindings that stand for far more than their size."""

from __future__ import annotations

import pytest
from tests.hostile.conftest import Attack, Victim

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


@pytest.fixture
def limited(victim: Victim) -> dict[str, str]:
    """Headers of a user who may write roles and holds nothing else."""
    client = victim.client()
    for path, body in (
        (
            "clusterroles",
            {
                "metadata": {"name": "writer"},
                "rules": [
                    {
                        "apiGroups": ["rbac.authorization.k8s.io"],
                        "resources": ["*"],
                        "verbs": ["create", "update", "get"],
                    }
                ],
            },
        ),
        (
            "clusterrolebindings",
            {
                "metadata": {"name": "writer"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "writer",
                },
                "subjects": [
                    {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}
                ],
            },
        ),
    ):
        assert client("POST", f"{RBAC}/{path}", body).status in (201, 409)
    client.close()
    return {"Impersonate-User": "mallory"}


@pytest.mark.parametrize("size", [80, 500])
def test_a_role_of_many_combinations(
    victim: Victim, attack: Attack, rounds: int, limited: dict[str, str], size: int
) -> None:
    role = {
        "metadata": {"name": "cube"},
        "rules": [
            {
                "apiGroups": names("g", size),
                "resources": names("r", size),
                "verbs": names("v", size),
            }
        ],
    }
    client = victim.client()
    with attack():
        for _ in range(rounds):
            answer = client("POST", f"{RBAC}/namespaces/default/roles", role, limited)
            assert answer.status == 403, answer
            assert (
                "attempting to grant RBAC permissions not currently "
                'held:\n{APIGroups:["g0"], Resources:["r0"]'
            ) in (answer.json["message"])
    client.close()


def test_a_binding_of_many_subjects(victim: Victim, attack: Attack, rounds: int) -> None:
    binding = {
        "metadata": {"name": "crowd"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"u{n}"}
            for n in range(3000)
        ],
    }
    client = victim.client()
    with attack(rss=150 * 1024 * 1024):
        for number in range(rounds):
            client.ok(
                "POST",
                f"{RBAC}/namespaces/crowd/rolebindings",
                {**binding, "metadata": {"name": f"crowd-{number}"}},
            )
            for n in (0, 2999):
                client.ok(
                    "GET",
                    "/api/v1/namespaces/crowd/pods?limit=1",
                    None,
                    {"Impersonate-User": f"u{n}"},
                )
                review = {"spec": {"namespace": "crowd"}}
                client.ok(
                    "POST",
                    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                    review,
                    {"Impersonate-User": f"u{n}"},
                )
            client.ok("DELETE", f"{RBAC}/namespaces/crowd/rolebindings/crowd-{number}")
    client.close()


def test_a_large_role_with_many_bindings(victim: Victim, attack: Attack, rounds: int) -> None:
    """Every request of the bound user is decided by them, and a review lists their rules."""
    client = victim.client()
    roles = f"{RBAC}/namespaces/crowd"
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["x.example.com"], "resources": [name], "verbs": ["get"]}
        for name in names("r", 5000)
    ]
    client.ok("POST", f"{roles}/roles", {"metadata": {"name": "large"}, "rules": rules})
    bindings = [
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "large"},
            "subjects": [{"kind": "User", "apiGroup": group, "name": "eve"}],
        }
        for name in names("large-", 300)
    ]
    for answer in client.pipelined([("POST", f"{roles}/rolebindings", b) for b in bindings]):
        assert answer.status == 201, answer
    eve = {"Impersonate-User": "eve"}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    try:
        with attack():
            for n in range(3 * rounds):
                path = f"/apis/x.example.com/v1/namespaces/crowd/other{n}"
                assert client("GET", path, headers=eve).status == 403
                path = f"/apis/x.example.com/v1/namespaces/crowd/r{n}/name"
                assert client("GET", path, headers=eve).status == 404
                body = {"spec": {"namespace": "crowd"}}
                review = client.ok("POST", reviews, body, eve)
                assert len(review["status"]["resourceRules"]) < 6000
                binding = {**bindings[0], "metadata": {"name": "another"}}
                assert client("POST", f"{roles}/rolebindings", binding, eve).status == 403
    finally:
        client.ok("DELETE", f"{roles}/rolebindings")
        client.ok("DELETE", f"{roles}/roles/large")
        client.close()


def test_reviews_of_users_in_many_groups(victim: Victim, attack: Attack, rounds: int) -> None:
    """Neither the decision nor the cache of decisions may grow with what a review names."""
    client = victim.client()
    path = "/apis/authorization.k8s.io/v1/namespaces/crowd/localsubjectaccessreviews"
    requested = {"namespace": "crowd", "verb": "get", "resource": "pods"}

    def review(spec: dict[str, object]) -> bool:
        body = {
            "metadata": {"namespace": "crowd"},
            "spec": {**spec, "resourceAttributes": requested},
        }
        allowed: bool = client.ok("POST", path, body)["status"]["allowed"]
        return allowed

    with attack():
        for n in range(2 * rounds):
            groups = names(f"group-{n}-", 100_000)
            assert not review({"user": "eve", "groups": groups})
            assert review({"user": "eve", "groups": [*groups, "system:masters"]})
        for n in range(60 * rounds):
            assert not review({"user": f"{n}-" + "x" * 2_000_000})
    client.close()
