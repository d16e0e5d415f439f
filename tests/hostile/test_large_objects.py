"""Objects of megabytes, and answers of webhooks and bodies in protobuf that are made to take long.

The watchdog of the test session fails a test in which a callback uses more than 100 ms of the loop
thread's CPU time.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start
from tests.apiserver.webhooks.configurations import hook, install, run
from tests.apiserver.webhooks.endpoint import Endpoint, http, patch
from tests.conftest import UVLOOP, Backend
from tests.hostile.test_bodies import WIDGETS, start_with_widgets

from transom.apiserver.core import objectstore, unchanged, writes
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.offload import LARGE_JSON
from transom.apiserver.core.strategies import custom
from transom.apiserver.serving.inprocess import InProcessClient
from transom.apiserver.serving.listbody import ListBody
from transom.client.api import GroupVersionResource
from transom.http.messages import HttpResponse, body_bytes
from transom.machinery import apply, protobuf
from transom.machinery import quota as quotas
from transom.machinery.errors import ApiError
from transom.machinery.kinds import GVK


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


NAMESPACE = "/api/v1/namespaces/default"
PODS, CONFIG_MAPS, TEMPLATES = (
    f"{NAMESPACE}/pods",
    f"{NAMESPACE}/configmaps",
    f"{NAMESPACE}/podtemplates",
)
MERGE, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
PROTOBUF, YAML = "application/vnd.kubernetes.protobuf", "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MIB = 1024 * 1024
TOO_LARGE = "etcdserver: request is too large"
ADMIN = UserInfo("admin", ("system:masters",))


def config_map(size: int, **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "z", **meta},
        "data": {"k": "x" * size},
    }


def template(text: str) -> dict[str, Any]:
    """An object whose parts have no limit of their own."""
    containers = [{"name": "c", "image": "i", "args": [text]}]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "z"},
        "template": {"spec": {"containers": containers}},
    }


async def start_with_account(**options: Any) -> Api:
    """A server whose default account has a token, so that every container of a pod gets a mount."""
    api = await start(**options)
    account = await api.ok(
        "POST",
        f"{NAMESPACE}/serviceaccounts",
        {"metadata": {"name": "default"}, "secrets": [{"name": "t"}]},
    )
    await api.ok(
        "POST",
        f"{NAMESPACE}/secrets",
        {
            "metadata": {
                "name": "t",
                "annotations": {
                    "kubernetes.io/service-account.name": "default",
                    "kubernetes.io/service-account.uid": account["metadata"]["uid"],
                },
            },
            "type": "kubernetes.io/service-account-token",
        },
    )
    return api


# ---- the size of a request to etcd ----


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (MIB, ""),
        (1535 * 1024, ""),
        (1536 * 1024, TOO_LARGE),
        (int(1.9 * MIB), TOO_LARGE),
        (
            int(2.5 * MIB),
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (",
        ),
    ],
)
async def test_objects_that_etcd_would_reject_are_rejected(size: int, message: str) -> None:
    api = await start()
    code, answer = await api.call("POST", TEMPLATES, template("x" * size))
    if not message:
        assert code == 201, answer
        await api.ok("DELETE", f"{TEMPLATES}/z")
    else:
        assert (code, answer.get("reason")) == (500, None), answer
        assert answer["message"].startswith(message)
        assert (await api.call("GET", f"{TEMPLATES}/z"))[0] == 404
    await api.ok("POST", TEMPLATES, template("x"))
    path = "/template/spec/containers/0/args/0"
    for media, body in (
        (MERGE, {"template": template("x" * size)["template"]}),
        (JSON_PATCH, [{"op": "replace", "path": path, "value": "x" * size}]),
        (APPLY, template("x" * size)),
    ):
        query = "?fieldManager=m&force=true" if media == APPLY else ""
        code, answer = await api.call("PATCH", f"{TEMPLATES}/z{query}", body, media=media)
        assert (code, answer.get("message", "")[: len(message)]) == (
            500 if message else 200,
            message,
        )


async def test_a_short_json_patch_cannot_make_an_object_too_large() -> None:
    api = await start()
    await api.ok("POST", TEMPLATES, template("x" * 40_000))
    path = "/template/spec/containers/0/args"
    for word in ("copy", "c\\u006fpy"):
        steps = [f'{{"op":"{word}","from":"{path}/0","path":"{path}/-"}}' for _ in range(50)]
        code, answer = await api.call(
            "PATCH", f"{TEMPLATES}/z", f"[{','.join(steps)}]".encode(), media=JSON_PATCH
        )
        assert (code, answer["message"]) == (500, TOO_LARGE)


async def test_managed_fields_are_dropped_before_an_object_is_too_large() -> None:
    api = await start()
    body = template("x" * (800 * 1024))
    body["metadata"]["labels"] = {f"a-rather-long-key-{i}": "x" * 10 for i in range(12_000)}
    created = await api.ok("POST", TEMPLATES, body)
    assert "managedFields" not in created["metadata"]
    body["template"]["spec"]["containers"][0]["args"] = ["x" * (820 * 1024)]
    code, answer = await api.call(
        "PATCH", f"{TEMPLATES}/z?fieldManager=m&force=true", body, media=APPLY
    )
    assert (code, answer["message"]) == (500, TOO_LARGE)


# ---- admission and answers ----


async def test_a_pod_of_thousands_of_containers_does_not_hold_up_the_loop() -> None:
    api = await start_with_account()
    await api.ok(
        "POST",
        f"{NAMESPACE}/limitranges",
        {
            "metadata": {"name": "l"},
            "spec": {
                "limits": [
                    {"type": "Container", "max": {"cpu": "2"}},
                    {"type": "Pod", "max": {"cpu": "100000"}},
                ]
            },
        },
    )
    await api.ok(
        "POST",
        f"{NAMESPACE}/resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "9000"}}},
    )
    await api.ok(
        "PATCH",
        f"{NAMESPACE}/resourcequotas/q/status",
        {"status": {"hard": {"cpu": "9000"}, "used": {"cpu": "0"}}},
        media=MERGE,
    )
    await api.ok(
        "POST",
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "metadata": {"name": "r"},
            "handler": "r",
            "scheduling": {"tolerations": [{"key": "r", "operator": "Exists"}]},
        },
    )
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": {"cpu": "1"}}} for i in range(4000)
    ]
    spec = {
        "runtimeClassName": "r",
        "containers": containers,
        "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(4000)],
    }
    created = await api.ok("POST", PODS, {"metadata": {"name": "z"}, "spec": spec})
    assert all(container["volumeMounts"] for container in created["spec"]["containers"])
    assert len(created["spec"]["tolerations"]) == 4003
    quota = await api.ok("GET", f"{NAMESPACE}/resourcequotas/q")
    assert quota["status"]["used"] == {"cpu": "4k"}
    code, answer = await api.call(
        "POST",
        PODS,
        {
            "metadata": {"name": "y"},
            "spec": {
                **spec,
                "containers": [{**c, "resources": {"limits": {"cpu": "2"}}} for c in containers],
            },
        },
    )
    assert code == 403
    assert (
        "exceeded quota: q, requested: cpu=8k, used: cpu=4k, limited: cpu=9k" in answer["message"]
    )


async def test_only_the_quota_amounts_that_an_object_uses_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many quotas with 1,500 resources, which are charged one after the other."""
    parsed: list[int] = []

    def parse_amounts(amounts: Mapping[str, str] | None) -> quotas.Amounts:
        parsed.append(len(amounts or ()))
        return original(amounts)

    original = quotas.parse_amounts
    monkeypatch.setattr(quotas, "parse_amounts", parse_amounts)

    api = await start_with_account()
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await api.ok("POST", PODS, {"metadata": {"name": "first"}, "spec": spec})  # imports modules
    names = [f"requests.example.com/r{n}" for n in range(1500)]
    for number in range(80):
        # Distinct amounts, so that no cache of parsed quantities helps.
        amounts = {name: f"{n}.{number}5G" for n, name in enumerate(names)}
        hard, used = {"pods": "9", **amounts}, {"pods": "0", **amounts}
        quota = {"metadata": {"name": f"q{number}"}, "spec": {"hard": hard}}
        await api.ok("POST", f"{NAMESPACE}/resourcequotas", quota)
        status = {"status": {"hard": hard, "used": used}}
        path = f"{NAMESPACE}/resourcequotas/q{number}/status"
        await api.ok("PATCH", path, status, media=MERGE)
    parsed.clear()
    await api.ok("POST", PODS, {"metadata": {"name": "z"}, "spec": spec})
    assert max(parsed) == 1
    for number in (0, 79):
        charged = await api.ok("GET", f"{NAMESPACE}/resourcequotas/q{number}")
        assert charged["status"]["used"]["pods"] == "1"
        assert len(charged["status"]["used"]) == 1501


