"""Signing requests, bootstrap tokens, aggregated roles."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.conftest import ContextFactory

from transom.client.api import MERGE_PATCH
from transom.client.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NAMESPACES,
    SECRETS,
)
from transom.controllers.base import ControllerSettings
from transom.controllers.bootstrap_tokens import detached_signature
from transom.controllers.certificates import outdated
from transom.kit.clock import rfc3339
from transom.kit.pki import KeyPair, make_ca
from transom.kit.signing import sign_request
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import Release

from .conftest import Plane

Play = Callable[..., None]
CLIENT = ["digital signature", "key encipherment", "client auth"]
SERVING = ["digital signature", "key encipherment", "server auth"]
START = 1577934245.0  # where the virtual clock begins


@lru_cache
def authority() -> KeyPair:
    return make_ca("test", now=START)


def sign(request: bytes, usages: Iterable[str], seconds: float = 86400.0) -> bytes:
    return sign_request(authority(), request, usages, seconds, START)


def request_for(name: str, organization: str = "", dns: str = "") -> bytes:
    fields = (
        [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization)] if organization else []
    )
    subject = x509.Name([*fields, x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if dns:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False
        )
    key = ec.generate_private_key(ec.SECP256R1())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


async def ask(
    plane: Plane,
    request: bytes,
    signer: str,
    usages: list[str],
    *,
    approve: bool = True,
    **more: Any,
) -> None:
    spec = {
        **more,
        "request": base64.b64encode(request).decode(),
        "signerName": f"kubernetes.io/{signer}",
        "usages": usages,
    }
    csr = await plane.client.create(
        CERTIFICATE_SIGNING_REQUESTS, "", {"metadata": {"name": "r"}, "spec": spec}
    )
    if approve:
        approved = {"type": "Approved", "status": "True", "reason": "R", "message": "M"}
        await plane.client.update(
            CERTIFICATE_SIGNING_REQUESTS,
            {**csr, "status": {"conditions": [approved]}},
            subresource="approval",
        )


async def result(plane: Plane) -> tuple[x509.Certificate | None, list[tuple[str, str, str]]]:
    status = (await plane.get(CERTIFICATE_SIGNING_REQUESTS, "", "r")).get("status") or {}
    rows = [(c["type"], c["reason"], c["message"]) for c in status.get("conditions") or ()]
    encoded = status.get("certificate")
    return x509.load_pem_x509_certificate(base64.b64decode(encoded)) if encoded else None, rows


@pytest.mark.parametrize(
    ("signer", "subject", "usages", "problem"),
    [
        ("kube-apiserver-client", ("alice", "devs", ""), CLIENT, ""),
        (
            "kube-apiserver-client",
            ("alice", "devs", ""),
            SERVING,
            "invalid usage for client certificate: server auth",
        ),
        (
            "kube-apiserver-client",
            ("alice", "devs", ""),
            CLIENT[:2],
            "missing required usage for client certificate: client auth",
        ),
        ("kube-apiserver-client-kubelet", ("system:node:a", "system:nodes", ""), CLIENT, ""),
        (
            "kube-apiserver-client-kubelet",
            ("alice", "system:nodes", ""),
            CLIENT,
            "subject common name does not begin with system:node:",
        ),
        ("kubelet-serving", ("system:node:a", "system:nodes", "a.example.org"), SERVING, ""),
        (
            "kubelet-serving",
            ("system:node:a", "system:nodes", ""),
            SERVING,
            "DNS or IP subjectAltName is required",
        ),
    ],
)
async def test_the_signers_and_their_rules(
    control_plane: ContextFactory,
    signer: str,
    subject: tuple[str, str, str],
    usages: list[str],
    problem: str,
) -> None:
    async with control_plane(
        "csrsigning", settings=ControllerSettings(sign_certificate=sign)
    ) as plane:
        await ask(plane, request_for(*subject), signer, usages, approve=False)
        await plane.settle(5)
        assert await result(plane) == (None, [])
        await plane.client.delete(CERTIFICATE_SIGNING_REQUESTS, "", "r")
        await ask(plane, request_for(*subject), signer, usages)
        await plane.settle(5)
        made, rows = await result(plane)
        if problem:
            assert made is None and rows[1:] == [("Failed", "SignerValidationFailure", problem)]
            return
        assert made is not None and rows == [("Approved", "R", "M")]
        made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority().certificate))
        start = datetime.datetime.fromtimestamp(START - 300, datetime.UTC)
        assert made.not_valid_before_utc == start
        assert made.not_valid_after_utc == start + datetime.timedelta(days=365)
        assert made.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == subject[0]
        assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        granted = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        wanted = (
            x509.ExtendedKeyUsageOID.SERVER_AUTH
            if usages is SERVING
            else x509.ExtendedKeyUsageOID.CLIENT_AUTH
        )
        assert list(granted) == [wanted]


@pytest.mark.parametrize(("wanted", "days"), [(86_400, 1), (400 * 86_400, 365)])
async def test_a_request_may_ask_for_a_shorter_validity(
    control_plane: ContextFactory, wanted: int, days: int
) -> None:
    settings = ControllerSettings(release=Release(1, 36), sign_certificate=sign)
    async with control_plane("csrsigning", settings=settings, release="1.36") as plane:
        with pytest.raises(ApiError, match="may not specify a duration less than 600 seconds"):
            await ask(
                plane, request_for("a"), "kube-apiserver-client", CLIENT, expirationSeconds=599
            )
        await ask(
            plane, request_for("a"), "kube-apiserver-client", CLIENT, expirationSeconds=wanted
        )
        await plane.settle(5)
        made, _ = await result(plane)
        assert made is not None
        assert made.not_valid_after_utc - made.not_valid_before_utc == datetime.timedelta(days=days)


def test_what_else_a_request_asks_for_is_not_granted() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    requested = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = x509.load_pem_x509_certificate(
        sign(requested.public_bytes(serialization.Encoding.PEM), ["client auth"])
    )
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(ValueError, match="unrecognized usage"):
        sign(request_for("a"), ["magic"])


async def test_a_kubelet_that_may_ask_is_approved(control_plane: ContextFactory) -> None:
    async with control_plane(
        "csrapproving", "csrsigning", settings=ControllerSettings(sign_certificate=sign)
    ) as plane:
        node = request_for("system:node:a", "system:nodes")
        await ask(plane, node, "kube-apiserver-client-kubelet", CLIENT, approve=False)
        await plane.settle(5)
        made, rows = await result(plane)
        text = "Auto approving kubelet client certificate after SubjectAccessReview."
        assert rows == [("Approved", "AutoApproved", text)] and made is not None


@pytest.mark.parametrize(
    ("condition", "seconds"), [(None, 24 * 3600), ("Denied", 3600), ("Approved", None)]
)
async def test_old_requests_go(
    control_plane: ContextFactory, condition: str | None, seconds: int | None
) -> None:
    async with control_plane("csrcleaner") as plane:
        await ask(plane, request_for("alice"), "kube-apiserver-client", CLIENT, approve=False)
        if condition:
            body = {
                "status": {"conditions": [{"type": condition, "status": "True", "reason": "R"}]}
            }
            await plane.client.patch(
                CERTIFICATE_SIGNING_REQUESTS, "", "r", body, MERGE_PATCH, subresource="approval"
            )
        csr = await plane.get(CERTIFICATE_SIGNING_REQUESTS, "", "r")
        now = plane.clock.time()
        # What is approved and not signed waits for its signer.
        assert [outdated(csr, now + (seconds or 0) + late) for late in (-60, 60)] == [
            False,
            seconds is not None,
        ]


async def test_requests_are_swept_up_every_hour(control_plane: ContextFactory) -> None:
    async with control_plane(
        "csrcleaner", "csrsigning", settings=ControllerSettings(sign_certificate=sign)
    ) as plane:
        await ask(plane, request_for("alice"), "kube-apiserver-client", CLIENT)
        await plane.settle(5)
        assert (await result(plane))[0] is not None
        await plane.settle(3000)
        assert not await plane.missing(CERTIFICATE_SIGNING_REQUESTS, "", "r")
        await plane.settle(4200)
        assert await plane.missing(CERTIFICATE_SIGNING_REQUESTS, "", "r")


# ---- bootstrap tokens ----


def token(identifier: str, **data: str) -> Object:
    full = {
        "token-id": identifier,
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-signing": "true",
        **data,
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in full.items()}
    meta = {"name": f"bootstrap-token-{identifier}"}
    return {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "data": encoded}


async def test_tokens_that_expire_are_deleted(control_plane: ContextFactory) -> None:
    async with control_plane("tokencleaner") as plane:
        soon = rfc3339(plane.clock.time() + 60)
        for made in (
            token("aaaaaa", expiration=soon),
            token("bbbbbb"),
            token("cccccc", expiration="soon"),
        ):
            await plane.client.create(SECRETS, "kube-system", made)
        await plane.settle(1)
        names = ("bootstrap-token-aaaaaa", "bootstrap-token-bbbbbb", "bootstrap-token-cccccc")
        assert [await plane.missing(SECRETS, "kube-system", name) for name in names] == [
            False,
            False,
            True,
        ]
        await plane.settle(60)
        assert [await plane.missing(SECRETS, "kube-system", name) for name in names] == [
            True,
            False,
            True,
        ]


async def test_cluster_info_is_signed_with_every_token(control_plane: ContextFactory) -> None:
    async def data(plane: Plane) -> Any:
        await plane.settle(1)
        return (await plane.get(CONFIG_MAPS, "kube-public", "cluster-info"))["data"]

    async with control_plane("bootstrapsigner") as plane:
        if await plane.missing(NAMESPACES, "", "kube-public"):
            await plane.client.create(NAMESPACES, "", {"metadata": {"name": "kube-public"}})
        info = {
            "metadata": {"name": "cluster-info"},
            "data": {"kubeconfig": "content", "jws-kubeconfig-old123": "x"},
        }
        await plane.client.create(CONFIG_MAPS, "kube-public", info)
        assert await data(plane) == {"kubeconfig": "content"}
        await plane.client.create(SECRETS, "kube-system", token("abcdef"))
        await plane.client.create(
            SECRETS, "kube-system", token("fedcba", **{"usage-bootstrap-signing": "false"})
        )
        signature = detached_signature("content", "abcdef", "0123456789abcdef")
        assert await data(plane) == {"kubeconfig": "content", "jws-kubeconfig-abcdef": signature}
        await plane.client.delete(SECRETS, "kube-system", "bootstrap-token-abcdef")
        assert await data(plane) == {"kubeconfig": "content"}


def test_a_detached_signature_is_a_jws_without_content() -> None:
    header, content, signature = detached_signature("content", "abcdef", "secret").split(".")
    assert base64.urlsafe_b64decode(header + "==") == b'{"alg":"HS256","kid":"abcdef"}'
    assert not content and len(signature) == 43


# ---- aggregated roles ----


async def role(plane: Plane, name: str, resource: str, **labels: str) -> None:
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}
    await plane.client.create(
        CLUSTER_ROLES, "", {"metadata": {"name": name, "labels": labels}, "rules": [rule]}
    )


async def test_rules_are_gathered_also_from_roles_that_gather(
    control_plane: ContextFactory,
) -> None:
    async def resources(plane: Plane, name: str) -> list[str]:
        await plane.settle(1)
        return [
            rule["resources"][0]
            for rule in (await plane.get(CLUSTER_ROLES, "", name)).get("rules") or ()
        ]

    async with control_plane("clusterrole-aggregation") as plane:
        await role(plane, "b", "pods", part="yes")
        await role(plane, "a", "nodes", part="yes")
        for name, part in (("sum", "yes"), ("all", "sum")):
            selector = {"clusterRoleSelectors": [{"matchLabels": {"part": part}}]}
            meta = {"name": name, "labels": {"part": "sum"} if name == "sum" else {}}
            await plane.client.create(
                CLUSTER_ROLES, "", {"metadata": meta, "aggregationRule": selector}
            )
        assert await resources(plane, "sum") == ["nodes", "pods"] == await resources(plane, "all")
        await plane.client.delete(CLUSTER_ROLES, "", "a")
        assert await resources(plane, "all") == ["pods"]
        await plane.client.patch(CLUSTER_ROLES, "", "sum", {"rules": []}, MERGE_PATCH)
        assert await resources(plane, "sum") == ["pods"]
        assert (await plane.client.list(CLUSTER_ROLE_BINDINGS)).items


@pytest.mark.parametrize(
    ("release", "owner"),
    [
        ("1.20", ("kube-controller-manager", "Update")),
        ("1.21", ("clusterrole-aggregation-controller", "Apply")),
    ],
)
async def test_gathered_rules_belong_to_the_controller(
    control_plane: ContextFactory, release: str, owner: tuple[str, str]
) -> None:
    async with control_plane("clusterrole-aggregation", release=release) as plane:
        await role(plane, "a", "nodes", part="yes")
        selector = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
        sums = {"metadata": {"name": "sum"}, "aggregationRule": selector}
        await plane.client.create(CLUSTER_ROLES, "", sums)
        await plane.settle(1)
        made = await plane.get(CLUSTER_ROLES, "", "sum")
        assert [rule["resources"] for rule in made["rules"]] == [["nodes"]]
        assert [
            (entry["manager"], entry["operation"])
            for entry in made["metadata"]["managedFields"]
            if "f:rules" in entry["fieldsV1"]
        ] == [owner]
