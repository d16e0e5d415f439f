"""The bootstrap policy: as recorded from a real control plane, restored at start, kept unchanged on
request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.security.support import RBAC, message, run

from transom.apiserver.authorization import bootstrap_roles

RECORDED = Path(__file__).parents[4] / "shared/golden/expected/1.20/sec-rbac.json"
SELECTED = "?labelSelector=kubernetes.io/bootstrapping%3Drbac-defaults"
MERGE = "application/merge-patch+json"


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded answers are not here")
@pytest.mark.parametrize("plural", ["clusterroles", "clusterrolebindings", "roles", "rolebindings"])
async def test_it_is_the_policy_of_a_real_control_plane(plural: str) -> None:
    def field(obj: dict[str, Any], path: str) -> Any:
        top, _, rest = path.partition(".")
        return (obj.get(top) or {}).get(rest) if rest else obj.get(top)

    recorded = json.loads(RECORDED.read_text())["bootstrap-policy"][plural]["body"]

    async with run() as api:
        found = (await api.ok("GET", f"{RBAC}/{plural}{SELECTED}"))["items"]
        rows = [{path: field(obj, path) for path in recorded[0]} for obj in found]

        def key(row: dict[str, Any]) -> str:
            return json.dumps(row, sort_keys=True)

        assert sorted(rows, key=key) == sorted(recorded, key=key)


async def test_what_is_missing_comes_back_and_what_was_added_stays() -> None:
    async with run() as api:
        own = {"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["things"]}
        mine = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "me"}
        await api.ok("PATCH", f"{RBAC}/clusterroles/system:kube-dns", {"rules": [own]}, media=MERGE)
        await api.ok(
            "PATCH",
            f"{RBAC}/clusterrolebindings/system:kube-dns",
            {"subjects": [mine]},
            media=MERGE,
        )
        await api.ok("DELETE", f"{RBAC}/clusterroles/view")
        keep = {
            "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}},
            "subjects": None,
        }
        await api.ok("PATCH", f"{RBAC}/clusterrolebindings/system:basic-user", keep, media=MERGE)
        await bootstrap_roles.reconcile_bootstrap_roles(api.server)
        rules = (await api.ok("GET", f"{RBAC}/clusterroles/system:kube-dns"))["rules"]
        assert (
            rules[0] == own
            and {"verbs": ["watch"], "apiGroups": [""], "resources": ["services"]} in rules
        )
        subjects = (await api.ok("GET", f"{RBAC}/clusterrolebindings/system:kube-dns"))["subjects"]
        assert [s["name"] for s in subjects] == ["me", "kube-dns"]
        assert len((await api.ok("GET", f"{RBAC}/clusterroles/view"))["rules"]) > 5
        assert "subjects" not in await api.ok(
            "GET", f"{RBAC}/clusterrolebindings/system:basic-user"
        )


async def test_a_second_start_writes_nothing() -> None:
    async with run() as api:
        before = api.server.storage.store.revision
        await bootstrap_roles.reconcile_bootstrap_roles(api.server)
        assert api.server.storage.store.revision == before


async def test_a_binding_of_another_role_is_made_anew() -> None:
    async with run() as api:
        target = f"{RBAC}/clusterrolebindings/system:kube-dns"
        found = await api.ok("GET", target)
        await api.ok("DELETE", target)
        found["roleRef"]["name"] = "cluster-admin"
        del found["metadata"]["resourceVersion"], found["metadata"]["uid"]
        await api.ok("POST", f"{RBAC}/clusterrolebindings", found)
        await bootstrap_roles.reconcile_bootstrap_roles(api.server)
        assert (await api.ok("GET", target))["roleRef"]["name"] == "system:kube-dns"
        assert await message(api, 404, "GET", f"{RBAC}/clusterroles/none")
