"""What admission webhooks are sent: subresources, custom objects, collections; time-outs and audit
annotations.
"""

from __future__ import annotations

import asyncio
import base64

import pytest
from tests.apiserver.webhooks.configurations import (
    ALLOW,
    CONFIGMAPS,
    HOOKS,
    Json,
    configmap,
    hook,
    install,
    rule,
    run,
)
from tests.apiserver.webhooks.endpoint import CA, Endpoint, context, patch
from tests.conftest import UVLOOP, Backend

from transom.http import HttpServer
from transom.http.server import listen_sockets
from transom.kit import pki


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


async def test_the_object_in_reviews_of_subresources() -> None:
    async with run() as api:

        def behave(review: Json) -> Json:
            if (
                review["request"].get("subResource") == "scale"
                and review["request"]["operation"] == "UPDATE"
            ):
                return patch({"op": "replace", "path": "/spec/replicas", "value": 7})
            return ALLOW

        endpoint = await Endpoint(behave).start()
        await install(
            api,
            "mutating",
            hook(endpoint.config(), rules=rule("apps", "*", "*/scale") + rule("", "v1", "pods/*")),
        )
        labels = {"app": "a"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "c"}]},
        }
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        await api.ok(
            "POST",
            deployments,
            {
                "metadata": {"name": "d"},
                "spec": {"selector": {"matchLabels": labels}, "template": template},
            },
        )
        scaled = await api.ok(
            "PATCH",
            f"{deployments}/d/scale",
            {"spec": {"replicas": 3}},
            media="application/merge-patch+json",
        )
        assert scaled["spec"]["replicas"] == 7
        requested = endpoint.reviews[0]["request"]
        assert requested["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        assert (requested["object"]["spec"], requested["oldObject"]["spec"]) == (
            {"replicas": 3},
            {"replicas": 1},
        )

        await api.ok(
            "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        await api.ok(
            "POST",
            "/api/v1/namespaces/default/pods",
            {
                "metadata": {"name": "p"},
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "c", "image": "c"}],
                },
            },
        )
        await api.call(
            "GET",
            "/api/v1/namespaces/default/pods/p/exec?command=ls&command=-l&stdin=true&container=c",
        )
        await api.ok(
            "POST",
            "/api/v1/namespaces/default/pods/p/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}},
        )
        connected, evicted = [
            r["request"]
            for r in endpoint.reviews
            if r["request"].get("subResource") in ("exec", "eviction")
        ]
        assert (connected["operation"], connected["subResource"], connected["options"]) == (
            "CONNECT",
            "exec",
            None,
        )
        assert connected["object"] == {
            "kind": "PodExecOptions",
            "apiVersion": "v1",
            "stdin": True,
            "container": "c",
            "command": ["ls", "-l"],
        }
        assert (evicted["operation"], evicted["kind"]["kind"]) == ("CREATE", "Eviction")
        endpoint.stop()


