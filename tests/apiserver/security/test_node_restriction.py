"""NodeRestriction: what a kubelet may write, with the message of each rejection."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.apiserver.harness import Api
from tests.apiserver.security.support import (
    DEFAULT,
    RBAC,
    RBAC_GROUP,
    as_node,
    as_user,
    message,
    rule,
    run,
)

from transom.kit.pki import make_ca, make_certificate_request

NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
ONE = as_node("n1")


def node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def mirror(uid: str, **changes: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": True}
    meta = {
        "name": "m",
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [owner],
    }
    meta |= changes.pop("metadata", {})
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "nodeName": "n1",
        "automountServiceAccountToken": False,
    }
    return {"metadata": meta, "spec": {**spec, **changes}}


async def make_node(api: Api) -> str:
    return str((await api.ok("POST", NODES, node("n1"), **ONE))["metadata"]["uid"])


async def test_its_own_node_and_the_labels_a_kubelet_may_set() -> None:
    async with run() as api:
        assert await message(api, 403, "POST", NODES, node("n2"), **ONE) == (
            'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
        )
        bad = {
            "node-restriction.kubernetes.io/a": "b",
            "x.node-restriction.kubernetes.io/c": "d",
            "foo.kubernetes.io/e": "f",
            "kubernetes.io/hostname": "n1",
        }
        assert await message(api, 403, "POST", NODES, node("n1", bad), **ONE) == (
            'nodes "n1" is forbidden: node "n1" is not allowed to set the following labels: '
            "foo.kubernetes.io/e, "
            "node-restriction.kubernetes.io/a, x.node-restriction.kubernetes.io/c"
        )
        good = {
            "kubernetes.io/os": "windows",
            "node.kubernetes.io/x": "y",
            "a.kubelet.kubernetes.io/z": "1",
            "mine/own": "1",
            "plain": "1",
        }
        await api.ok("POST", NODES, node("n1", good), **ONE)
        patch = {"metadata": {"labels": {"kubernetes.io/role": "x"}}}
        assert await message(api, 403, "PATCH", f"{NODES}/n1", patch, media=MERGE, **ONE) == (
            'nodes "n1" is forbidden: is not allowed to modify labels: kubernetes.io/role'
        )
        taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
        assert await message(api, 403, "PATCH", f"{NODES}/n1", taint, media=MERGE, **ONE) == (
            'nodes "n1" is forbidden: node "n1" is not allowed to modify taints'
        )
        await api.ok(
            "PATCH", f"{NODES}/n1", {"metadata": {"labels": {"plain": "2"}}}, media=MERGE, **ONE
        )
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await api.ok("PATCH", f"{NODES}/n1/status", status, media=MERGE, **ONE)
        await message(api, 403, "PATCH", f"{NODES}/n1/status", status, media=MERGE, **as_node("n2"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        (
            {"metadata": {"annotations": {}}},
            (
                'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only '
                "create mirror pods"
            ),
        ),
        ({"nodeName": "n2"}, 'node "n1" can only create pods with spec.nodeName set to itself'),
        (
            {"metadata": {"ownerReferences": []}},
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "Node",
                            "name": "n1",
                            "uid": "wrong",
                            "controller": True,
                        }
                    ]
                }
            },
            "node n1 UID mismatch: expected wrong got UID",
        ),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "wrong"}
                    ]
                }
            },
            'node "n1" can only create pods with a controller owner reference set to itself',
        ),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "u"}
                    ]
                }
            },
            'node "n1" can only create pods with an owner reference set to itself',
        ),
        (
            {"volumes": [{"name": "v", "configMap": {"name": "m"}}]},
            'node "n1" can not create pods that reference configmaps',
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "m"}}]},
            'node "n1" can not create pods that reference persistentvolumeclaims',
        ),
    ],
)
async def test_mirror_pods(changes: dict[str, Any], why: str) -> None:
    async with run() as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        uid = await make_node(api)
        given = {k: dict(v) if isinstance(v, dict) else v for k, v in changes.items()}
        if not why:
            await api.ok("POST", f"{DEFAULT}/pods", mirror(uid, **given), **ONE)
            return
        text = await message(api, 403, "POST", f"{DEFAULT}/pods", mirror(uid, **given), **ONE)
        assert text.replace(uid, "UID") == f'pods "m" is forbidden: {why}'


async def test_pods_of_other_nodes_are_not_its_business() -> None:
    async with run() as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        for name, where in (("mine", "n1"), ("theirs", "n2")):
            await api.ok(
                "POST",
                f"{DEFAULT}/pods",
                {"metadata": {"name": name}, "spec": {**spec, "nodeName": where}},
            )
        running = {"status": {"phase": "Running"}}
        await api.ok("PATCH", f"{DEFAULT}/pods/mine/status", running, media=MERGE, **ONE)
        assert await message(
            api, 403, "PATCH", f"{DEFAULT}/pods/theirs/status", running, media=MERGE, **ONE
        ) == (
            'pods "theirs" is forbidden: node "n1" can only update pod status for pods with '
            "spec.nodeName set to itself"
        )
        relabel = {"metadata": {"labels": {"a": "b"}}}
        assert await message(
            api, 403, "PATCH", f"{DEFAULT}/pods/mine/status", relabel, media=MERGE, **ONE
        ) == ('pods "mine" is forbidden: node "n1" cannot update labels through pod status')
        assert await message(api, 403, "DELETE", f"{DEFAULT}/pods/theirs", **ONE) == (
            'pods "theirs" is forbidden: node "n1" can only delete pods with spec.nodeName '
            "set to itself"
        )
        await api.ok("DELETE", f"{DEFAULT}/pods/mine?gracePeriodSeconds=0", **ONE)


async def test_tokens_are_for_its_own_pods() -> None:
    async with run() as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        pods = {}
        for name, where in (("mine", "n1"), ("theirs", "n2")):
            body_ = {"metadata": {"name": name}, "spec": {**spec, "nodeName": where}}
            pods[name] = (await api.ok("POST", f"{DEFAULT}/pods", body_))["metadata"]["uid"]
        target = f"{DEFAULT}/serviceaccounts/default/token"

        def bound(name: str, uid: str = "") -> dict[str, Any]:
            reference = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": name,
                **({"uid": uid} if uid else {}),
            }
            return {"spec": {"boundObjectRef": reference}}

        for request, why in (
            ({"spec": {}}, "node requested token not bound to a pod"),
            (bound("mine"), "node requested token with a pod binding without a uid"),
            (
                bound("theirs", pods["theirs"]),
                "node requested token bound to a pod scheduled on a different node",
            ),
        ):
            text = await message(api, 403, "POST", target, request, **ONE)
            assert text == f'serviceaccounts "default" is forbidden: {why}'
        assert (
            await message(api, 404, "POST", target, bound("ghost", "u"), **ONE)
            == 'pod "ghost" not found'
        )
        await api.ok("POST", target, bound("mine", pods["mine"]), **ONE)


async def test_its_own_lease_and_storage_node() -> None:
    async with run() as api:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        await api.ok("POST", leases, {"metadata": {"name": "n1"}, "spec": {}}, **ONE)
        assert await message(
            api, 403, "POST", leases, {"metadata": {"name": "n2"}, "spec": {}}, **ONE
        ) == (
            'leases.coordination.k8s.io "n2" is forbidden: '
            "can only access node lease with the same name as the requesting node"
        )
        csi = {"metadata": {"name": "n2"}, "spec": {"drivers": []}}
        assert await message(api, 403, "POST", "/apis/storage.k8s.io/v1/csinodes", csi, **ONE) == (
            'csinodes.storage.k8s.io "n2" is forbidden: '
            "can only access CSINode with the same name as the requesting node"
        )


@pytest.mark.parametrize("part", ["", "/status"])
async def test_a_node_cannot_have_itself_collected(part: str) -> None:
    """CVE-2025-5187: the garbage collector deletes a node with an owner that does not exist."""
    async with run() as api:
        await make_node(api)
        owners = [{"apiVersion": "v1", "kind": "Node", "name": "ghost", "uid": "u"}]
        body = {"metadata": {"ownerReferences": owners}}
        why = 'nodes "n1" is forbidden: node "n1" is not allowed to modify ownerReferences'
        target = f"{NODES}/n1{part}"
        assert await message(api, 403, "PATCH", target, body, media=MERGE, **ONE) == why
        await api.ok("PATCH", f"{NODES}/n1", body, media=MERGE)  # an administrator may
        running = {"status": {"phase": "Running"}}
        await api.ok("PATCH", f"{NODES}/n1/status", running, media=MERGE, **ONE)
        none = {"metadata": {"ownerReferences": None}}
        assert await message(api, 403, "PATCH", target, none, media=MERGE, **ONE) == why


def certificate_request(cn: str, signer: str = "kubernetes.io/kubelet-serving") -> dict[str, Any]:
    text, _ = make_certificate_request(cn, ("system:nodes",), (), ("10.0.0.1",))
    spec = {
        "request": base64.b64encode(text).decode(),
        "signerName": signer,
        "usages": ["digital signature", "server auth"],
    }
    return {"metadata": {"generateName": "csr-"}, "spec": spec}


async def test_certificates_are_for_the_node_itself() -> None:
    target = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    async with run(release="1.36") as api:
        await api.ok("POST", target, certificate_request("system:node:n1"), **ONE)
        text = await message(api, 403, "POST", target, certificate_request("system:node:n2"), **ONE)
        assert text.endswith("is forbidden: can only create a node CSR with CN=system:node:n1")
        other = certificate_request("anyone", "example.com/own")
        await api.ok("POST", target, other, **ONE)
        await api.ok("POST", target, certificate_request("system:node:n2"))
    async with run(
        release="1.36",
        feature_gates={"AllowInsecureKubeletCertificateSigningRequests": True},
    ) as api:
        await api.ok("POST", target, certificate_request("system:node:n2"), **ONE)


async def test_tokens_have_audiences_that_the_pod_uses() -> None:
    async with run(release="1.36") as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        driver = {"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "csi"}]}}
        await api.ok("POST", "/apis/storage.k8s.io/v1/csidrivers", driver)
        volumes = [
            {
                "name": "v",
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]
                },
            },
            {"name": "w", "csi": {"driver": "d"}},
        ]
        spec = {
            "containers": [{"name": "c", "image": "i"}],
            "automountServiceAccountToken": False,
            "nodeName": "n1",
            "volumes": volumes,
        }
        pod = await api.ok("POST", f"{DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": spec})
        target = f"{DEFAULT}/serviceaccounts/default/token"

        def asking(*audiences: str) -> dict[str, Any]:
            bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
            return {"spec": {"audiences": audiences, "boundObjectRef": bound}}

        await api.ok("POST", target, asking("vault"), **ONE)
        await api.ok("POST", target, asking("csi"), **ONE)
        assert await message(api, 403, "POST", target, asking("vault", "csi"), **ONE) == (
            'serviceaccounts "default" is forbidden: node may only request 0 or 1 audiences'
        )
        assert await message(api, 403, "POST", target, asking("other"), **ONE) == (
            'serviceaccounts "default" is forbidden: audience "other" not found in pod spec '
            "volume, system:node:n1 is not authorized to request tokens for this audience"
        )
        role = {"rules": [rule("request-serviceaccounts-token-audience", "other")]}
        await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, **role})
        binding = {
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "system:node:n1", "apiGroup": RBAC_GROUP}],
        }
        await api.ok("POST", f"{RBAC}/clusterrolebindings", binding)
        await api.ok("POST", target, asking("other"), **ONE)


async def test_resource_claims_and_slices_of_others_are_out_of_reach() -> None:
    async with run(release="1.36") as api:
        uid = await make_node(api)
        claims = [{"name": "c", "resourceClaimName": "theirs"}]
        body = mirror(uid, resourceClaims=claims)
        assert await message(api, 403, "POST", f"{DEFAULT}/pods", body, **ONE) == (
            'pods "m" is forbidden: node "n1" can not create pods that reference resourceclaims'
        )
        await api.ok("POST", f"{DEFAULT}/pods", mirror(uid), **ONE)
        statuses = {"status": {"resourceClaimStatuses": claims}}
        target = f"{DEFAULT}/pods/m/status"
        text = await message(api, 403, "PATCH", target, statuses, media=MERGE, **ONE)
        assert text.endswith('node "n1" cannot update resource claim statues')
        extended = {"resourceClaimName": "theirs", "requestMappings": []}
        statuses = {"status": {"extendedResourceClaimStatus": extended}}
        text = await message(api, 403, "PATCH", target, statuses, media=MERGE, **ONE)
        assert text.endswith('node "n1" cannot update extended resource claim status')

        slices = "/apis/resource.k8s.io/v1/resourceslices"

        def on(name: str) -> dict[str, Any]:
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "d.example", "nodeName": name, "pool": pool, "devices": []}
            return {"metadata": {"name": f"s-{name}"}, "spec": spec}

        await api.ok("POST", slices, on("n1"), **ONE)
        text = await message(api, 403, "POST", slices, on("n2"), **ONE)
        assert text.endswith(
            "can only create ResourceSlice with the same NodeName as the requesting node"
        )


async def test_trust_anchors_need_the_permission_to_attest() -> None:
    target = "/apis/certificates.k8s.io/v1/clustertrustbundles"
    user = as_user("publisher")
    async with run(release="1.37") as api:
        role = {"rules": [rule("create update", "clustertrustbundles", "certificates.k8s.io")]}
        await api.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, **role})
        binding = {
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "publisher", "apiGroup": RBAC_GROUP}],
        }
        await api.ok("POST", f"{RBAC}/clusterrolebindings", binding)
        anchors = make_ca("ca").certificate.decode()
        spec = {"signerName": "example.com/s", "trustBundle": anchors}
        bundle = {"metadata": {"name": "example.com:s:b"}, "spec": spec}
        text = await message(api, 403, "POST", target, bundle, **user)
        assert text.endswith('user not permitted to attest for signerName "example.com/s"')
        free = {"metadata": {"name": "b"}, "spec": {"trustBundle": anchors}}
        await api.ok("POST", target, free, **user)
        await api.ok("POST", target, bundle)


SOURCES: list[tuple[dict[str, Any], str]] = [
    ({"emptyDir": {}}, ""),
    ({"csi": {"driver": "d.example"}}, "csidrivers (via CSI volumes)"),
    ({"glusterfs": {"endpoints": "e", "path": "p"}}, "endpoints (via glusterFS volumes)"),
    (
        {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            }
        },
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    (
        {"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "p"}}]}},
        "clustertrustbundles",
    ),
]


@pytest.mark.parametrize(("source", "kind"), SOURCES)
async def test_mirror_pods_refer_to_no_api_object(source: dict[str, Any], kind: str) -> None:
    async with run(release="1.37") as api:
        body = mirror(await make_node(api), volumes=[{"name": "v", **source}])
        if not kind:
            await api.ok("POST", f"{DEFAULT}/pods", body, **ONE)
            return
        assert await message(api, 403, "POST", f"{DEFAULT}/pods", body, **ONE) == (
            f'pods "m" is forbidden: node "n1" can not create pods that reference {kind}'
        )


async def test_certificates_of_pods_are_for_signers_that_the_pod_names() -> None:
    target = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
    async with run(release="1.37") as api:
        uid = await make_node(api)
        account = await api.ok(
            "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}}
        )
        certificate = {"signerName": "example.com/s", "keyType": "ED25519"}
        source = {"podCertificate": {**certificate, "credentialBundlePath": "b.pem"}}
        volume = {"name": "v", "projected": {"sources": [source]}}
        spec = {
            "containers": [{"name": "c", "image": "i"}],
            "nodeName": "n1",
            "automountServiceAccountToken": False,
            "volumes": [volume],
        }
        pod = await api.ok("POST", f"{DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": spec})

        def asking(signer: str) -> dict[str, Any]:
            return {
                "metadata": {"generateName": "r-"},
                "spec": {
                    "signerName": signer,
                    "podName": "p",
                    "podUID": pod["metadata"]["uid"],
                    "serviceAccountName": "default",
                    "serviceAccountUID": account["metadata"]["uid"],
                    "nodeName": "n1",
                    "nodeUID": uid,
                    "stubPKCS10Request": "",
                },
            }

        assert (await message(api, 403, "POST", target, asking("example.com/t"), **ONE)).endswith(
            'pod "default/p" does not mount a podCertificate projected volume for signer '
            '"example.com/t"'
        )
        # The signer is accepted; validation has the next word.
        code, answer = await api.call("POST", target, asking("example.com/s"), **ONE)
        assert code == 422, answer["message"]


@pytest.mark.parametrize(("release", "shown"), [("1.20", True), ("1.21", False), ("1.36", False)])
async def test_a_wrong_uid_does_not_reveal_the_right_one(release: str, shown: bool) -> None:
    """A node could otherwise learn the UIDs of pods on other nodes."""
    async with run(release=release) as api:
        await make_node(api)
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        found = {}
        for name, where in (("mine", "n1"), ("theirs", "n2")):
            body = {"metadata": {"name": name}, "spec": {**spec, "nodeName": where}}
            found[name] = (await api.ok("POST", f"{DEFAULT}/pods", body))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": found["mine"]}
        body = {"spec": {"audiences": [], "boundObjectRef": reference}}
        target = f"{DEFAULT}/serviceaccounts/default/token"
        text = await message(api, 403, "POST", target, body, **ONE)
        assert (found["theirs"] in text) == shown
        assert "does not match the UID in record" in text
