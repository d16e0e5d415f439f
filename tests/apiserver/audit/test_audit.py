"""The audit log of real requests: Kubernetes' event shape, level by level, and nothing secret in it
or in the server's log.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api

from transom.apiserver.audit import event, policy, redact
from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.audit.log import AuditLog
from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import CONFIG_MAPS
from transom.http.messages import HttpRequest, PeerCertificate
from transom.kit.clock import VirtualClock
from transom.kit.logs import TextFormatter
from transom.store.memory import MemoryStore

CM = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
JANE = PeerCertificate("jane", ["dev"])
LONG = "x" * (700 << 10)


def last_stages(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found for found in events if found["stage"] == "ResponseComplete"]


class Run:
    def __init__(self, folder: Path, *rules: dict[str, Any], **more: Any) -> None:
        self.path = folder / "audit.log"
        content = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}
        self._policy = policy.parse_audit_policy(content)

    def __call__(
        self,
        body: Callable[[Api], Awaitable[None]],
        tokens: dict[str, UserInfo] | None = None,
        **more: Any,
    ) -> list[dict[str, Any]]:
        """The events of the requests that `body` sends; `more` are options of the server."""

        async def main() -> None:
            clock = VirtualClock()
            options = ServerOptions(
                store=MemoryStore(clock), clock=clock, tokens=tokens or {}, **more
            )
            log = AuditLog(self.path)
            options.audit = Auditor(self._policy, log, options.rng)
            server = build_api_server(options)
            await server.start()
            log.close()
            self.path.unlink()
            log.open()
            await body(Api(server, clock))
            await server.stop()

        asyncio.run(main())
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def test_a_request_is_recorded_in_two_stages(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        answer = await api.send(
            "POST",
            CM,
            {"metadata": {"name": "a"}, "data": {"k": "v"}},
            headers={b"x-forwarded-for": b"10.1.2.3, nonsense", b"audit-id": b"my-own-id"},
        )
        assert (b"Audit-Id", b"my-own-id") in answer.headers

    first, last = Run(tmp_path, {"level": "Metadata"})(body)
    common = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "my-own-id",
        "requestURI": CM,
        "verb": "create",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["10.1.2.3"],
        "userAgent": "tests/1",
        "requestReceivedTimestamp": "2020-01-02T03:04:05.000000Z",
        "stageTimestamp": "2020-01-02T03:04:05.000000Z",
    }
    ref = {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
    assert first == {**common, "stage": "RequestReceived", "objectRef": ref}
    assert last == {
        **common,
        "stage": "ResponseComplete",
        "objectRef": {**ref, "name": "a"},
        "responseStatus": {"metadata": {}, "code": 201},
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "",
        },
    }
    assert list(last)[:6] == ["kind", "apiVersion", "level", "auditID", "stage", "requestURI"]


def test_bodies_appear_level_by_level(tmp_path: Path) -> None:
    async def configmaps(api: Api) -> None:
        made = await api.ok("POST", CM, {"metadata": {"name": "a"}})
        await api.ok("PUT", CM + "/a", {**made, "data": {"x": "1"}})
        await api.ok("PATCH", CM + "/a", {"data": {"y": "2"}}, media="application/merge-patch+json")
        await api.ok(
            "DELETE",
            CM + "/a",
            {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0},
        )
        await api.ok("GET", CM)
        await api.send("GET", CM + "/a")

    events = Run(tmp_path, {"level": "RequestResponse"}, omitStages=["RequestReceived"])(configmaps)
    create, update, patch, delete, listed, missing = events
    assert (
        create["requestObject"]["kind"] == "ConfigMap"
        and create["responseObject"]["metadata"]["uid"]
    )
    assert update["requestObject"]["data"] == {"x": "1"} and update["objectRef"]["uid"]
    assert (
        update["objectRef"]["resourceVersion"]
        == create["responseObject"]["metadata"]["resourceVersion"]
    )
    assert patch["requestObject"] == {"data": {"y": "2"}}
    assert patch["responseObject"]["data"] == {"x": "1", "y": "2"}
    assert delete["requestObject"]["gracePeriodSeconds"] == 0
    assert delete["responseStatus"] == {"metadata": {}, "status": "Success", "code": 200}
    assert "requestObject" not in listed and listed["responseObject"]["kind"] == "ConfigMapList"
    assert missing["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
    }
    assert missing["responseObject"]["message"] == 'configmaps "a" not found'
    events = Run(tmp_path, {"level": "Request"}, omitStages=["RequestReceived"])(configmaps)
    assert all("responseObject" not in event for event in events)
    assert ["requestObject" in event for event in events] == [True] * 4 + [False] * 2


def test_defaults_are_in_the_request_object_as_the_server_understood_it(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
        await api.ok("POST", "/api/v1/namespaces/default/services", service)

    (event,) = Run(tmp_path, {"level": "Request"}, omitStages=["RequestReceived"])(body)
    assert event["requestObject"]["spec"]["ports"] == [
        {"protocol": "TCP", "port": 1, "targetPort": 1}
    ]
    assert "clusterIP" not in event["requestObject"]["spec"]  # which is given later


def test_refusals_and_impersonation_are_recorded(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        await api.send("GET", CM, peer=JANE)
        await api.send(
            "GET", CM, headers={b"impersonate-user": b"joe", b"impersonate-group": b"ops"}
        )
        await api.send("GET", CM, peer=JANE, headers={b"impersonate-user": b"joe"})
        await api.send("GET", CM, peer=None, headers={b"authorization": b"Bearer wrong"})

    forbidden, as_joe, no_joe, unauthenticated = Run(
        tmp_path, {"level": "Metadata"}, omitStages=["RequestReceived"]
    )(body)
    assert forbidden["annotations"] == {
        "authorization.k8s.io/decision": "forbid",
        "authorization.k8s.io/reason": "",
    }
    assert forbidden["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "reason": "Forbidden",
        "code": 403,
    }
    assert as_joe["user"]["username"] == "admin"
    assert as_joe["impersonatedUser"] == {
        "username": "joe",
        "groups": ["ops", "system:authenticated"],
    }
    assert no_joe["responseStatus"]["code"] == 403 and "annotations" not in no_joe
    assert unauthenticated["user"] == {} and unauthenticated["stage"] == "ResponseStarted"
    assert unauthenticated["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "reason": "Unauthorized",
        "code": 401,
    }


def test_the_reason_of_rbac_is_recorded(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        group = "rbac.authorization.k8s.io"
        await api.ok(
            "POST",
            f"/apis/{group}/v1/clusterrolebindings",
            {
                "metadata": {"name": "b"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "User", "apiGroup": group, "name": "jane"}],
            },
        )
        await api.ok("GET", CM, peer=JANE)

    event = Run(tmp_path, {"level": "Metadata"})(body)[-1]
    assert event["annotations"]["authorization.k8s.io/reason"] == (
        'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "view" to User "jane"'
    )


def test_a_watch_is_recorded_when_it_starts_and_when_it_ends(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        answer = await api.send("GET", CM + "?watch=1")
        api.clock.advance(7)
        answer.on_end()

    received, started, complete = Run(tmp_path, {"level": "RequestResponse"})(body)
    assert [e["stage"] for e in (received, started, complete)] == [
        "RequestReceived",
        "ResponseStarted",
        "ResponseComplete",
    ]
    assert started["responseStatus"]["code"] == 200 and started["verb"] == "watch"
    assert complete["stageTimestamp"] == "2020-01-02T03:04:12.000000Z"


def test_a_failure_of_the_server_itself_is_a_panic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(api: Api) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("hunter2")

        monkeypatch.setattr(api.server.storage, "get", broken)
        assert (await api.call("GET", CM + "/a"))[0] == 500

    event = Run(tmp_path, {"level": "RequestResponse"})(body)[-1]
    assert (
        event["stage"] == "Panic"
        and event["responseStatus"]["message"] == "APIServer panic'd: RuntimeError"
    )
    assert "hunter2" not in json.dumps(event)


def test_what_has_level_none_leaves_no_trace(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        answer = await api.send("GET", "/healthz")
        assert not any(name == b"Audit-Id" for name, _ in answer.headers)
        await api.send("GET", "/version")

    events = Run(
        tmp_path, {"level": "None", "nonResourceURLs": ["/healthz*"]}, {"level": "Metadata"}
    )(body)
    assert {e["requestURI"] for e in events} == {"/version"}
    assert "objectRef" not in events[0]


def test_components_inside_the_process_are_recorded_like_others(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        client = InProcessClient(
            api.server,
            UserInfo("system:kube-scheduler", ("system:authenticated",)),
            user_agent="scheduler/1",
        )
        with pytest.raises(Exception, match="forbidden"):
            await client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        admin = InProcessClient(api.server, UserInfo("a", ("system:masters",)))
        made = await admin.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        assert await admin.get(CONFIG_MAPS, "default", "a") == made
        await admin.list(CONFIG_MAPS, "default")
        (await admin.watch(CONFIG_MAPS, "default")).close()

    events = Run(tmp_path, {"level": "RequestResponse"}, omitStages=["RequestReceived"])(body)
    refused, create, get, listed, started, ended = events
    assert (
        refused["user"]["username"] == "system:kube-scheduler"
        and refused["responseStatus"]["code"] == 403
    )
    assert refused["userAgent"] == "scheduler/1" and refused["sourceIPs"] == ["127.0.0.1"]
    assert (
        create["requestObject"]["metadata"]["name"] == "a"
        and create["responseStatus"]["code"] == 201
    )
    assert get["responseObject"]["metadata"]["uid"] == create["responseObject"]["metadata"]["uid"]
    assert listed["responseObject"]["kind"] == "ConfigMapList"
    assert (started["stage"], ended["stage"]) == ("ResponseStarted", "ResponseComplete")


# ---- nothing secret ----


PASSWORD = "hunter2-" + base64.b16encode(os.urandom(6)).decode()
TOKEN = "tok-" + base64.b16encode(os.urandom(12)).decode()
ENCODED = base64.b64encode(PASSWORD.encode()).decode()


async def secret_traffic(api: Api) -> None:
    """Everything in which a secret, a token or an Authorization header takes part, good and bad."""
    bearer = {b"authorization": f"Bearer {TOKEN}".encode()}
    made = await api.ok(
        "POST",
        SECRETS,
        {"metadata": {"name": "s"}, "stringData": {"p": PASSWORD}},
        peer=None,
        headers=bearer,
    )
    await api.ok("PUT", SECRETS + "/s", {**made, "stringData": {"q": PASSWORD}})
    await api.ok(
        "PATCH",
        SECRETS + "/s",
        {"stringData": {"r": PASSWORD}},
        media="application/merge-patch+json",
    )
    await api.ok("GET", SECRETS)
    await api.ok("GET", SECRETS + "/s")
    await api.ok("DELETE", SECRETS + "/s")
    await api.send(
        "POST", SECRETS, b'{"metadata": {"name": "s"}, "data": {"p": "' + PASSWORD.encode()
    )  # broken JSON
    await api.send("POST", SECRETS, {"metadata": {"name": "S!"}, "data": {"p": ENCODED}})  # refused
    # not base64
    await api.send("POST", SECRETS, {"metadata": {"name": "s"}, "data": {"p": PASSWORD + "!"}})
    await api.send("GET", CM, peer=None, headers={b"authorization": f"Bearer x{TOKEN}".encode()})
    await api.send("GET", CM, peer=None, headers={b"authorization": f"Basic {ENCODED}".encode()})
    await api.send("GET", f"{CM}?access_token={TOKEN}&limit=1")
    review = {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "spec": {"token": TOKEN},
    }
    await api.ok("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    await api.send("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})


def test_no_secret_reaches_the_audit_log_or_the_servers_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    events = Run(tmp_path, {"level": "Metadata"})(
        secret_traffic, {TOKEN: UserInfo("bot", ("system:masters",))}
    )
    assert len(events) > 20
    shown = TextFormatter()
    for text in (
        (tmp_path / "audit.log").read_text(),
        "\n".join(map(shown.format, caplog.records)),
    ):
        for secret in (PASSWORD, ENCODED, TOKEN, "Bearer", "Basic "):
            assert secret not in text
    assert any(event["requestURI"] == f"{CM}?access_token=REDACTED&limit=1" for event in events)


def test_a_failing_server_does_not_log_what_it_was_given(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)

    async def body(api: Api) -> None:
        def broken(*_: object, **__: object) -> None:
            raise KeyError("broken")

        monkeypatch.setattr(api.server.storage, "create", broken)
        await api.send(
            "POST",
            SECRETS + f"?token={TOKEN}",
            {"metadata": {"name": "s"}, "stringData": {"p": PASSWORD}},
        )

    Run(tmp_path, {"level": "Metadata"})(body)
    text = "\n".join(map(TextFormatter().format, caplog.records))
    assert "failed" in text and PASSWORD not in text and ENCODED not in text and TOKEN not in text


def test_a_catch_all_rule_does_not_spill_secrets_and_an_explicit_one_does_not_spill_tokens(
    tmp_path: Path,
) -> None:
    who = {TOKEN: UserInfo("bot", ("system:masters",))}
    Run(tmp_path, {"level": "RequestResponse"})(secret_traffic, who)
    text = (tmp_path / "audit.log").read_text()
    assert text and PASSWORD not in text and ENCODED not in text and TOKEN not in text

    async def body(api: Api) -> None:
        await api.ok(
            "POST",
            SECRETS,
            {"metadata": {"name": "s"}, "stringData": {"p": PASSWORD, "token": TOKEN}},
        )
        await api.ok(
            "PATCH",
            SECRETS + "/s",
            [
                {
                    "op": "add",
                    "path": "/data/token",
                    "value": base64.b64encode(TOKEN.encode()).decode(),
                }
            ],
            media="application/json-patch+json",
        )
        await api.ok("GET", SECRETS)

    Run(
        tmp_path,
        {"level": "RequestResponse", "resources": [{"group": "", "resources": ["secrets"]}]},
    )(body)
    text = (tmp_path / "audit.log").read_text()
    assert (
        ENCODED in text
        and TOKEN not in text
        and base64.b64encode(TOKEN.encode()).decode() not in text
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"data": {"token": "a", "ca.crt": "b"}}, {"data": {"token": "REDACTED", "ca.crt": "b"}}),
        (
            {"items": [{"stringData": {"token-secret": "a", "token-id": "b"}}]},
            {"items": [{"stringData": {"token-secret": "REDACTED", "token-id": "b"}}]},
        ),
        (
            [{"op": "add", "path": "/data/token", "value": "a"}],
            [{"op": "add", "path": "/data/token", "value": "REDACTED"}],
        ),
        (
            [{"op": "add", "path": "/data", "value": {"token": "a"}}],
            [{"op": "add", "path": "/data", "value": {"token": "REDACTED"}}],
        ),
        (
            {
                "metadata": {
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
                }
            },
            {
                "metadata": {
                    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "REDACTED"}
                }
            },
        ),
    ],
)
def test_tokens_in_secrets_are_taken_out(value: Any, shown: Any) -> None:
    assert redact.redact_secret(value) == shown


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/a?token=x", "/a?token=REDACTED"),
        ("/a?x=1&Access_Token=x&y=2", "/a?x=1&Access_Token=REDACTED&y=2"),
        ("/a?tokens=1", "/a?tokens=1"),
        ("/serviceaccounts/x/token", "/serviceaccounts/x/token"),
    ],
)
def test_tokens_in_urls_are_taken_out(target: str, shown: str) -> None:
    assert redact.redact_url(target) == shown


def test_a_request_does_not_show_its_query() -> None:
    assert TOKEN not in repr(HttpRequest("GET", f"/a?token={TOKEN}".encode(), "/a", {}))


# ---- bodies ----


def test_large_lists_are_recorded_without_decoding_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    loads = orjson.loads

    def counting(raw: bytes) -> Any:
        if threading.current_thread().name == "audit":
            decoded.append(len(raw))
        return loads(raw)

    monkeypatch.setattr(event.orjson, "loads", counting)

    async def body(api: Api) -> None:
        for number in range(4):
            await api.ok("POST", CM, {"metadata": {"name": f"a{number}"}, "data": {"k": LONG}})
        for accept in ("application/json", "application/json;pretty=1"):
            await api.send("GET", CM, accept=accept)
        await api.send("GET", CM, accept="application/yaml")

    *_, plain, pretty, yaml = last_stages(Run(tmp_path, {"level": "RequestResponse"})(body))
    for found in (plain, pretty):
        assert found["responseObject"]["kind"] == "ConfigMapList"
        assert [item["data"]["k"] for item in found["responseObject"]["items"]] == [LONG] * 4
    assert "responseObject" not in yaml
    assert yaml["annotations"]["audit.k8s.io/truncated"] == "true"
    assert max(decoded) <= event._MAX_DECODED


def test_lists_above_the_limit_are_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event, "_MAX_RECORDED", 1 << 20)
    monkeypatch.setattr(event, "_MAX_DECODED", 2 << 20)

    async def body(api: Api) -> None:
        for number in range(4):
            body = {"metadata": {"name": f"a{number}"}, "stringData": {"k": LONG}}
            await api.ok("POST", SECRETS, body)
            await api.ok("POST", CM, {"metadata": {"name": f"a{number}"}, "data": {"k": LONG}})
        await api.send("GET", SECRETS)
        await api.send("GET", CM)

    rule = {"level": "RequestResponse", "resources": [{"group": "", "resources": ["secrets", "*"]}]}
    *_, secrets, configmaps = last_stages(Run(tmp_path, rule)(body))
    for found in (secrets, configmaps):
        assert "responseObject" not in found
        assert found["annotations"]["audit.k8s.io/truncated"] == "true"


def test_bodies_of_forbidden_requests_are_not_recorded(tmp_path: Path) -> None:
    async def body(api: Api) -> None:
        await api.send("POST", CM, {"metadata": {"name": "a"}, "data": {"k": "v"}}, peer=JANE)
        await api.send("PATCH", CM + "/a", b"a: [1, 2]", media="application/apply-patch+yaml")

    forbidden, allowed = last_stages(Run(tmp_path, {"level": "Request"})(body))
    assert forbidden["responseStatus"]["code"] == 403
    assert "requestObject" not in forbidden
    assert allowed["requestObject"] == {"a": [1, 2]}


def test_deeply_nested_bodies_are_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep = "[" * 400 + "]" * 400

    async def body(api: Api) -> None:
        await api.send("PATCH", CM + "/a", deep.encode(), media="application/json-patch+json")

    (found,) = last_stages(Run(tmp_path, {"level": "Request"})(body))
    assert found["requestObject"] == json.loads(deep)
    assert "could not be written" not in caplog.text


@pytest.mark.parametrize(
    "agent", [b"a\xffb", b"a\xed\xa0\x80b", b"x\xe2\x80\xa8y", b"\xc2\x9b2J", "\u202e".encode()]
)
@pytest.mark.parametrize(
    "path", ["/no%0aforged", "/no%ed%a0%80", "/no%e2%80%a8forged", "/no%c2%9b2J%1b[2J%7f"]
)
def test_no_line_can_be_forged_or_hidden(tmp_path: Path, path: str, agent: bytes) -> None:
    async def body(api: Api) -> None:
        await api.send("GET", path, headers={b"user-agent": agent})

    run = Run(tmp_path, {"level": "Metadata"})
    assert [event["stage"] for event in run(body)] == ["RequestReceived", "ResponseComplete"]
    text = run.path.read_text()
    assert len(text.splitlines()) == 2
    assert not set(text) & {
        *map(chr, range(10)),
        *map(chr, range(11, 32)),
        *map(chr, range(127, 160)),
        "\u2028",
        "\u202e",
    }
