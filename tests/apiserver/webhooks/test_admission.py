"""Webhooks in admission, against a real one over TLS."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from tests.apiserver.webhooks.configurations import (
    ALLOW,
    CONFIGMAPS,
    Json,
    configmap,
    hook,
    install,
    rule,
    run,
)
from tests.apiserver.webhooks.endpoint import Endpoint, http, patch, reviewed
from tests.conftest import UVLOOP, Backend


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


async def test_a_mutation_is_applied_and_defaults_are_filled_in_again() -> None:
    async with run() as api:
        container = {"name": "side", "image": "side:1"}
        endpoint = await Endpoint(
            lambda _r: patch({"op": "add", "path": "/spec/containers/-", "value": container})
        ).start()
        await install(
            api, "mutating", hook(endpoint.config(), rules=rule("", "v1", "pods", "CREATE"))
        )
        await api.ok(
            "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        pod = await api.ok(
            "POST",
            "/api/v1/namespaces/default/pods?fieldManager=me",
            {
                "metadata": {"name": "p"},
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "c", "image": "c:1"}],
                },
            },
        )
        side = pod["spec"]["containers"][1]
        assert (side["name"], side["imagePullPolicy"], side["resources"]) == (
            "side",
            "IfNotPresent",
            {},
        )
        requested = endpoint.reviews[0]["request"]
        assert list(requested) == [
            "uid",
            "kind",
            "resource",
            "requestKind",
            "requestResource",
            "name",
            "namespace",
            "operation",
            "userInfo",
            "object",
            "oldObject",
            "dryRun",
            "options",
        ]
        assert requested["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert requested["requestResource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert requested["userInfo"]["username"] == "admin"
        assert requested["options"] == {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "me",
        }
        assert requested["object"]["metadata"]["creationTimestamp"] is None
        assert (requested["oldObject"], requested["dryRun"], requested["operation"]) == (
            None,
            False,
            "CREATE",
        )
        endpoint.stop()


@pytest.mark.parametrize(
    ("response", "code", "reason", "message"),
    [
        ({"allowed": False}, 400, None, "denied the request without explanation"),
        (
            {"allowed": False, "status": {"message": "no", "code": 403, "reason": "Forbidden"}},
            403,
            "Forbidden",
            "denied the request: no",
        ),
        (
            {"allowed": False, "status": {"reason": "TooBad"}},
            400,
            "TooBad",
            "denied the request: TooBad",
        ),
        (
            {"allowed": False, "status": {"message": "no", "code": 200, "status": "Success"}},
            400,
            None,
            "denied the request: no",
        ),
    ],
)
@pytest.mark.parametrize("sort", ["mutating", "validating"])
async def test_denials(
    sort: str, response: Json, code: int, reason: str | None, message: str
) -> None:
    async with run() as api:
        endpoint = await Endpoint(lambda _r: {**response, "warnings": ['mind "it"']}).start()
        await install(api, sort, hook(endpoint.config()))
        answer = await api.send("POST", CONFIGMAPS, configmap("a"))
        status = orjson.loads(answer.body)
        assert (answer.status, status.get("reason"), status["status"]) == (code, reason, "Failure")
        assert status["message"] == f'admission webhook "a.example.com" {message}'
        assert (b"Warning", b'299 - "mind \\"it\\""') in answer.headers
        assert (await api.call("GET", f"{CONFIGMAPS}/a"))[0] == 404
        endpoint.stop()


def _wrong(**changes: Any) -> Callable[[Json], bytes]:
    def behave(review: Json) -> bytes:
        body = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": review["request"]["uid"], "allowed": True},
        }
        response = {**body["response"], **changes.pop("response", {})}  # type: ignore[dict-item]
        body = {k: v for k, v in {**body, "response": response, **changes}.items() if v is not None}
        return http(200, orjson.dumps(body))

    return behave


@pytest.mark.parametrize(
    ("sort", "behave", "why"),
    [
        ("validating", _wrong(response={"uid": "x"}), 'expected response.uid="UID", got "x"'),
        (
            "validating",
            _wrong(kind=None, apiVersion=None),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            "validating",
            _wrong(apiVersion="admission.k8s.io/v1beta1"),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            "validating",
            _wrong(kind="Thing", apiVersion="v1"),
            (
                'no kind "Thing" is registered for version "v1" in scheme '
                '"k8s.io/apiserver/pkg/util/webhook/client.go:71"'
            ),
        ),
        (
            "validating",
            lambda _r: http(200, b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}'),
            "webhook response was absent",
        ),
        (
            "validating",
            _wrong(response={"patch": "e30=", "patchType": "JSONPatch"}),
            "validating webhook may not return response.patch",
        ),
        (
            "mutating",
            _wrong(response={"patch": "e30="}),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            "mutating",
            _wrong(response={"patchType": "JSONPatch"}),
            "webhook returned response.patchType but not response.patch",
        ),
        (
            "mutating",
            _wrong(response={"patch": "W3t9XQ==", "patchType": "Other"}),
            'unsupported patch type "Other"',
        ),
    ],
)
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_invalid_responses(sort: str, behave: Any, why: str, policy: str) -> None:
    async with run() as api:
        endpoint = await Endpoint(behave).start()
        await install(api, sort, hook(endpoint.config(), failurePolicy=policy))
        code, body = await api.call("POST", CONFIGMAPS, configmap("a"))
        if policy == "Ignore":
            assert code == 201
        else:
            uid = endpoint.reviews[0]["request"]["uid"]
            text = f'failed calling webhook "a.example.com": {why.replace("UID", uid)}'
            assert (code, body["message"]) == (500, f"Internal error occurred: {text}")
            assert body["details"] == {"causes": [{"message": text}]}
        endpoint.stop()


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ({"op": "add"}, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (
            [{"op": "add", "path": "/metadata/labels/a", "value": "b"}],
            (
                'add operation does not apply: doc is missing path: "/metadata/labels/a": '
                "missing value"
            ),
        ),
        (
            [{"op": "add", "path": "/data/x", "value": "b"}, {"op": "remove", "path": "/data/y"}],
            (
                "error in remove for path: '/data/y': Unable to remove nonexistent key: y: "
                "missing value"
            ),
        ),
        (
            [{"op": "test", "path": "/data/k", "value": "w"}],
            "testing value /data/k failed: test failed",
        ),
        ([{"op": "fold", "path": "/data/k"}], "Unexpected kind: fold"),
        (
            [{"op": "replace", "path": "/nix/k", "value": 1}],
            "replace operation does not apply: doc is missing path: /nix/k: missing value",
        ),
    ],
)
async def test_patches_that_do_not_apply(operations: Any, why: str) -> None:
    async with run() as api:
        raw = base64.b64encode(orjson.dumps(operations)).decode()
        endpoint = await Endpoint(
            lambda _r: {"allowed": True, "patchType": "JSONPatch", "patch": raw}
        ).start()
        await install(api, "mutating", hook(endpoint.config(), failurePolicy="Ignore"))
        code, body = await api.call("POST", CONFIGMAPS, configmap("a"))
        assert (code, body["message"]) == (500, f"Internal error occurred: {why}")
        endpoint.stop()


async def test_a_patch_that_breaks_the_type_is_an_internal_error() -> None:
    async with run() as api:
        endpoint = await Endpoint(
            lambda _r: patch({"op": "replace", "path": "/data", "value": 7})
        ).start()
        await install(api, "mutating", hook(endpoint.config()))
        code, body = await api.call("POST", CONFIGMAPS, configmap("a"))
        assert code == 500
        assert "Data: ReadMapCB: expect { or n, but found 7" in body["message"]
        endpoint.stop()


async def test_updates_and_deletes_show_the_old_object() -> None:
    async with run() as api:
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        endpoint = await Endpoint(lambda _r: ALLOW).start()
        await install(api, "mutating", hook(endpoint.config()))
        await install(api, "validating", hook(endpoint.config()))
        await api.ok(
            "PATCH",
            f"{CONFIGMAPS}/a?dryRun=All",
            {"data": {"k": "w"}},
            media="application/merge-patch+json",
        )
        await api.ok("DELETE", f"{CONFIGMAPS}/a?gracePeriodSeconds=3")
        changed, _, gone, _ = [r["request"] for r in endpoint.reviews]
        assert (changed["operation"], changed["dryRun"]) == ("UPDATE", True)
        assert changed["options"] == {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "dryRun": ["All"],
        }
        assert (changed["object"]["data"], changed["oldObject"]["data"]) == ({"k": "w"}, {"k": "v"})
        assert (gone["operation"], gone["object"], gone["oldObject"]["data"]) == (
            "DELETE",
            None,
            {"k": "v"},
        )
        assert gone["options"] == {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "gracePeriodSeconds": 3,
        }
        endpoint.stop()


async def test_a_patch_where_there_is_no_object() -> None:
    async with run() as api:
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        endpoint = await Endpoint(
            lambda _r: patch({"op": "add", "path": "/data/a", "value": "b"})
        ).start()
        await install(api, "mutating", hook(endpoint.config()))
        code, body = await api.call("DELETE", f"{CONFIGMAPS}/a")
        assert (code, body["message"]) == (
            500,
            'Internal error occurred: admission webhook "a.example.com" attempted to modify '
            "the object, which is not "
            "supported for this operation",
        )
        endpoint.stop()


async def test_selectors_and_scope() -> None:
    async with run() as api:
        endpoint = await Endpoint(lambda _r: ALLOW).start()
        wanted = {"matchLabels": {"touch": "me"}}
        await install(
            api,
            "validating",
            hook(endpoint.config(), "object.example.com", objectSelector=wanted),
            hook(
                endpoint.config("/n"),
                "space.example.com",
                namespaceSelector=wanted,
                rules=rule("", "v1", "*"),
            ),
        )
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        assert not endpoint.reviews
        await api.ok("POST", CONFIGMAPS, configmap("b", labels={"touch": "me"}))
        await api.ok("PUT", f"{CONFIGMAPS}/b", configmap("b"))  # the old object counts too
        assert [h.split()[1] for h in endpoint.heads] == ["/x?timeout=3s"] * 2
        # A namespace is judged by its own labels, what is in no namespace by none.
        await api.ok(
            "POST", "/api/v1/namespaces", {"metadata": {"name": "n1", "labels": {"touch": "me"}}}
        )
        await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "n2"}})
        await api.ok("POST", "/api/v1/namespaces/n1/configmaps", configmap("a"))
        await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "node"}})
        assert [r["request"]["name"] for r in endpoint.reviews[2:]] == ["n1", "a", "node"]
        assert endpoint.reviews[2]["request"]["namespace"] == "n1"
        endpoint.stop()


async def test_equivalent_versions_are_converted() -> None:
    async with run() as api:
        exact = await Endpoint(lambda _r: ALLOW).start()
        equal = await Endpoint(
            lambda _r: patch({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})
        ).start()
        rules = rule("policy", "v1beta1", "poddisruptionbudgets", "CREATE")
        await install(
            api,
            "mutating",
            hook(equal.config(), rules=rules),
            hook(exact.config(), "b.example.com", rules=rules, matchPolicy="Exact"),
        )
        made = await api.ok(
            "POST",
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {
                "metadata": {"name": "p"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
            },
        )
        assert (made["apiVersion"], made["metadata"]["labels"]) == ("policy/v1", {"a": "b"})
        requested = equal.reviews[0]["request"]
        assert (requested["kind"]["version"], requested["requestKind"]["version"]) == (
            "v1beta1",
            "v1",
        )
        assert requested["object"]["apiVersion"] == "policy/v1beta1"
        assert not exact.reviews
        for endpoint in (exact, equal):
            endpoint.stop()


async def test_the_beta_of_reviews_and_of_configurations() -> None:
    async with run() as api:

        def behave(review: Json) -> bytes:
            # The beta never looked at uids and kinds.
            body = {
                "response": {
                    "allowed": True,
                    "patch": base64.b64encode(
                        b'[{"op":"add","path":"/data/a","value":"b"}]'
                    ).decode(),
                }
            }
            assert review["apiVersion"] == "admission.k8s.io/v1beta1"
            return http(200, orjson.dumps(body))

        endpoint = await Endpoint(behave).start()
        given = hook(endpoint.config())
        for name in ("sideEffects", "admissionReviewVersions", "timeoutSeconds"):
            del given[name]
        await api.ok(
            "POST",
            "/apis/admissionregistration.k8s.io/v1beta1/mutatingwebhookconfigurations",
            {
                "apiVersion": "admissionregistration.k8s.io/v1beta1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "c"},
                "webhooks": [given],
            },
        )
        made = await api.ok("POST", CONFIGMAPS, configmap("a"))
        assert made["data"] == {"k": "v", "a": "b"}
        assert "?timeout=30s" in endpoint.heads[0]
        code, body = await api.call("POST", CONFIGMAPS + "?dryRun=All", configmap("b"))
        assert (code, body["message"]) == (
            400,
            'admission webhook "a.example.com" does not support dry run',
        )
        endpoint.stop()


async def test_order_and_reinvocation() -> None:
    async with run() as api:
        calls: list[str] = []

        def adding(key: str) -> Callable[[Json], Json]:
            def behave(review: Json) -> Json:
                calls.append(key)
                data = review["request"]["object"]["data"]
                return (
                    ALLOW
                    if key in data
                    else patch({"op": "add", "path": f"/data/{key}", "value": "x"})
                )

            return behave

        ends = {key: await Endpoint(adding(key)).start() for key in ("a", "b", "c", "d")}
        await install(
            api,
            "mutating",
            hook(ends["c"].config(), "c.example.com", reinvocationPolicy="IfNeeded"),
            hook(ends["d"].config(), "d.example.com", reinvocationPolicy="IfNeeded"),
            name="z",
        )
        await install(
            api,
            "mutating",
            hook(ends["a"].config(), reinvocationPolicy="IfNeeded"),
            hook(ends["b"].config(), "b.example.com"),
            name="y",
        )
        made = await api.ok("POST", CONFIGMAPS, configmap("a"))
        assert set(made["data"]) == {"a", "b", "c", "d", "k"}
        # b does not wish to be asked again; nothing changed after d.
        assert calls == ["a", "b", "c", "d", "a", "c"]
        for endpoint in ends.values():
            endpoint.stop()


async def test_validating_webhooks_are_called_in_parallel() -> None:
    async with run() as api:
        met = asyncio.Barrier(3)

        async def behave(review: Json) -> bytes:
            await met.wait()  # no call continues before all are here
            return reviewed(review, ALLOW)

        endpoint = await Endpoint(behave).start()
        await install(
            api, "validating", *(hook(endpoint.config(), f"{n}.example.com") for n in "abc")
        )
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        endpoint.stop()
