"""The Node authorizer: what a kubelet may read and write, as a matrix, and which pod opens which
object to it.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.security.support import DEFAULT, as_node, as_user, message, run

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.requestinfo import RequestInfo, parse_request_info
from transom.http.messages import parse_query

NODE = UserInfo("system:node:n1", ("system:nodes", "system:authenticated"))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STORAGE = "/apis/storage.k8s.io/v1"
UNRELATED = "no relationship found between node 'n1' and this object"
ONE = "can only get individual resources of this type"
ACCOUNT = "can only create tokens for individual service accounts"
NO = None  # refused without a word

# method, path, "" when allowed, else why not
MATRIX: list[tuple[str, str, str | None]] = [
    ("GET", "/api/v1/nodes", ""),
    ("GET", "/api/v1/nodes/n2", ""),
    ("POST", "/api/v1/nodes", ""),
    ("PATCH", "/api/v1/nodes/n1/status", ""),
    ("DELETE", "/api/v1/nodes/n1", NO),
    ("GET", "/api/v1/services", ""),
    ("GET", "/api/v1/pods", ""),
    ("POST", f"{DEFAULT}/pods", ""),
    ("PUT", f"{DEFAULT}/pods/p", NO),
    ("PATCH", f"{DEFAULT}/pods/p/status", ""),
    ("POST", f"{DEFAULT}/pods/p/eviction", ""),
    ("POST", f"{DEFAULT}/pods/p/binding", NO),
    ("POST", f"{DEFAULT}/events", ""),
    ("GET", f"{DEFAULT}/events", NO),
    ("GET", f"{DEFAULT}/endpoints/e", ""),
    ("GET", f"{DEFAULT}/endpoints", NO),
    ("GET", "/api/v1/namespaces", NO),
    ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", ""),
    ("PUT", "/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval", NO),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", ""),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", ""),
    ("GET", "/apis/node.k8s.io/v1/runtimeclasses", ""),
    ("GET", "/apis/apps/v1/deployments", NO),
    ("GET", "/metrics", NO),
    ("GET", f"{DEFAULT}/secrets/x", UNRELATED),
    ("GET", f"{DEFAULT}/secrets", "No Object name found"),
    ("GET", "/api/v1/secrets", "can only read namespaced object of this type"),
    ("POST", f"{DEFAULT}/secrets", "can only read resources of this type"),
    ("GET", f"{DEFAULT}/secrets/x/sub", "cannot read subresource"),
    ("GET", f"{DEFAULT}/configmaps/x", UNRELATED),
    ("DELETE", f"{DEFAULT}/configmaps/x", "can only read resources of this type"),
    ("GET", f"{DEFAULT}/persistentvolumeclaims/x", UNRELATED),
    ("GET", f"{DEFAULT}/persistentvolumeclaims", ONE),
    ("PATCH", f"{DEFAULT}/persistentvolumeclaims/x", ONE),
    ("PATCH", f"{DEFAULT}/persistentvolumeclaims/x/status", UNRELATED),
    ("GET", f"{DEFAULT}/persistentvolumeclaims/x/status", "can only get/update/patch this type"),
    ("GET", f"{DEFAULT}/persistentvolumeclaims/x/scale", "cannot get subresource"),
    ("GET", "/api/v1/persistentvolumes/x", UNRELATED),
    ("GET", "/api/v1/persistentvolumes", ONE),
    ("GET", f"{STORAGE}/volumeattachments/x", UNRELATED),
    ("GET", f"{STORAGE}/volumeattachments", ONE),
    ("GET", f"{DEFAULT}/serviceaccounts/default", ACCOUNT),
    ("POST", f"{DEFAULT}/serviceaccounts", ACCOUNT),
    (
        "POST",
        f"{DEFAULT}/serviceaccounts/a/other",
        "can only create token subresource of serviceaccount",
    ),
    ("POST", f"{DEFAULT}/serviceaccounts/a/token", UNRELATED),
    ("GET", f"{LEASES}/n1", ""),
    ("PATCH", f"{LEASES}/n1", ""),
    ("POST", LEASES, ""),
    ("GET", f"{LEASES}/n2", "can only access node lease with the same name as the requesting node"),
    ("GET", LEASES, "can only get, create, update, patch, or delete a node lease"),
    (
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/n1",
        'can only access leases in the "kube-node-lease" system namespace',
    ),
    ("GET", f"{STORAGE}/csinodes/n1", ""),
    ("POST", f"{STORAGE}/csinodes", ""),
    (
        "DELETE",
        f"{STORAGE}/csinodes/n2",
        "can only access CSINode with the same name as the requesting node",
    ),
    ("GET", f"{STORAGE}/csinodes", "can only get, create, update, patch, or delete a CSINode"),
    ("PUT", f"{STORAGE}/csinodes/n1/status", "cannot authorize CSINode subresources"),
]


async def test_the_matrix() -> None:
    async with run() as api:
        decide = api.server.security.decide
        for method, path, why in MATRIX:
            decision = decide(NODE, parse_request_info(method, path))
            assert (decision.allowed is True, decision.reason) == (why == "", why or ""), (
                method,
                path,
            )
            # The group without the name, and the name without the group, are not a node.
            for user in (
                UserInfo("n1", ("system:nodes",)),
                UserInfo("system:node:n1", ("system:authenticated",)),
            ):
                assert not decide(user, parse_request_info(method, path)).allowed, (method, path)


def pod(name: str, node: str = "n1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": spec.pop("annotations", None) or {}},
        "spec": {
            "containers": [{"name": "c", "image": "i", **spec.pop("container", {})}],
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            **spec,
        },
    }


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


VIA: list[tuple[str, str, dict[str, Any]]] = [
    ("secrets", "s", volume(secret={"secretName": "s"})),
    ("secrets", "s", volume(projected={"sources": [{"secret": {"name": "s"}}]})),
    ("secrets", "s", volume(azureFile={"secretName": "s", "shareName": "x"})),
    ("secrets", "s", volume(cephfs={"monitors": ["m"], "secretRef": {"name": "s"}})),
    ("secrets", "s", volume(flexVolume={"driver": "a/b", "secretRef": {"name": "s"}})),
    (
        "secrets",
        "s",
        volume(csi={"driver": "d.example.com", "nodePublishSecretRef": {"name": "s"}}),
    ),
    ("secrets", "s", {"imagePullSecrets": [{"name": "s"}]}),
    ("secrets", "s", {"container": {"envFrom": [{"secretRef": {"name": "s"}}]}}),
    (
        "secrets",
        "s",
        {
            "container": {
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
            }
        },
    ),
    (
        "secrets",
        "s",
        {
            "initContainers": [
                {
                    "name": "i",
                    "image": "i",
                    "env": [
                        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
                    ],
                }
            ]
        },
    ),
    ("configmaps", "m", volume(configMap={"name": "m"})),
    ("configmaps", "m", volume(projected={"sources": [{"configMap": {"name": "m"}}]})),
    ("configmaps", "m", {"container": {"envFrom": [{"configMapRef": {"name": "m"}}]}}),
    (
        "configmaps",
        "m",
        {
            "container": {
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
            }
        },
    ),
    ("persistentvolumeclaims", "c", volume(persistentVolumeClaim={"claimName": "c"})),
]


@pytest.mark.parametrize(("resource", "name", "spec"), VIA)
async def test_a_pod_opens_what_it_uses_to_its_node_alone(
    resource: str, name: str, spec: dict[str, Any]
) -> None:
    async with run() as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        request_info = RequestInfo(True, "", "get", "", "v1", "default", resource, name)
        decide = api.server.security.decide
        other = UserInfo("system:node:n2", NODE.groups)
        assert not decide(NODE, request_info).allowed
        await api.ok("POST", f"{DEFAULT}/pods", pod("waiting", "", **spec))
        assert not decide(NODE, request_info).allowed
        await api.ok(
            "POST",
            f"{DEFAULT}/pods/waiting/binding",
            {
                "metadata": {"name": "waiting"},
                "target": {"kind": "Node", "name": "n1"},
            },
        )
        assert decide(NODE, request_info).allowed
        assert not decide(other, request_info).allowed
        assert not decide(NODE, request_info._replace(namespace="kube-system")).allowed
        assert not decide(NODE, request_info._replace(name="other")).allowed
        await api.ok("POST", f"{DEFAULT}/pods", pod("second", "n1", **spec))
        await api.ok("DELETE", f"{DEFAULT}/pods/waiting")
        assert decide(NODE, request_info).allowed
        await api.ok("DELETE", f"{DEFAULT}/pods/second")
        assert not decide(NODE, request_info).allowed


async def test_claims_lead_to_volumes_and_volumes_to_secrets() -> None:
    async with run(release="1.36") as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        csi = {
            "driver": "d.example.com",
            "volumeHandle": "h",
            "nodePublishSecretRef": {"name": "publish", "namespace": "kube-system"},
            "nodeStageSecretRef": {"name": "stage", "namespace": "kube-system"},
            "nodeExpandSecretRef": {"name": "expand", "namespace": "kube-system"},
            "controllerPublishSecretRef": {"name": "control", "namespace": "kube-system"},
        }
        pv = {
            "metadata": {"name": "pv"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": csi,
                "claimRef": {"namespace": "default", "name": "c"},
            },
        }
        decide = api.server.security.decide

        def may(resource: str, namespace: str, name: str) -> bool:
            return (
                decide(
                    NODE, RequestInfo(True, "", "get", "", "v1", namespace, resource, name)
                ).allowed
                is True
            )

        await api.ok(
            "POST", f"{DEFAULT}/pods", pod("p", **volume(persistentVolumeClaim={"claimName": "c"}))
        )
        assert may("persistentvolumeclaims", "default", "c") and not may(
            "persistentvolumes", "", "pv"
        )
        await api.ok("POST", "/api/v1/persistentvolumes", pv)
        assert may("persistentvolumes", "", "pv")
        assert may("secrets", "kube-system", "publish") and may("secrets", "kube-system", "stage")
        assert may("secrets", "kube-system", "expand")
        assert not may("secrets", "kube-system", "control")
        await api.ok("DELETE", f"{DEFAULT}/pods/p")
        assert not may("persistentvolumes", "", "pv") and not may(
            "secrets", "kube-system", "publish"
        )


async def test_attachments_accounts_and_mirror_pods() -> None:
    async with run() as api:
        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        attachment = {
            "metadata": {"name": "a"},
            "spec": {
                "attacher": "d.example.com",
                "nodeName": "n1",
                "source": {"persistentVolumeName": "pv"},
            },
        }
        await api.ok("POST", f"{STORAGE}/volumeattachments", attachment)
        decide = api.server.security.decide
        assert decide(NODE, parse_request_info("GET", f"{STORAGE}/volumeattachments/a")).allowed
        assert not decide(
            UserInfo("system:node:n2", NODE.groups),
            parse_request_info("GET", f"{STORAGE}/volumeattachments/a"),
        ).allowed
        token = parse_request_info("POST", f"{DEFAULT}/serviceaccounts/default/token")
        assert not decide(NODE, token).allowed
        await api.ok("POST", f"{DEFAULT}/pods", pod("p"))
        assert decide(NODE, token).allowed
        mirror = pod(
            "m", annotations={"kubernetes.io/config.mirror": "x"}, **volume(configMap={"name": "m"})
        )
        await api.ok("POST", f"{DEFAULT}/pods", mirror)
        assert not decide(NODE, parse_request_info("GET", f"{DEFAULT}/configmaps/m")).allowed


async def test_reasons_stand_in_the_refusal() -> None:
    async with run() as api:
        text = await message(api, 403, "GET", f"{DEFAULT}/secrets/x", **as_node("n1"))
        assert text == (
            'secrets "x" is forbidden: User "system:node:n1" cannot get resource "secrets" '
            'in API group "" in the '
            f'namespace "default": {UNRELATED}'
        )
        unnamed = as_user("system:node:", "system:nodes")
        assert (await message(api, 403, "GET", "/api/v1/nodes", **unnamed)).endswith(
            ': unknown node for user "system:node:"'
        )


MAPPING = {"containerName": "c", "resourceName": "example.com/device", "requestName": "r"}


async def test_claims_belong_to_the_pods_whose_status_names_them() -> None:
    """A pod that only owns a claim, or has the name of its owner, opens nothing."""
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    async with run(release="1.36") as api:
        decide = api.server.security.decide

        def may(name: str) -> bool:
            return decide(NODE, parse_request_info("GET", f"{claims}/{name}")).allowed is True

        await api.ok("POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "default"}})
        entries = [
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "named", "resourceClaimName": "shared"},
        ]
        body = pod("p", resourceClaims=entries)
        [container] = body["spec"]["containers"]
        container["name"], container["resources"] = "c", {"limits": {"example.com/device": "1"}}
        made = await api.ok("POST", f"{DEFAULT}/pods", body)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
        request = {"name": "r", "exactly": {"deviceClassName": "c.example"}}
        for name, owners in (("p-made-x", [owner]), ("other", [{**owner, "uid": "u"}])):
            meta = {"name": name, "ownerReferences": owners}
            spec = {"devices": {"requests": [request]}}
            await api.ok("POST", claims, {"metadata": meta, "spec": spec})
        assert may("shared") and not may("p-made-x") and not may("other")
        for field, value in (
            ("resourceClaimStatuses", [{"name": "made", "resourceClaimName": "p-made-x"}]),
            (
                "extendedResourceClaimStatus",
                {"resourceClaimName": "extended", "requestMappings": [MAPPING]},
            ),
        ):
            status = {"status": {field: value}}
            media = "application/merge-patch+json"
            await api.ok("PATCH", f"{DEFAULT}/pods/p/status", status, media=media)
        assert may("shared") and may("p-made-x") and may("extended") and not may("other")
        await api.ok("DELETE", f"{DEFAULT}/pods/p")
        assert not any(map(may, ("shared", "p-made-x", "extended")))


async def test_requests_for_certificates_of_pods_are_for_their_node() -> None:
    target = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
    matrix: list[tuple[str, str, str]] = [
        ("POST", target, ""),
        ("GET", f"{target}/x", UNRELATED),
        ("GET", f"{target}?fieldSelector=spec.nodeName%3Dn1", ""),
        (
            "GET",
            target,
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        (
            "GET",
            f"{target}?fieldSelector=spec.nodeName%3Dn2",
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        ("PATCH", f"{target}/x", "nodes may not patch podcertificaterequests"),
        (
            "PATCH",
            f"{target}/x/status",
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
    ]
    async with run(release="1.37") as api:
        decide = api.server.security.decide
        for method, path, why in matrix:
            path, _, query = path.partition("?")
            request_info = parse_request_info(method, path, parse_query(query.encode()))
            decision = decide(NODE, request_info)
            assert (decision.allowed is True, decision.reason) == (why == "", why), (method, path)
