"""Who may change which part of the status of a ResourceClaim."""

from __future__ import annotations

from typing import Any

from tests.apiserver.harness import Api
from tests.apiserver.security.support import RBAC, RBAC_GROUP, as_user, rule, run

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
GROUP = "resource.k8s.io"
ALLOCATION = {
    "devices": {"results": [{"request": "r", "driver": "d.example", "pool": "p", "device": "x"}]},
    "nodeSelector": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        ]
    },
}
DEVICE = {"driver": "d.example", "pool": "p", "device": "x", "data": {"a": 1}}


async def grant(api: Api, name: str, *rules: Any) -> None:
    await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    subject = {"kind": "User", "apiGroup": RBAC_GROUP, "name": "ann"}
    reference = {"kind": "ClusterRole", "apiGroup": RBAC_GROUP, "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    await api.ok("POST", f"{RBAC}/clusterrolebindings", binding)


async def write(api: Api, **status: Any) -> tuple[int, str]:
    code, answer = await api.call(
        "PATCH",
        f"{CLAIMS}/c/status",
        {"status": status},
        media="application/merge-patch+json",
        **as_user("ann"),
    )
    return code, answer.get("message", "")


async def test_allocations_and_devices_need_permissions_of_their_own() -> None:
    async with run(release="1.36") as api:
        request = {"name": "r", "exactly": {"deviceClassName": "c.example"}}
        spec = {"devices": {"requests": [request]}}
        await api.ok("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
        await grant(api, "status", rule("patch", "resourceclaims/status", GROUP))
        assert await write(api, allocation=ALLOCATION) == (
            422,
            'ResourceClaim.resource.k8s.io "c" is invalid: status.allocation: Forbidden: changing '
            'status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
            'verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: User "ann" '
            'cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the '
            "cluster scope",
        )
        await grant(api, "binding", rule("patch", "resourceclaims/binding", GROUP))
        assert (await write(api, allocation=ALLOCATION))[0] == 200
        code, message = await write(api, devices=[DEVICE])
        assert code == 422 and message.endswith(
            'status.devices: Forbidden: changing status.devices requires resource="resourceclaims'
            '/driver", verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io '
            '"d.example" is forbidden: User "ann" cannot arbitrary-node:patch resource '
            '"resourceclaims/driver" in API group "resource.k8s.io" in the namespace "default"'
        )
        await grant(
            api,
            "driver",
            rule("arbitrary-node:patch", "resourceclaims/driver", GROUP, names="d.example"),
        )
        assert (await write(api, devices=[DEVICE]))[0] == 200


async def test_1_35_only_asks_for_the_status() -> None:
    async with run(release="1.35") as api:
        request = {"name": "r", "exactly": {"deviceClassName": "c.example"}}
        spec = {"devices": {"requests": [request]}}
        await api.ok("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": spec})
        await grant(api, "status", rule("patch", "resourceclaims/status", GROUP))
        assert (await write(api, allocation=ALLOCATION))[0] == 200
