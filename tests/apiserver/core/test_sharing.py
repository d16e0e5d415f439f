"""Equal parts of decoded pods are one object, and are unaffected by changes of one of the pods."""

from __future__ import annotations

import copy
from typing import Any

from tests.apiserver.harness import start

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, image: str = "i:1") -> dict[str, Any]:
    container = {"name": "c", "image": image, "env": [{"name": "A", "value": "1"}]}
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [container]}}


async def test_pods_of_one_template_share_what_is_equal() -> None:
    api = await start()
    quiet = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    await api.ok("POST", "/api/v1/namespaces/default/serviceaccounts", quiet)
    for name, image in (("a", "i:1"), ("b", "i:1"), ("c", "i:2")):
        await api.ok("POST", PODS, pod(name, image))
    storage, res = api.server.storage, api.server.resource("", "v1", "pods")

    def stored(name: str) -> dict[str, Any]:
        return storage.decode(res, storage.get(res, "default", name))

    assert stored("a")["spec"]["containers"] is stored("b")["spec"]["containers"]
    assert stored("a")["spec"]["containers"] is not stored("c")["spec"]["containers"]
    assert stored("a")["metadata"]["labels"] is stored("c")["metadata"]["labels"]
    before = copy.deepcopy(stored("b"))
    patches = {
        "application/merge-patch+json": {"metadata": {"labels": {"app": "y"}}},
        "application/strategic-merge-patch+json": {
            "spec": {"containers": [{"name": "c", "image": "i:3"}]}
        },
    }
    for media, patch in patches.items():
        await api.ok("PATCH", f"{PODS}/a", patch, media=media)
    assert stored("a")["metadata"]["labels"] == {"app": "y"}
    assert stored("a")["spec"]["containers"][0]["image"] == "i:3"
    assert stored("b") == before
