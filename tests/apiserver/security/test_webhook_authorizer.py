"""The authorizers of an AuthorizationConfiguration, with a webhook on loopback."""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from tests.apiserver.harness import Api
from tests.apiserver.security.issuer import Answer, LoopbackServer, new_ca
from tests.apiserver.security.support import DEFAULT, as_user, run

from transom.apiserver.core.access_options import AccessOptions
from transom.http.messages import PeerCertificate
from transom.kit.clock import RealClock
from transom.kit.workers import WorkerThread
from transom.machinery.apiserver_config import ConfigurationError
from transom.machinery.authorization_config import modes_configuration

T = TypeVar("T")
CA = new_ca()
JANE = PeerCertificate("jane", ["devs"])
PODS = f"{DEFAULT}/pods"


def jane_may_read_pods(_method: str, _path: str, body: bytes) -> Answer:
    spec = json.loads(body)["spec"]
    resource = spec.get("resourceAttributes", {})
    status: dict[str, Any] = {"allowed": False}
    if resource.get("resource") == "pods" and resource["verb"] in ("list", "create"):
        status = {"allowed": True}
    elif resource.get("resource") == "secrets":
        status = {"allowed": False, "denied": True, "reason": "no secrets"}
    return 200, {"apiVersion": "authorization.k8s.io/v1", "status": status}


def kubeconfig(folder: Path, server: LoopbackServer) -> str:
    file = folder / "webhook.kubeconfig"
    authority = base64.b64encode(CA.certificate).decode()
    cluster = {
        "server": f"https://127.0.0.1:{server.port}/authorize",
        "certificate-authority-data": authority,
    }
    content = {
        "clusters": [{"name": "w", "cluster": cluster}],
        "users": [{"name": "w", "user": {"token": "secret"}}],
        "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
        "current-context": "w",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


def configuration(folder: Path, server: LoopbackServer, **webhook: Any) -> dict[str, Any]:
    given = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {
            "type": "KubeConfigFile",
            "kubeConfigFile": kubeconfig(folder, server),
        },
        **webhook,
    }
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [
            {"type": "Webhook", "name": "loopback", "webhook": given},
            {"type": "Node", "name": "node"},
            {"type": "RBAC", "name": "rbac"},
        ],
    }


def serve(folder: Path, config: dict[str, Any], **options: Any) -> Any:
    file = folder / "authorization.yaml"
    file.write_text(yaml.safe_dump(config))
    access = AccessOptions(authorization_file=str(file))
    return run(release="1.36", clock=RealClock(), access=access, **options)


class CountingWorkers(WorkerThread):
    def __init__(self) -> None:
        super().__init__()
        self.groups: list[Hashable] = []

    async def run(
        self, work: Callable[[], T], *, group: Hashable = None, seconds: float | None = None
    ) -> T:
        self.groups.append(group)
        return await super().run(work, group=group, seconds=seconds)


async def pods_as_jane(api: Api) -> tuple[int, Any]:
    return await api.call("GET", PODS, peer=JANE)


async def test_the_webhook_decides_before_rbac(tmp_path: Path) -> None:
    async with (
        LoopbackServer(jane_may_read_pods, CA).serving() as webhook,
        serve(tmp_path, configuration(tmp_path, webhook)) as api,
    ):
        assert (await pods_as_jane(api))[0] == 200
        ((method, path, review),) = webhook.requests
        assert (method, path) == ("POST", "/authorize?timeout=3s")
        assert review["spec"] == {
            "resourceAttributes": {
                "namespace": "default",
                "verb": "list",
                "version": "v1",
                "resource": "pods",
            },
            "user": "jane",
            "groups": ["devs", "system:authenticated"],
        }
        # No opinion: RBAC denies. A denial ends the chain, and its reason is shown.
        status, answer = await api.call("GET", f"{DEFAULT}/services", peer=JANE)
        assert status == 403
        status, answer = await api.call("GET", f"{DEFAULT}/secrets", peer=JANE)
        assert status == 403
        assert answer["message"].endswith('in the namespace "default": no secrets')
        # Members of system:masters are not asked about.
        requested = len(webhook.requests)
        assert (await api.call("GET", PODS))[0] == 200
        assert len(webhook.requests) == requested


