"""The sample API server: what the aggregator and clients ask it, over TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.userland.conftest import Box

from transom.kit import pki

AUTHORITY = pki.make_ca("authority")
PAIR = pki.issue_server(AUTHORITY, "sample-api", ("sample-api.ns.svc",), ())
FLAGS = ("--tls-cert-file=/certs/tls.crt", "--tls-private-key-file=/certs/tls.key")
GROUP = "/apis/wardle.example.com/v1alpha1"
FLUNDERS = f"{GROUP}/namespaces/ns/flunders"

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def box() -> Box:
    box = Box(
        name="registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2",
        program="sample-apiserver",
        entrypoint=("/kube-sample-apiserver",),
    )
    box.files.mkdir("/certs")
    box.files.write("/certs/tls.crt", PAIR.certificate)
    box.files.write("/certs/tls.key", PAIR.key)
    return box


def with_server(box: Box, use: Callable[[Ask], Awaitable[None]]) -> None:
    trusted = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())

    async def ask(
        method: str, path: str, body: Any = None, kind: str = "application/json", user: str = "me"
    ) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection(
            sock=box.dial(443), ssl=trusted, server_hostname="sample-api.ns.svc"
        )
        content = json.dumps(body).encode() if body is not None else b""
        head = [
            f"{method} {path} HTTP/1.1",
            "Host: x",
            f"Content-Type: {kind}",
            f"Content-Length: {len(content)}",
            "Connection: close",
            *([f"X-Remote-User: {user}"] if user else []),
        ]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
        answer = (await reader.read(-1)).decode()
        writer.close()
        text = answer.partition("\r\n\r\n")[2]
        lines = [json.loads(line) if line[:1] == "{" else line for line in text.splitlines()]
        return int(answer.split()[1]), lines[0] if len(lines) == 1 else lines

    async def main() -> None:
        context = box.start("/kube-sample-apiserver", *FLAGS)
        try:
            await use(ask)
        finally:
            assert context.program is not None
            context.program.kill()

    asyncio.run(main())


def flunder(name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "wardle.example.com/v1alpha1",
        "kind": "Flunder",
        "metadata": {"name": name, **more},
    }


def names(found: Any) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


def test_life_of_a_flunder(box: Box) -> None:
    async def use(ask: Ask) -> None:
        assert await ask("GET", "/readyz", user="") == (200, "ok")
        assert names((await ask("GET", FLUNDERS))[1]) == []
        status, made = await ask("POST", FLUNDERS, flunder("f", labels={"a": "b"}))
        assert (status, made["metadata"]["namespace"]) == (201, "ns")
        assert (await ask("POST", FLUNDERS, flunder("f")))[0] == 409
        patch = {"spec": {"reference": "x", "unknown": 1}}
        status, patched = await ask("PATCH", f"{FLUNDERS}/f", patch, "application/merge-patch+json")
        assert (status, patched["spec"]) == (200, {"reference": "x", "referenceType": "Flunder"})
        assert patched["metadata"]["uid"] == made["metadata"]["uid"]
        stale = flunder("f", resourceVersion=made["metadata"]["resourceVersion"])
        assert (await ask("PUT", f"{FLUNDERS}/f", stale))[1]["reason"] == "Conflict"
        assert names((await ask("GET", f"{FLUNDERS}?labelSelector=a%3Db"))[1]) == ["f"]
        assert names((await ask("GET", f"{FLUNDERS}?labelSelector=a%3Dc"))[1]) == []
        assert names((await ask("GET", f"{GROUP}/flunders"))[1]) == ["f"]
        assert names((await ask("GET", f"{GROUP}/namespaces/other/flunders"))[1]) == []
        assert (await ask("DELETE", f"{FLUNDERS}/f"))[0] == 200
        status, missing = await ask("GET", f"{FLUNDERS}/f")
        assert (status, missing["message"]) == (404, 'flunders.wardle.example.com "f" not found')

    with_server(box, use)


def test_a_watch_answers_with_the_next_event(box: Box) -> None:
    async def use(ask: Ask) -> None:
        _, empty = await ask("GET", FLUNDERS)
        since = empty["metadata"]["resourceVersion"]
        watching = asyncio.create_task(
            ask(
                "GET", f"{FLUNDERS}?watch=1&fieldSelector=metadata.name%3Df&resourceVersion={since}"
            )
        )
        await ask("POST", FLUNDERS, flunder("other"))
        await ask("POST", FLUNDERS, flunder("f"))
        status, event = await watching
        assert (status, event["type"], event["object"]["metadata"]["name"]) == (200, "ADDED", "f")
        await ask("DELETE", FLUNDERS)
        version = event["object"]["metadata"]["resourceVersion"]
        _, events = await ask("GET", f"{FLUNDERS}?watch=1&resourceVersion={version}")
        assert [e["type"] for e in events] == ["DELETED", "DELETED"]

    with_server(box, use)


def test_a_fischer_bans_names(box: Box) -> None:
    async def use(ask: Ask) -> None:
        fischer = {**flunder("x"), "kind": "Fischer", "disallowedFlunders": ["evil"]}
        assert (await ask("POST", f"{GROUP}/fischers", fischer))[0] == 201
        status, refused = await ask("POST", FLUNDERS, flunder("evil"))
        assert (status, refused["message"]) == (
            403,
            'flunders.wardle.example.com "evil" is forbidden: this name may not be used, please '
            "change the resource name",
        )

    with_server(box, use)


def test_what_it_refuses(box: Box) -> None:
    async def use(ask: Ask) -> None:
        assert (await ask("GET", FLUNDERS, user=""))[0] == 403
        assert (await ask("GET", f"{GROUP}/nothing"))[0] == 404
        assert (await ask("POST", FLUNDERS, {"kind": "Pod", "apiVersion": "v1"}))[0] == 400
        assert (await ask("POST", FLUNDERS, flunder("")))[0] == 422
        assert (await ask("POST", f"{FLUNDERS}/f", flunder("f")))[0] == 405
        assert (await ask("GET", f"{FLUNDERS}?watch=1&sendInitialEvents=true"))[0] == 422

    with_server(box, use)
