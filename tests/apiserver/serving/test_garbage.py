"""Rejected requests leave no reference cycles.

An exception refers to the frames that it passed, and so to the body, the decoded object and all
errors. The garbage collector frees a cycle only if it finds it while it is young: one of a request
that took long would stay for ever.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import start

from transom.kit.clock import RealClock

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
    gc.collect()
    gc.disable()
    try:
        assert await send() == status
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        problems = [found for found in gc.garbage if isinstance(found, BaseException)]
        sizes = [len(found) for found in gc.garbage if isinstance(found, bytes | str | list)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        await api.server.stop()
    assert problems == [] and max(sizes, default=0) < 1000
