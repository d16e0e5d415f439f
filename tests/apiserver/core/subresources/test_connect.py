"""Who may connect to a pod."""

from __future__ import annotations

import pytest
from tests.apiserver.security.support import DEFAULT, RBAC, RBAC_GROUP, as_user, rule, run


@pytest.mark.parametrize(
    ("release", "verbs", "expected"),
    [
        ("1.34", "get", (400, "pod p does not have a host assigned")),
        ("1.36", "get", (403, 'pods "p" is forbidden: ')),
        ("1.36", "get create", (400, "pod p does not have a host assigned")),
    ],
)
async def test_exec_with_get_needs_the_permission_to_create_since_1_35(
    release: str, verbs: str, expected: tuple[int, str]
) -> None:
    async with run(release=release) as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await api.ok("POST", f"{DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": spec})
        role = {"metadata": {"name": "exec"}, "rules": [rule(verbs, "pods/exec")]}
        await api.ok("POST", f"{RBAC}/clusterroles", role)
        binding = {
            "metadata": {"name": "exec"},
            "subjects": [{"kind": "User", "apiGroup": RBAC_GROUP, "name": "ann"}],
            "roleRef": {"kind": "ClusterRole", "apiGroup": RBAC_GROUP, "name": "exec"},
        }
        await api.ok("POST", f"{RBAC}/clusterrolebindings", binding)
        status, answer = await api.call(
            "GET", f"{DEFAULT}/pods/p/exec?command=x&stdout=true", **as_user("ann")
        )
        assert (status, answer["message"]) == expected
