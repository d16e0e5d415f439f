"""Rejected requests leave no reference cycles.

An exception refers to the frames that it passed, and so to the body, the decoded object and all
errors. The garbage collector frees a cycle only if it finds it while it is young: one of a request
that took long would stay for ever.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import start
from tests.apiserver.webhooks.configurations import configmap, hook, install, run
from tests.apiserver.webhooks.endpoint import Endpoint, http
from tests.client.conftest import ADMIN

from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import PODS
from transom.kit.clock import RealClock
from transom.machinery.errors import ApiError

MAPS = "/api/v1/namespaces/default/configmaps"
REFS = [
    {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": str(n), "controller": True}
    for n in range(2000)
]
LARGE = b"x" * 100_000
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
JSON, YAML, PATCH = "application/json", "application/yaml", "application/json-patch+json"


def config_map(**meta: Any) -> bytes:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "h", **meta}}
    return orjson.dumps(document)


@pytest.mark.parametrize(
    ("method", "path", "media", "body", "status"),
    [
        ("POST", MAPS, JSON, config_map(ownerReferences=REFS), 422),
        ("POST", MAPS, JSON, b"{" * 100_000, 400),
        ("POST", MAPS, YAML, b"{" * 100_000, 400),
        ("POST", MAPS, YAML, b"a: &a [*a]\n" + b"# " + LARGE, 400),
        ("POST", MAPS, JSON, config_map(name="A_"), 422),
        ("PUT", f"{MAPS}/w", JSON, config_map(note=LARGE.decode()), 400),
        ("PATCH", f"{MAPS}/w", PATCH, b'[{"op":"test","path":"/a","value":"%b"}]' % LARGE, 422),
        ("PATCH", f"{MAPS}/w", MERGE, b'{"metadata":{"name":"%b"}}' % LARGE, 400),
        ("PATCH", f"{MAPS}/w?fieldManager=x", APPLY, b"{a: " + LARGE, 400),
        ("DELETE", f"{MAPS}?labelSelector=a,,", JSON, b"", 400),
        ("GET", f"{MAPS}/none", JSON, b"", 404),
        ("GET", f"{MAPS}?limit=1&continue=x", JSON, b"", 400),
        ("GET", "/api/v1/none", JSON, b"", 404),
    ],
)
async def test_a_rejected_request_is_freed_at_once(
    method: str, path: str, media: str, body: bytes, status: int
) -> None:
    api = await start(clock=RealClock())
    await api.call("POST", MAPS, {"metadata": {"name": "w"}})

    async def send() -> int:
        code, _ = await api.call(method, path, body, media=media)
        await asyncio.sleep(0.01)
        return code

    await send()  # imports and caches
    with no_garbage():
        assert await send() == status
    await api.server.stop()


async def test_a_rejected_request_of_a_component_is_freed_at_once() -> None:
    api = await start(clock=RealClock())
    client = InProcessClient(api.server, ADMIN)

    async def send() -> None:
        for call in (
            client.get(PODS, "default", "none"),
            client.create(PODS, "default", {"metadata": {"name": "A_"}}),
            client.patch(PODS, "default", "none", {"data": {}}, MERGE),
            client.delete(PODS, "default", "none"),
            client.list(PODS, "default", label_selector="a,,"),
        ):
            with pytest.raises(ApiError):
                await call

    await send()
    with no_garbage():
        await send()
    await api.server.stop()


@contextmanager
def no_garbage() -> Iterator[None]:
    """Fails if there are exceptions or large values in reference cycles afterwards."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        problems = [found for found in gc.garbage if isinstance(found, BaseException)]
        sizes = [len(found) for found in gc.garbage if isinstance(found, bytes | str | list)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert problems == [] and max(sizes, default=0) < 1000


@pytest.mark.parametrize("sort", ["mutating", "validating"])
@pytest.mark.parametrize("hooks", [1, 3])
@pytest.mark.parametrize(
    "answer",
    [
        {"allowed": False},
        {"allowed": True, "patchType": "JSONPatch", "patch": "e30="},
        http(500, b"no"),
        b"junk",
        None,  # hangs up
    ],
)
async def test_a_request_that_a_webhook_rejects_is_freed_at_once(
    sort: str, hooks: int, answer: Any
) -> None:
    async with run(clock=RealClock()) as api:
        endpoint = await Endpoint(lambda _: answer).start()
        every = [hook(endpoint.config(), f"h{n}.example.com") for n in range(hooks)]
        await install(api, sort, *every)

        async def send() -> int:
            body = configmap("a", annotations={"a": LARGE.decode()})
            code, _ = await api.call("POST", MAPS, body)
            await asyncio.sleep(0.05)
            endpoint.reviews.clear()
            return code

        await send()
        with no_garbage():
            assert await send() in (400, 500)
        endpoint.stop()


RULE = "self.words.all(x, int(x) > 0) || self.number > 9"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lists.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "lists", "kind": "WordList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "number": {"type": "integer"},
                            "words": {
                                "type": "array",
                                "maxItems": 1000,
                                "items": {"type": "string", "maxLength": 50},
                            },
                        },
                        "x-kubernetes-validations": [{"rule": RULE}],
                    }
                },
            }
        ],
    },
}


@pytest.mark.parametrize("word", ["0", "x"])
async def test_a_custom_object_that_a_rule_rejects_is_freed_at_once(word: str) -> None:
    async with run(clock=RealClock(), release="1.36") as api:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await api.ok("POST", definitions, DEFINITION)
        lists = "/apis/example.com/v1/namespaces/default/lists"
        body = {
            "apiVersion": "example.com/v1",
            "kind": "WordList",
            "metadata": {"name": "a"},
            "number": 1,
            "words": [word] * 900,
        }

        async def send() -> int:
            code, _ = await api.call("POST", lists, body)
            await asyncio.sleep(0.01)
            return code

        for _ in range(100):
            if await send() == 422:
                break
            await asyncio.sleep(0.02)
        with no_garbage():
            assert await send() == 422
