"""agnhost's webhooks: reviews over TLS with the certificate that is mounted."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from typing import Any

import pytest
from tests.userland.conftest import Box

from transom.kit import pki

AUTHORITY = pki.make_ca("authority")
PAIR = pki.issue_server(AUTHORITY, "webhook", ("webhook.ns.svc",), ())
PODS = {"group": "", "version": "v1", "resource": "pods"}
CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
FLAGS = ("--tls-cert-file=/certs/tls.crt", "--tls-private-key-file=/certs/tls.key", "--port=8444")


@pytest.fixture
def tester() -> Box:
    box = Box(
        name="k8s.gcr.io/e2e-test-images/agnhost:2.21",
        program="agnhost",
        entrypoint=("/agnhost",),
        cmd=("pause",),
    )
    box.files.mkdir("/certs")
    box.files.write("/certs/tls.crt", PAIR.certificate)
    box.files.write("/certs/tls.key", PAIR.key)
    return box


def ask(box: Box, command: tuple[str, ...], path: str, review: dict[str, Any]) -> tuple[int, str]:
    trusted = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    body = json.dumps(review).encode()

    async def main() -> tuple[int, str]:
        context = box.start("/agnhost", *command)
        reader, writer = await asyncio.open_connection(
            sock=box.dial(8444), ssl=trusted, server_hostname="webhook.ns.svc"
        )
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: "
            f"application/json\r\nContent-Length: {len(body)}\r\n"
        )
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        answer = (await reader.read(-1)).decode()
        writer.close()
        assert context.program is not None
        context.program.kill()
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    return asyncio.run(main())


def admit(box: Box, path: str, version: str = "v1", **request: Any) -> dict[str, Any]:
    review = {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "request": {"uid": "u", **request},
    }
    status, body = ask(box, ("webhook", *FLAGS), path, review)
    answer = json.loads(body)
    assert (status, answer["apiVersion"], answer["kind"]) == (
        200,
        review["apiVersion"],
        "AdmissionReview",
    )
    response: dict[str, Any] = answer["response"]
    assert response.pop("uid") == "u"
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response


def marked(value: str, **more: Any) -> dict[str, Any]:
    return {
        "operation": "CREATE",
        "object": {"metadata": {}, "data": {"webhook-e2e-test": value}},
        **more,
    }


@pytest.mark.parametrize(
    ("path", "request_", "allowed", "printed"),
    [
        ("/always-deny", {}, False, {"message": "this webhook denies all requests"}),
        (
            "/configmaps",
            marked("webhook-disallow", resource=CONFIG_MAPS),
            False,
            {"reason": "the configmap contains unwanted key and value"},
        ),
        ("/configmaps", marked("fine", resource=CONFIG_MAPS), True, {}),
        (
            "/custom-resource",
            {
                "operation": "DELETE",
                "oldObject": {"data": {"webhook-e2e-test": "webhook-nondeletable"}},
            },
            False,
            {
                "reason": (
                    "the custom resource cannot be deleted because it contains unwanted key and "
                    "value"
                )
            },
        ),
        (
            "/pods",
            {
                "resource": PODS,
                "object": {
                    "metadata": {"labels": {"webhook-e2e-test": "webhook-disallow"}},
                    "spec": {"containers": [{"name": "webhook-disallow"}]},
                },
            },
            False,
            {
                "message": "the pod contains unwanted label; the pod contains unwanted container name;"
            },
        ),
        (
            "/pods/attach",
            {
                "resource": PODS,
                "name": "to-be-attached-pod",
                "subResource": "attach",
                "object": {"stdin": True, "container": "container1"},
            },
            False,
            {"message": "attaching to pod 'to-be-attached-pod' is not allowed"},
        ),
        ("/pods/attach", {"resource": PODS, "name": "other"}, True, {}),
        (
            "/crd",
            {"resource": PODS, "object": {}},
            False,
            {
                "message": "expect resource to be one of [apiextensions.k8s.io/v1beta1, "
                "Resource=customresourcedefinitions, "
                "apiextensions.k8s.io/v1, Resource=customresourcedefinitions] but got /v1, "
                "Resource=pods"
            },
        ),
        (
            "/mutating-pods-sidecar",
            {"resource": PODS},
            False,
            {
                "status": "Failure",
                "message": "No image specified by the sidecar-image parameter",
                "code": 500,
            },
        ),
    ],
)
def test_opinions(
    tester: Box, path: str, request_: dict[str, Any], allowed: bool, printed: dict[str, Any]
) -> None:
    response = admit(tester, path, **request_)
    status = response.get("status", {"metadata": {}})
    assert (response["allowed"], status) == (allowed, {"metadata": {}, **printed})


@pytest.mark.parametrize(
    ("path", "thing", "operation", "where"),
    [
        ("/add-label", {"metadata": {}}, "add", "/metadata/labels"),
        ("/add-label", {"metadata": {"labels": {"a": "b"}}}, "add", "/metadata/labels/added-label"),
        (
            "/add-label",
            {"metadata": {"labels": {"added-label": "no"}}},
            "replace",
            "/metadata/labels/added-label",
        ),
        (
            "/mutating-custom-resource",
            {"data": {"mutation-start": "yes"}},
            "add",
            "/data/mutation-stage-1",
        ),
        (
            "/mutating-custom-resource",
            {"data": {"mutation-start": "yes", "mutation-stage-1": "yes"}},
            "add",
            "/data/mutation-stage-2",
        ),
        (
            "/mutating-pods",
            {"metadata": {"name": "webhook-to-be-mutated"}, "spec": {}},
            "add",
            "/spec/initContainers",
        ),
    ],
)
def test_patches(tester: Box, path: str, thing: dict[str, Any], operation: str, where: str) -> None:
    (patch,) = admit(tester, path, "v1beta1", resource=PODS, object=thing)["patch"]
    assert (patch["op"], patch["path"]) == (operation, where)


def test_no_certificate_no_server(tester: Box) -> None:
    result = tester.run("/agnhost", "webhook", "--tls-cert-file=/nope")
    assert (result.code, result.err) == (255, "open /nope: no such file or directory\n")


def convert(box: Box, wanted: str, *objects: dict[str, Any]) -> dict[str, Any]:
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {
            "uid": "u",
            "desiredAPIVersion": f"stable.example.com/{wanted}",
            "objects": list(objects),
        },
    }
    status, body = ask(box, ("crd-conversion-webhook", *FLAGS), "/crdconvert", review)
    assert status == 200
    response: dict[str, Any] = json.loads(body)["response"]
    assert response["uid"] == "u"
    return response


def test_conversion(tester: Box) -> None:
    one = {"apiVersion": "stable.example.com/v1", "hostPort": "a:1", "other": 1}
    two = {"apiVersion": "stable.example.com/v2", "host": "a", "port": "1", "other": 1}
    assert convert(tester, "v2", one)["convertedObjects"] == [two]
    assert convert(tester, "v1", two)["convertedObjects"] == [one]
    assert convert(tester, "v1", one)["result"] == {
        "metadata": {},
        "status": "Failure",
        "message": (
            "conversion from a version to itself should not call the webhook: stable.example.com/v1"
        ),
    }