async def test_answers_are_cached(tmp_path: Path) -> None:
    async with LoopbackServer(jane_may_read_pods, CA).serving() as webhook:
        async with serve(tmp_path, configuration(tmp_path, webhook)) as api:
            for _ in range(3):
                assert (await pods_as_jane(api))[0] == 200
            assert len(webhook.requests) == 1
        config = configuration(tmp_path, webhook, cacheAuthorizedRequests=False)
        webhook.requests.clear()
        async with serve(tmp_path, config) as api:
            for _ in range(3):
                assert (await pods_as_jane(api))[0] == 200
            assert len(webhook.requests) == 3


async def test_cached_answers_take_little_memory(tmp_path: Path) -> None:
    """A review may name many groups; they are not kept."""
    async with (
        LoopbackServer(jane_may_read_pods, CA).serving() as webhook,
        serve(tmp_path, configuration(tmp_path, webhook)) as api,
    ):
        attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(20):
                groups = [f"{number}-{i}-{'g' * 100}" for i in range(2000)]
                spec = {"resourceAttributes": attributes, "user": "jane", "groups": groups}
                body = {"apiVersion": "authorization.k8s.io/v1", "spec": spec}
                body["kind"] = "SubjectAccessReview"
                await api.ok("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
            webhook.requests.clear()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 3 << 20
        finally:
            tracemalloc.stop()


async def test_questions_during_a_request(tmp_path: Path) -> None:
    """Impersonation, reviews and writes ask several questions, each once, without a cache."""
    async with LoopbackServer(lambda *_: (200, {"status": {"allowed": True}}), CA).serving() as web:
        config = configuration(tmp_path, web, cacheAuthorizedRequests=False)
        async with serve(tmp_path, config) as api:
            headers = as_user("joe", "devs")
            headers["peer"] = JANE
            status, _ = await api.call("GET", PODS, **headers)
            assert status == 200
            verbs = [body["spec"]["resourceAttributes"]["verb"] for _, _, body in web.requests]
            assert verbs == ["impersonate", "impersonate", "list"]
            web.requests.clear()
            review = await api.ok(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                {"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes"}}},
                peer=JANE,
            )
            assert review["status"] == {"allowed": True}
            rules = await api.ok(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                {"spec": {"namespace": "default"}},
                peer=JANE,
            )
            assert rules["status"]["incomplete"] is True
            assert "webhook authorizer does not support" in rules["status"]["evaluationError"]


@pytest.mark.parametrize(("policy", "expected"), [("Deny", 500), ("NoOpinion", 200)])
async def test_a_webhook_that_fails(tmp_path: Path, policy: str, expected: int) -> None:
    """An authorizer after it may still allow the request, unless the policy is Deny."""
    async with LoopbackServer(lambda *_: (400, {"error": "broken"}), CA).serving() as webhook:
        config = configuration(tmp_path, webhook, failurePolicy=policy)
        config["authorizers"].append({"type": "AlwaysAllow", "name": "alwaysallow"})
        async with serve(tmp_path, config) as api:
            status, answer = await pods_as_jane(api)
            assert status == expected
            if policy == "Deny":
                assert answer.startswith(
                    'Internal Server Error: "/api/v1/namespaces/default/pods": '
                )


async def test_match_conditions(tmp_path: Path) -> None:
    async with LoopbackServer(jane_may_read_pods, CA).serving() as webhook:
        config = configuration(
            tmp_path,
            webhook,
            matchConditionSubjectAccessReviewVersion="v1",
            matchConditions=[
                {"expression": "has(request.resourceAttributes)"},
                {"expression": "request.resourceAttributes.namespace == 'default'"},
            ],
        )
        async with serve(tmp_path, config) as api:
            assert (await pods_as_jane(api))[0] == 200
            assert len(webhook.requests) == 1
            assert (await api.call("GET", "/api/v1/nodes", peer=JANE))[0] == 403
            assert (await api.call("GET", "/healthz", peer=JANE))[0] == 200  # allowed by RBAC
            assert len(webhook.requests) == 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("request.groups.all(g, request.groups.exists(h, g == h))", "actual cost limit exceeded"),
        ("request.groups.exists(g, g == 'group-19999')", ""),
    ],
)
async def test_conditions_that_cost_much_are_evaluated_in_a_worker(
    tmp_path: Path, condition: str, expected: str
) -> None:
    """The event loop's budget in tests is 100 ms; each of these conditions takes longer."""
    async with LoopbackServer(jane_may_read_pods, CA).serving() as webhook:
        config = configuration(
            tmp_path,
            webhook,
            matchConditionSubjectAccessReviewVersion="v1",
            matchConditions=[{"expression": condition}],
        )
        workers = CountingWorkers()
        async with serve(tmp_path, config, workers=workers) as api:
            attributes = {"verb": "list", "resource": "pods", "namespace": "default"}
            spec = {"resourceAttributes": attributes, "user": "jane", "groups": ["devs"]}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            await api.ok("POST", path, {**review, "spec": spec})
            assert workers.groups.count("jane") == 0
            spec["groups"] = [f"group-{i}" for i in range(20_000)]
            answer = await api.ok("POST", path, {**review, "spec": spec})
            assert workers.groups.count("jane") == 1
            assert expected in answer["status"].get("evaluationError", "")
            assert answer["status"]["allowed"] is (not expected)


