"""Plugins that set defaults: tolerations, taints, finalizers, classes; and expansion of claims."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.admission.support import MERGE, NS, PODS, claim, pod, refused, run

CLAIMS = f"{NS}/persistentvolumeclaims"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
INGRESS_CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists"}], [UNREACHABLE]),
    ],
)
async def test_tolerations_of_a_lost_node(given: list[Any], added: list[str]) -> None:
    async with run() as api:
        made = await api.ok("POST", PODS, pod(tolerations=given))
        assert [t["key"] for t in made["spec"]["tolerations"][len(given) :]] == added


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        ([], [NOT_READY]),
        ([{"key": NOT_READY, "effect": "NoExecute"}], [NOT_READY, NOT_READY]),
        ([{"key": NOT_READY, "value": "x", "effect": "NoSchedule"}], [NOT_READY]),
    ],
)
async def test_a_new_node_is_not_ready(taints: list[Any], expected: list[str]) -> None:
    async with run() as api:
        made = await api.ok(
            "POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": taints}}
        )
        assert [t["key"] for t in made["spec"]["taints"]] == expected


async def test_volumes_and_claims_are_protected() -> None:
    async with run() as api:
        made = await api.ok(
            "POST", CLAIMS, {**claim(), "metadata": {"name": "c", "finalizers": ["a.b/c"]}}
        )
        assert made["metadata"]["finalizers"] == ["a.b/c", "kubernetes.io/pvc-protection"]
        volume = {
            "metadata": {"name": "v"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/x"},
            },
        }
        made = await api.ok("POST", "/api/v1/persistentvolumes", volume)
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


def storage_class(name: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "p",
        **more,
    }


async def test_the_default_storage_class() -> None:
    async with run() as api:
        await api.ok("POST", STORAGE_CLASSES, storage_class("one"))
        assert (await api.ok("POST", CLAIMS, claim("a")))["spec"]["storageClassName"] == "one"
        assert (await api.ok("POST", CLAIMS, claim("b", storageClassName="")))["spec"][
            "storageClassName"
        ] == ""
        old = claim("c")
        old["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "x"}
        assert "storageClassName" not in (await api.ok("POST", CLAIMS, old))["spec"]
        await api.ok("POST", STORAGE_CLASSES, storage_class("two"))
        assert await refused(api, "POST", CLAIMS, claim("d")) == (
            "Internal error occurred: 2 default StorageClasses were found"
        )


async def test_the_default_ingress_class() -> None:
    def ingress_class(name: str) -> dict[str, Any]:
        mark = {"ingressclass.kubernetes.io/is-default-class": "true"}
        return {"metadata": {"name": name, "annotations": mark}, "spec": {"controller": "a.b/c"}}

    def ingress(name: str, **annotations: str) -> dict[str, Any]:
        backend = {"service": {"name": "s", "port": {"number": 80}}}
        return {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"defaultBackend": backend},
        }

    async with run() as api:
        await api.ok("POST", INGRESS_CLASSES, ingress_class("one"))
        assert (await api.ok("POST", INGRESSES, ingress("a")))["spec"]["ingressClassName"] == "one"
        marked = ingress("b", **{"kubernetes.io/ingress.class": "x"})
        assert "ingressClassName" not in (await api.ok("POST", INGRESSES, marked))["spec"]
        # the group of old knows no default
        before = "/apis/extensions/v1beta1/namespaces/default/ingresses"
        old = {
            "metadata": {"name": "o"},
            "spec": {"backend": {"serviceName": "s", "servicePort": 80}},
        }
        assert "ingressClassName" not in (await api.ok("POST", before, old))["spec"]
        assert (await api.ok("DELETE", before + "/o"))["details"]["group"] == "extensions"
        await api.ok("POST", INGRESS_CLASSES, ingress_class("two"))
        assert await refused(api, "POST", INGRESSES, ingress("c")) == (
            "Internal error occurred: 2 default IngressClasses were found, only 1 allowed"
        )


@pytest.mark.parametrize(("expandable", "grows"), [(True, True), (False, False)])
async def test_a_bound_claim_grows_if_its_class_allows_it(expandable: bool, grows: bool) -> None:
    async with run() as api:
        await api.ok("POST", STORAGE_CLASSES, storage_class("s", allowVolumeExpansion=expandable))
        await api.ok("POST", CLAIMS, claim(volumeName="v"))
        await api.ok("PATCH", f"{CLAIMS}/c/status", {"status": {"phase": "Bound"}}, media=MERGE)
        more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        if grows:
            await api.ok("PATCH", f"{CLAIMS}/c", more, media=MERGE)
        else:
            assert await refused(api, "PATCH", f"{CLAIMS}/c", more, media=MERGE) == (
                "only dynamically provisioned pvc can be resized and the storageclass that "
                "provisions the pvc must "
                "support resize"
            )
