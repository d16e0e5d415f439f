"""Permission to create or update a certificate signing request does not permit approving or signing
it.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.apiserver.admission.support import refused, run
from tests.apiserver.security.support import as_user, grant, rule

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
GROUP = "certificates.k8s.io"
MERGE = "application/merge-patch+json"
CLIENT = "kubernetes.io/kube-apiserver-client"
APPROVED = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}}
FAILED = {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "r"}]}}
EVE = as_user("eve")
WRITE = rule(
    "create get update patch",
    "certificatesigningrequests certificatesigningrequests/approval "
    "certificatesigningrequests/status",
    GROUP,
)


def request(signer: str, *organizations: str) -> dict[str, Any]:
    names = [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, o) for o in organizations]
    names.append(x509.NameAttribute(x509.NameOID.COMMON_NAME, "eve"))
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name(names))
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    return {
        "metadata": {"name": "r"},
        "spec": {
            "signerName": signer,
            "request": base64.b64encode(pem).decode(),
            "usages": ["client auth"],
        },
    }


@pytest.mark.parametrize(
    ("signers", "allowed"),
    [("", False), ("other.org/*", False), ("example.com/x", True), ("example.com/*", True)],
)
@pytest.mark.parametrize(
    ("verb", "target", "change"),
    [
        ("approve", "approval", APPROVED),
        ("sign", "status", FAILED),
    ],
)
async def test_deciding_takes_a_right_on_the_signer(
    verb: str, target: str, change: dict[str, Any], signers: str, allowed: bool
) -> None:
    async with run() as api:
        rules = [rule(verb, "signers", GROUP, names=signers)] if signers else []
        await grant(api, "eve", WRITE, *rules, namespace="")
        await api.ok("POST", REQUESTS, request("example.com/x"))
        if allowed:
            await api.ok("PATCH", f"{REQUESTS}/r/{target}", change, media=MERGE, **EVE)
            return
        text = await refused(api, "PATCH", f"{REQUESTS}/r/{target}", change, media=MERGE, **EVE)
        assert text == f'user not permitted to {verb} requests with signerName "example.com/x"'


async def test_a_status_update_that_decides_nothing_needs_no_right() -> None:
    async with run() as api:
        await grant(api, "eve", WRITE, namespace="")
        await api.ok("POST", REQUESTS, request("example.com/x"))
        label = {"metadata": {"labels": {"a": "b"}}}
        await api.ok("PATCH", f"{REQUESTS}/r/status", label, media=MERGE, **EVE)


async def test_requests_for_system_masters_are_refused() -> None:
    async with run() as api:
        problem = await refused(api, "POST", REQUESTS, request(CLIENT, "a", "system:masters"))
        assert problem == f"use of {CLIENT} signer with system:masters group is not allowed"
        await api.ok("POST", REQUESTS, request("example.com/x", "system:masters"))


_OTHER = {"type": "Approved", "status": "True", "reason": "other"}


@pytest.mark.parametrize(
    ("version", "conditions", "reason"),
    [
        ("v1", [], None),  # left out: refused
        ("v1", [_OTHER], "r"),  # other words: the old ones stay
        ("v1", [_OTHER, {"type": "Denied", "status": "True"}], None),
        ("v1beta1", [], "r"),
        ("v1beta1", [_OTHER, {"type": "Denied", "status": "True"}], "r"),
    ],
)
async def test_a_status_update_does_not_decide(
    version: str, conditions: list[dict[str, str]], reason: str | None
) -> None:
    async with run() as api:
        await api.ok("POST", REQUESTS, request("example.com/x"))
        await api.ok("PATCH", f"{REQUESTS}/r/approval", APPROVED, media=MERGE)
        path = f"{REQUESTS}/r/status".replace("/v1/", f"/{version}/")
        status, answer = await api.call(
            "PATCH", path, {"status": {"conditions": conditions}}, media=MERGE
        )
        if reason is None:
            assert (status, answer["details"]["causes"][-1]["field"]) == (422, "status.conditions")
        else:
            assert [c["reason"] for c in answer["status"]["conditions"]] == [reason]


POD_REQUESTS = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"


def pod_request() -> dict[str, Any]:
    csr = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(
        ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()
    )
    stub = csr.public_bytes(serialization.Encoding.DER)
    return {
        "metadata": {"name": "r"},
        "spec": {
            "signerName": "example.com/x",
            "podName": "p",
            "podUID": "1",
            "serviceAccountName": "default",
            "serviceAccountUID": "2",
            "nodeName": "n",
            "nodeUID": "3",
            "maxExpirationSeconds": 86400,
            "stubPKCS10Request": base64.b64encode(stub).decode(),
        },
    }


@pytest.mark.parametrize("signers", ["", "example.com/*"])
async def test_signing_a_pod_certificate_without_the_right_is_invalid(signers: str) -> None:
    async with run(release="1.37", disabled_admission=frozenset({"CertificateSigning"})) as api:
        write = rule("patch", "podcertificaterequests/status", GROUP)
        rules = [rule("sign", "signers", GROUP, names=signers)] if signers else []
        await grant(api, "eve", write, *rules, namespace="")
        await api.ok("POST", POD_REQUESTS, pod_request())
        target = f"{POD_REQUESTS}/r/status"
        await api.ok("PATCH", target, {"status": {}}, media=MERGE, **EVE)  # decides nothing
        denied = {
            "type": "Denied",
            "status": "True",
            "reason": "r",
            "message": "m",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
        change = {"status": {"conditions": [denied]}}
        status, found = await api.call("PATCH", target, change, media=MERGE, **EVE)
        if signers:
            assert status == 200
            return
        text = 'User "eve" is not permitted to "sign" for signer "example.com/x"'
        assert (status, found["reason"]) == (422, "Invalid")
        assert found["message"] == (
            'PodCertificateRequest.certificates.k8s.io "r" is invalid: '
            f"spec.signerName: Forbidden: {text}"
        )
        # An invalid status is reported first.
        wrong = {"status": {"conditions": [{**denied, "type": "Odd"}]}}
        status, found = await api.call("PATCH", target, wrong, media=MERGE, **EVE)
        assert status == 422 and "signerName" not in found["message"]