async def test_reload_keeps_the_types_of_the_start(tmp_path: Path) -> None:
    async with LoopbackServer(jane_may_read_pods, CA).serving() as webhook:
        config = configuration(tmp_path, webhook)
        async with serve(tmp_path, config) as api:
            (watched,) = api.server.security._files
            assert (await pods_as_jane(api))[0] == 200
            config["authorizers"].pop()  # RBAC
            watched.reload(yaml.safe_dump(config).encode())
            assert (await pods_as_jane(api))[0] == 200  # unchanged
            config["authorizers"] = [
                {"type": "RBAC", "name": "rbac"},
                {"type": "Node", "name": "node"},
            ]
            watched.reload(yaml.safe_dump(config).encode())
            assert (await pods_as_jane(api))[0] == 403


async def test_modes(tmp_path: Path) -> None:
    async with LoopbackServer(jane_may_read_pods, CA).serving() as webhook:
        config = modes_configuration(["RBAC", "Webhook"], kubeconfig(tmp_path, webhook))
        access = AccessOptions(authorization=config)
        async with run(clock=RealClock(), access=access) as api:
            assert (await pods_as_jane(api))[0] == 200
            spec = webhook.requests[0][2]["spec"]
            assert spec["group"] == ["devs", "system:authenticated"]  # v1beta1
        async with run(
            access=AccessOptions(authorization=modes_configuration(["AlwaysAllow"], ""))
        ) as api:
            assert (await api.call("GET", "/api/v1/secrets", peer=JANE))[0] == 200
        async with run(
            access=AccessOptions(authorization=modes_configuration(["AlwaysDeny"], ""))
        ) as api:
            status, answer = await api.call("GET", "/api/v1/secrets", peer=JANE)
            assert (status, answer["message"].endswith(": Everything is forbidden.")) == (403, True)


@pytest.mark.parametrize(
    ("modes", "file", "text"),
    [
        (["Abac"], "", 'authorization-mode "Abac" is not a valid mode'),
        (["Webhook"], "", "authorization-mode Webhook's authorization config file not passed"),
        (
            ["RBAC"],
            "/x",
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (["RBAC", "RBAC"], "", "has mode specified more than once"),
    ],
)
def test_wrong_modes(modes: list[str], file: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        modes_configuration(modes, file)


async def test_the_webhook_learns_the_selectors_of_a_list(tmp_path: Path) -> None:
    only = "request.resourceAttributes.fieldSelector.requirements.exists(r, r.values[0] == 'n')"
    conditions = [
        {"expression": "has(request.resourceAttributes.fieldSelector)"},
        {"expression": only},
    ]
    more = {"matchConditionSubjectAccessReviewVersion": "v1", "matchConditions": conditions}
    async with (
        LoopbackServer(jane_may_read_pods, CA).serving() as webhook,
        serve(tmp_path, configuration(tmp_path, webhook, **more)) as api,
    ):
        query = "fieldSelector=spec.nodeName%3Dn,status.phase%21%3DFailed&labelSelector=a%20in%20(x,y),!b"
        assert (await api.call("GET", f"{PODS}?{query}", peer=JANE))[0] == 200
        assert (await api.call("GET", PODS, peer=JANE))[0] == 403  # not asked about
        ((_, _, review),) = webhook.requests
        attributes = review["spec"]["resourceAttributes"]
        assert attributes["fieldSelector"]["requirements"] == [
            {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
            {"key": "status.phase", "operator": "NotIn", "values": ["Failed"]},
        ]
        assert attributes["labelSelector"]["requirements"] == [
            {"key": "a", "operator": "In", "values": ["x", "y"]},
            {"key": "b", "operator": "DoesNotExist"},
        ]