async def test_webhook_configurations_are_not_reviewed() -> None:
    async with run() as api:
        down = {"url": "https://127.0.0.1:1/x"}
        everything = [
            {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
        ]
        await install(api, "validating", hook(down, rules=everything))
        await install(api, "mutating", hook(down, rules=everything))
        assert (await api.call("POST", CONFIGMAPS, configmap("a")))[0] == 500
        await api.ok("DELETE", f"{HOOKS}mutatingwebhookconfigurations/c")
        await api.ok("DELETE", f"{HOOKS}validatingwebhookconfigurations/c")
        await api.ok("POST", CONFIGMAPS, configmap("a"))


async def test_a_slow_webhook_costs_its_timeout_and_the_request_its_own() -> None:
    async with run() as api:

        async def never(_review: Json) -> bytes:
            await asyncio.Event().wait()
            return b""

        endpoint = await Endpoint(never).start()
        await install(api, "validating", hook(endpoint.config(), failurePolicy="Fail"))
        code, body = await api.call("POST", CONFIGMAPS + "?timeout=200ms", configmap("a"))
        url = f"https://127.0.0.1:{endpoint.port}/x?timeout=1s"
        assert (code, body["message"]) == (
            500,
            (
                f'Internal error occurred: failed calling webhook "a.example.com": Post "{url}": '
                "context deadline exceeded"
            ),
        )
        endpoint.stop()


async def test_a_webhook_that_crashes_during_a_call() -> None:
    async with run() as api:
        endpoint = await Endpoint(lambda _r: None).start()
        await install(api, "mutating", hook(endpoint.config(), failurePolicy="Ignore"))
        await api.ok("POST", CONFIGMAPS, configmap("a"))
        await install(api, "validating", hook(endpoint.config()))
        code, body = await api.call("POST", CONFIGMAPS, configmap("b"))
        assert code == 500
        assert body["message"].endswith(": EOF")
        endpoint.stop()


async def test_audit_annotations() -> None:
    async with run() as api:
        response = {
            **patch({"op": "add", "path": "/data/a", "value": "b"}),
            "auditAnnotations": {"why": "so", "b d": ""},
        }
        endpoint = await Endpoint(lambda _r: response).start()
        await install(api, "mutating", hook(endpoint.config()))
        server = api.server
        ctx = server.context()
        res = server.resource("", "v1", "configmaps")
        await server.storage.create(ctx, res, "default", configmap("a"))
        assert ctx.annotations == {
            "a.example.com/why": "so",
            "mutation.webhook.admission.k8s.io/round_0_index_0": (
                '{"configuration":"c","webhook":"a.example.com","mutated":true}'
            ),
        }
        assert list(ctx.body_annotations) == ["patch.webhook.admission.k8s.io/round_0_index_0"]
        endpoint.stop()


@pytest.mark.parametrize("by_service", [False, True])
async def test_a_webhook_that_points_back_at_the_server(by_service: bool) -> None:
    """The call is a request like any other: it is answered, with a refusal, and nothing waits for
    itself.
    """
    sockets = listen_sockets(["127.0.0.1"], 0)
    address = f"127.0.0.1:{sockets[0].getsockname()[1]}"

    async with run(address=address, ca=CA.certificate) as api:
        pair = pki.issue_server(CA, "kube-apiserver", ["kubernetes.default.svc"], ["127.0.0.1"])
        front = HttpServer(api.server.handler, context(pair), bodies=api.server.handler)
        await front.serve(sockets)
        client: Json = {
            "url": f"https://{address}{CONFIGMAPS}",
            "caBundle": base64.b64encode(CA.certificate).decode(),
        }
        if by_service:
            client = {"service": {"namespace": "default", "name": "kubernetes", "path": CONFIGMAPS}}
        await install(api, "mutating", hook(client))
        code, body = await api.call("POST", CONFIGMAPS, configmap("a"))
        # The service is this very server, which knows itself; by URL it is any other server.
        why = (
            "cannot be handled as a ConfigMap"
            if by_service
            else 'User "system:anonymous" cannot create resource'
        )
        assert (code, why in body["message"]) == (500, True), body
        await front.stop(0.1)


async def test_custom_objects_in_the_version_of_the_rule() -> None:
    async with run() as api:
        schema = {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "size": {"type": "integer"},
                            "colour": {"type": "string", "default": "red"},
                        },
                    }
                },
            }
        }
        await api.ok(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {
                "metadata": {"name": "cogs.wheel.example.com"},
                "spec": {
                    "group": "wheel.example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "cogs", "kind": "Cog"},
                    "versions": [
                        {"name": v, "served": True, "storage": v == "v1", "schema": schema}
                        for v in ("v1", "v2")
                    ],
                },
            },
        )
        cogs = "/apis/wheel.example.com/v1/namespaces/default/cogs"
        async with asyncio.timeout(10):
            while True:
                if (await api.call("GET", cogs))[0] == 200:
                    break
                await asyncio.sleep(0.005)
        endpoint = await Endpoint(
            lambda _r: patch(
                {"op": "replace", "path": "/spec", "value": {"size": 2, "unknown": True}}
            )
        ).start()
        await install(
            api,
            "mutating",
            hook(endpoint.config(), rules=rule("wheel.example.com", "v2", "cogs", "CREATE")),
        )
        made = await api.ok(
            "POST",
            cogs,
            {
                "apiVersion": "wheel.example.com/v1",
                "kind": "Cog",
                "metadata": {"name": "c"},
                "spec": {"size": 1},
            },
        )
        assert made["apiVersion"] == "wheel.example.com/v1"
        assert made["spec"] == {"size": 2, "colour": "red"}
        requested = endpoint.reviews[0]["request"]
        assert (requested["object"]["apiVersion"], requested["requestKind"]["version"]) == (
            "wheel.example.com/v2",
            "v1",
        )
        endpoint.stop()


async def test_a_collection_has_no_name() -> None:
    async with run() as api:
        await api.ok("POST", CONFIGMAPS, configmap("a", labels={"x": "y"}))
        endpoint = await Endpoint(lambda _r: ALLOW).start()
        await install(api, "validating", hook(endpoint.config()))
        await api.ok("DELETE", CONFIGMAPS + "?labelSelector=x=y")
        (requested,) = [r["request"] for r in endpoint.reviews]
        assert ("name" in requested, requested["oldObject"]["metadata"]["name"]) == (False, "a")
        endpoint.stop()
