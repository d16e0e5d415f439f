"""The bundle of the API server's signer, and PodCertificateRequests that have served."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.conftest import ContextFactory

from transom.controllers.base import ControllerSettings
from transom.controllers.pod_certificate_cleaner import POD_CERTIFICATE_REQUESTS
from transom.controllers.trust_bundle_publisher import (
    CLUSTER_TRUST_BUNDLES,
    SIGNER,
    trust_bundle_name,
)
from transom.kit.pki import make_ca
from transom.machinery.objects import Object
from transom.machinery.releases import Release

PUBLISHER = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
CLEANER = "podcertificaterequest-cleaner-controller"


@pytest.fixture(scope="module")
def authorities() -> list[str]:
    return [make_ca(name).certificate.decode() for name in ("one", "two")]


async def test_the_bundle_of_the_api_server_is_published(
    control_plane: ContextFactory, authorities: list[str]
) -> None:
    mine, other = authorities
    settings = ControllerSettings(root_ca=mine, release=Release(1, 37))
    async with control_plane(PUBLISHER, settings=settings, release="1.37") as plane:
        name = trust_bundle_name(SIGNER, mine)
        assert name.startswith("kubernetes.io:kube-apiserver-serving:")
        bundle = await plane.get(CLUSTER_TRUST_BUNDLES, "", name)
        assert bundle["spec"] == {"signerName": SIGNER, "trustBundle": mine}
        old: Object = {
            "metadata": {"name": trust_bundle_name(SIGNER, other)},
            "spec": {"signerName": SIGNER, "trustBundle": other},
        }
        await plane.client.create(CLUSTER_TRUST_BUNDLES, "", old)
        await plane.client.create(
            CLUSTER_TRUST_BUNDLES,
            "",
            {"metadata": {"name": "mine"}, "spec": {"trustBundle": other}},
        )
        await plane.client.delete(CLUSTER_TRUST_BUNDLES, "", name)
        await plane.settle()
        found = (await plane.client.list(CLUSTER_TRUST_BUNDLES)).items
        assert [one["metadata"]["name"] for one in found] == [name, "mine"]


async def test_requests_are_deleted_after_a_quarter_of_an_hour(
    control_plane: ContextFactory,
) -> None:
    async with control_plane(CLEANER, release="1.37") as plane:
        key = ed25519.Ed25519PrivateKey.generate()
        csr = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, None)
        der = csr.public_bytes(serialization.Encoding.DER)
        spec = {
            "signerName": "example.com/signer",
            "podName": "p",
            "podUID": "1",
            "serviceAccountName": "default",
            "serviceAccountUID": "2",
            "nodeName": "n",
            "nodeUID": "3",
            "stubPKCS10Request": base64.b64encode(der).decode(),
        }
        made = await plane.client.create(
            POD_CERTIFICATE_REQUESTS, "default", {"metadata": {"name": "r"}, "spec": spec}
        )
        assert made["spec"]["maxExpirationSeconds"] == 86400
        await plane.settle(800)
        await plane.get(POD_CERTIFICATE_REQUESTS, "default", "r")
        await plane.settle(500)
        assert await plane.missing(POD_CERTIFICATE_REQUESTS, "default", "r")