async def test_an_object_that_apply_creates_is_made_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    original = apply.server_side_apply

    def recorded(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        return original(*args, **kwargs)

    monkeypatch.setattr(writes.apply, "server_side_apply", recorded, raising=False)

    api = await start()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "large"},
        "data": {f"k{i}": "v" for i in range(10_000)},
    }
    path = "/api/v1/namespaces/default/configmaps/large?fieldManager=a"
    status, answer = await api.call("PATCH", path, body, media=APPLY)
    assert (status, len(answer["data"])) == (201, 10_000)
    await api.server.stop()
    assert threads and threading.main_thread() not in threads


async def test_large_objects_are_compared_copied_and_encoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Creates that find an object, updates with and without a change, dry runs and deletions."""
    api = await start_with_widgets()
    called: dict[str, set[threading.Thread]] = {}

    def record(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def recorded(value: Any, *args: Any, **kwargs: Any) -> Any:
            if len(orjson.dumps(value)) > LARGE_JSON:
                called.setdefault(name, set()).add(threading.current_thread())
            return original(value, *args, **kwargs)

        monkeypatch.setattr(module, name, recorded)

    record(custom, "same_json")
    record(unchanged, "same_json")
    record(objectstore, "encode_value")
    record(objectstore, "copy_object")
    for path, body in (
        (WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget"}),
        (CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap"}),
    ):
        body |= {"metadata": {"name": "z", "finalizers": ["example.com/hold"]}}
        body |= {"spec" if path is WIDGETS else "data": {f"k{i}": "v" for i in range(10_000)}}
        await api.ok("POST", path, body)
        assert (await api.call("POST", path, body))[0] == 409
        await api.ok("POST", f"{path}?dryRun=All", {**body, "metadata": {"name": "y"}})
        for suffix in ("", "?dryRun=All"):
            stored = await api.ok("GET", f"{path}/z")
            await api.ok("PUT", f"{path}/z{suffix}", stored)
            stored["metadata"]["labels"] = {"changed": "yes"}
            await api.ok("PUT", f"{path}/z{suffix}", stored)
        await api.ok("DELETE", f"{path}/z")
    assert {"same_json", "encode_value"} <= called.keys()
    assert threading.current_thread() not in set().union(*called.values())


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_retried_update_starts_from_the_body_again(size: int) -> None:
    """Updates without a resourceVersion at the same time: the server retries all but one."""
    api = await start()
    await api.ok("POST", CONFIG_MAPS, config_map(size))
    bodies = [{**config_map(size), "data": {f"k{i}": "x" * size}} for i in range(6)]
    answers = await asyncio.gather(*(api.ok("PUT", f"{CONFIG_MAPS}/z", body) for body in bodies))
    assert [answer["data"] for answer in answers] == [body["data"] for body in bodies]
    assert all(len(answer["metadata"]["managedFields"]) == 1 for answer in answers)


async def test_quotas_hold_for_large_objects_created_at_once() -> None:
    api = await start()
    await api.ok(
        "POST",
        f"{NAMESPACE}/resourcequotas",
        {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "3"}}},
    )
    await api.ok(
        "PATCH",
        f"{NAMESPACE}/resourcequotas/q/status",
        {"status": {"hard": {"count/configmaps": "3"}, "used": {"count/configmaps": "0"}}},
        media=MERGE,
    )
    bodies = [config_map(100_000, name=f"c{i}") for i in range(8)]
    codes = await asyncio.gather(*(api.call("POST", CONFIG_MAPS, body) for body in bodies))
    assert sorted(code for code, _ in codes) == [201] * 3 + [403] * 5
    quota = await api.ok("GET", f"{NAMESPACE}/resourcequotas/q")
    assert quota["status"]["used"] == {"count/configmaps": "3"}


@pytest.mark.parametrize("accept", [PROTOBUF, YAML, TABLE, "application/json;pretty=1"])
async def test_a_large_object_is_encoded_beside_the_loop(accept: str) -> None:
    api = await start()
    body = {"metadata": {"name": "z"}, "data": {f"k{i}": "x" for i in range(60_000)}}
    query = "?pretty=true" if "pretty" in accept else ""
    accept_ = accept.partition(";pretty")[0]
    sent = await api.send("POST", CONFIG_MAPS + query, orjson.dumps(body), accept=accept_)
    assert sent.status == 201
    one = await api.send("GET", f"{CONFIG_MAPS}/z{query}", accept=accept_)
    whole = await api.send("GET", CONFIG_MAPS + query, accept=accept_)
    assert one.status == whole.status == 200
    await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    for i in range(110):
        await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": f"b{i}"}})
    many = await api.send("GET", CONFIG_MAPS + query, accept=accept_)
    assert many.status == 200 and many.body
    for piece in many.body:  # as the server reads it
        await asyncio.sleep(0)
        assert piece is not None


# ---- webhooks ----


def _nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


GIANT = [{"op": "add", "path": f"/data/k{i}", "value": "x"} for i in range(9000)]
HOSTILE_PATCHES: dict[str, Any] = {
    "many operations": GIANT,
    "the last of many does not apply": [*GIANT, {"op": "remove", "path": "/nothing"}],
    "too many operations": GIANT * 2,
    "copies": [{"op": "copy", "from": "/data", "path": f"/data/k{i}"} for i in range(30)],
    "large copies": [
        {"op": "add", "path": "/data/big", "value": "x" * 200_000},
        *({"op": "copy", "from": "/data/big", "path": f"/data/k{i}"} for i in range(30)),
    ],
    "moves": [{"op": "move", "from": "/data/k", "path": "/data/k"}] * 9000,
    "a large object": [
        {"op": "add", "path": "/data", "value": {f"k{i}": "x" for i in range(150_000)}}
    ],
    "a deep object": [{"op": "add", "path": "/data/d", "value": orjson.loads(_nested(150))}],
}


@pytest.mark.parametrize("operations", HOSTILE_PATCHES.values(), ids=HOSTILE_PATCHES)
async def test_hostile_patches_of_webhooks(operations: list[Any]) -> None:
    async with run() as api:
        prepared = patch(*operations)
        endpoint = await Endpoint(lambda _r: prepared).start()
        await install(api, "mutating", hook(endpoint.config()))
        answer = await api.send(
            "POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}
        )
        known = b"Internal error" in answer.body or b"etcdserver" in answer.body
        assert answer.status in (201, 422) or known, answer.body[:300]
        assert b"Traceback" not in answer.body
        endpoint.stop()


HOSTILE_ANSWERS: dict[str, bytes] = {
    "deep": _nested(100_000),
    "deep status": b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":'
    + _nested(5000)
    + b"}",
    "numbers": b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"allowed":true,"uid":1e999999}}',
    "large integer": b'{"response":{"uid":' + b"9" * 100_000 + b"}}",
    "huge": b'{"response":{"uid":"' + b"x" * (5 * MIB) + b'"}}',
    "many keys": b'{"response":{' + b",".join(b'"k%d":1' % i for i in range(200_000)) + b"}}",
    "not UTF-8": b'{"response":"\xff\xfe"}',
    "cut": b'{"kind":"AdmissionReview","response":{"allowed":tr',
    "YAML bomb": b"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c "
    b"[*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]\n",
    "empty": b"",
}


@pytest.mark.parametrize("body", HOSTILE_ANSWERS.values(), ids=HOSTILE_ANSWERS)
@pytest.mark.parametrize("sort", ["mutating", "validating"])
async def test_hostile_answers_of_webhooks(sort: str, body: bytes) -> None:
    async with run() as api:
        endpoint = await Endpoint(lambda _r: http(200, body)).start()
        await install(api, sort, hook(endpoint.config()))
        code, answer = await api.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        assert code == 500 and 'failed calling webhook "a.example.com"' in answer["message"], (
            answer["message"][:300]
        )
        endpoint.stop()


# ---- protobuf ----


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes((value & 127 | 128,)), value >> 7
    return out + bytes((value,))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _wrapped(content: bytes, kind: bytes = b"ConfigMap", version: bytes = b"v1") -> bytes:
    return b"k8s\x00" + _field(1, _field(1, version) + _field(2, kind)) + _field(2, content)


def _schema(levels: int) -> bytes:
    """A definition whose schema has so many levels (field 18 of JSONSchemaProps is `items`-like:
    any message will do).
    """
    content = b""
    for _ in range(levels):
        content = _field(23, content)  # not
    return content


def hostile_protobuf() -> dict[str, bytes]:
    valid = protobuf.encode_protobuf(config_map(100, labels={"a": "b"}), GVK("", "v1", "ConfigMap"))
    meta = _field(1, _field(1, b"z"))
    return {
        "empty": b"k8s\x00",
        "no content": _wrapped(b""),
        "endless varint": _wrapped(b"\xff" * 1000),
        "huge length": _wrapped(b"\x0a" + _varint(1 << 62) + b"x"),
        "length beyond 64 bits": _wrapped(b"\x0a" + b"\xff" * 9 + b"\x7f"),
        "wrong wire type": _wrapped(b"\x08\x01\x10\x01"),
        "groups": _wrapped(b"\x0b" * 100_000),
        "closed groups": _wrapped(b"\x0b" * 5000 + b"\x0c" * 5000),
        "field zero": _wrapped(b"\x02\x01x"),
        "unknown fields": _wrapped(meta + _field(900, b"x") * 200_000),
        "many empty entries": _wrapped(meta + _field(2, b"") * 500_000),
        "not UTF-8": _wrapped(meta + _field(2, _field(1, b"\xff\xfe") + _field(2, b"\xff"))),
        "repeated metadata": _wrapped(meta * 200_000),
        "deep schema": _wrapped(
            _field(2, _field(7, _field(4, _field(1, _schema(20_000))))),
            b"CustomResourceDefinition",
            b"apiextensions.k8s.io/v1",
        ),
        **{f"cut at {size}": valid[:size] for size in range(4, len(valid), 7)},
    }


@pytest.mark.parametrize("name", hostile_protobuf())
async def test_hostile_protobuf_bodies(name: str, caplog: pytest.LogCaptureFixture) -> None:
    api = await start()
    target = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        if name == "deep schema"
        else CONFIG_MAPS
    )
    answer = await api.send("POST", target, hostile_protobuf()[name], media=PROTOBUF)
    assert answer.status in (201, 400, 422), answer.body[:500]
    assert b"Traceback" not in answer.body and "Traceback" not in caplog.text


async def test_random_changes_of_a_protobuf_body(caplog: pytest.LogCaptureFixture) -> None:
    api = await start_with_account()
    rng = random.Random(7)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            "serviceAccountName": "default",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": {"cpu": "1"}},
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": "x"}},
                }
            ],
            "tolerations": [{"key": "a", "tolerationSeconds": 5}],
        },
    }
    valid = protobuf.encode_protobuf(pod, GVK("", "v1", "Pod"))
    for _ in range(400):
        body = bytearray(valid)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(4, len(body))
            if rng.random() < 0.3:
                del body[at : at + rng.randint(1, 8)]
            else:
                body[at] = rng.choice((0, 127, 128, 255, rng.randrange(256)))
        answer = await api.send("POST", PODS + "?dryRun=All", bytes(body), media=PROTOBUF)
        assert answer.status in (201, 400, 403, 404, 409, 422), (bytes(body), answer.body[:500])
    assert "Traceback" not in caplog.text


# ---- clients inside the process ----


@pytest.mark.parametrize("levels", [190, 210, 300, 2000])
async def test_clients_inside_the_process_get_the_error_of_http(levels: int) -> None:
    api = await start()
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    client = InProcessClient(api.server, ADMIN)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "d"},
        "data": {"k": "v"},
        "odd": value,
    }
    with pytest.raises(ApiError) as raised:
        await client.create(
            GroupVersionResource("", "v1", "configmaps"), "default", {**body, "data": value}
        )
    assert raised.value.code == 400, raised.value.message


# ---- lists and allocation ----


@pytest.mark.parametrize("accept", ["application/json", PROTOBUF, YAML, TABLE])
async def test_a_list_of_few_large_objects_is_encoded_while_the_client_reads(accept: str) -> None:
    api = await start()
    for i in range(6):
        data = {f"k{j}": "x" for j in range(4_000)}
        await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": f"z{i}"}, "data": data})
    found = await api.send("GET", CONFIG_MAPS, accept=accept)
    assert isinstance(found, HttpResponse) and found.status == 200
    if accept != PROTOBUF:  # up to 4 MiB are encoded in the thread that finds the size
        assert isinstance(found.body, ListBody)
        # Stored bytes are sent unchanged; anything else is made in a thread.
        assert found.body.slow == (accept != "application/json")
    assert len(body_bytes(found.body)) > 6 * 1_000


async def test_node_ports_of_a_service_are_found_without_searching_all_ports() -> None:
    api = await start()
    ports = [{"name": f"p{i}", "port": i + 1} for i in range(15_000)]
    body = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    code, answer = await api.call("POST", f"{NAMESPACE}/services", body)
    assert (code, answer["message"]) == (
        500,
        "Internal error occurred: failed to allocate a nodePort: range is full",
    )
    body["spec"] = {"type": "NodePort", "ports": ports[:2_700]}
    made = await api.ok("POST", f"{NAMESPACE}/services?dryRun=All", body)
    assert len({port["nodePort"] for port in made["spec"]["ports"]}) == 2_700
    made = await api.ok("POST", f"{NAMESPACE}/services", body)
    assert len({port["nodePort"] for port in made["spec"]["ports"]}) == 2_700
