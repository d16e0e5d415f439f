"""Logs through the API server: the request to the kubelet, and how its responses are passed on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse
from transom.http.stream import Stream
from transom.kit.streaming import websocket

from .support import NODE_IP, run, running_api_server

LOG = "/api/v1/namespaces/default/pods/p/log"


async def test_a_log_is_asked_for_as_the_client_wants_it(tmp_path: Path) -> None:
    async with run():
        seen: list[HttpRequest] = []

        def kubelet(request: HttpRequest) -> Answer:
            seen.append(request)
            return HttpResponse(200, [(b"Content-Type", b"text/html")], b"line\n")

        async with running_api_server(tmp_path) as w:
            w.kubelet(kubelet)
            await w.node()
            await w.pod(containers=("c", "d"))
            query = (
                "container=d&follow=false&previous=true&timestamps=1&tailLines=3&limitBytes=10"
                "&sinceTime=2020-01-02T04:04:05%2B01:00"
            )
            got = await w.ask("GET", f"{LOG}?{query}", {"Accept": "text/plain"})
            assert (got.status, got.body) == (200, b"line\n")
            assert got.headers["content-type"] == "text/plain"
            assert seen[0].target == (
                b"/containerLogs/default/p/d?limitBytes=10&previous=true&"
                b"sinceTime=2020-01-02T03%3A04%3A05Z&tailLines=3&timestamps=true"
            )
            assert seen[0].peer is not None
            assert (seen[0].peer.cn, seen[0].peer.organizations) == (
                "kube-apiserver-kubelet-client",
                ["system:masters"],
            )
            assert b"authorization" not in seen[0].headers


async def test_a_log_is_followed_while_it_grows(tmp_path: Path) -> None:
    async with run():
        streams: list[Stream] = []
        gone = asyncio.Event()

        def start(stream: Stream) -> None:
            stream.on_close = gone.set
            stream.write(b"one\n")
            streams.append(stream)

        async with running_api_server(tmp_path) as w:
            w.kubelet(lambda request: StreamResponse(200, [], start))
            await w.node()
            await w.pod()
            peer = await w.peer()
            await peer.send("GET", f"{LOG}?follow=true")
            status, _ = await peer.head()
            assert (status, await peer.chunk()) == (200, b"one\n")
            streams[0].write(b"two\n")
            assert await peer.chunk() == b"two\n"
            peer.close()
            await gone.wait()  # the kubelet hears that the client has gone


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            'container "c" in pod "p" is waiting to start: ContainerCreating',
            {
                "code": 400,
                "reason": "BadRequest",
                "message": 'container "c" in pod "p" is waiting to start: ContainerCreating',
            },
        ),
        (
            500,
            "broken",
            {
                "code": 500,
                "reason": "InternalError",
                "message": "Internal error occurred: broken",
                "details": {"causes": [{"message": "broken"}]},
            },
        ),
        (
            404,
            "who?",
            {
                "code": 404,
                "reason": "NotFound",
                "message": "the server could not find the requested resource ( pods/log p)",
                "details": {"name": "p", "kind": "pods/log"},
            },
        ),
        (
            403,
            "Forbidden (user=x)",
            {"code": 403, "reason": "Forbidden", "message": "Forbidden (user=x) ( pods/log p)"},
        ),
        (
            302,
            "",
            {
                "code": 302,
                "reason": None,
                "message": (
                    "the server responded with the status code 302 but did not return more "
                    "information ( pods/log p)"
                ),
            },
        ),
    ],
)
async def test_what_a_kubelet_refuses(
    tmp_path: Path, status: int, body: str, expected: dict[str, Any]
) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.kubelet(lambda request: HttpResponse(status, [], body.encode()))
        await w.node()
        await w.pod()
        got = await w.ask("GET", LOG)
        assert got.status == status
        assert {key: got.json.get(key) for key in expected} == expected


async def test_kubelets_that_cannot_be_reached(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        await w.pod()
        got = await w.ask("GET", LOG)
        assert (got.status, got.json["message"]) == (404, 'nodes "n1" not found')
        await w.node(addresses=[{"type": "InternalDNS", "address": "n1.local"}])
        got = await w.ask("GET", LOG)
        assert (got.status, got.json["message"]) == (
            500,
            "no preferred addresses found; known addresses: [{InternalDNS n1.local}]",
        )
        assert "reason" not in got.json
        await w.api.ok("DELETE", "/api/v1/nodes/n1")
        await w.node(daemonEndpoints={"kubeletEndpoint": {"Port": 10299}})
        got = await w.ask("GET", f"{LOG}?tailLines=1")
        assert (got.status, got.json["message"]) == (
            500,
            f'Get "https://{NODE_IP}:10299/containerLogs/default/p/c?tailLines=1": '
            f"dial tcp {NODE_IP}:10299: connect: connection refused",
        )
        got = await w.ask("GET", f"{LOG}?sinceTime=x")
        assert (got.status, got.json["message"]) == (
            400,
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        )


async def test_the_kubelets_certificate_is_checked_when_there_is_an_authority(
    tmp_path: Path,
) -> None:
    async with run():
        from transom.kit import pki

        async with running_api_server(tmp_path, ca=pki.make_ca("another").certificate) as w:
            w.kubelet(lambda request: HttpResponse(200, [], b"line"))
            await w.node()
            await w.pod()
            got = await w.ask("GET", LOG)
            assert (got.status, got.json["message"]) == (
                500,
                f'Get "https://{NODE_IP}:10250/containerLogs/default/p/c": '
                "x509: certificate signed by unknown authority",
            )
            got = await w.ask("GET", f"{LOG}?insecureSkipTLSVerifyBackend=true")
            assert (got.status, got.body) == (200, b"line")


async def test_a_log_as_messages_of_a_websocket(tmp_path: Path) -> None:
    async with run(), running_api_server(tmp_path) as w:
        w.kubelet(lambda request: HttpResponse(200, [], b"line\n"))
        await w.node()
        await w.pod()
        peer = await w.peer()
        key = websocket.make_key()
        headers = {
            k.decode(): v.decode()
            for k, v in websocket.request_headers(key, ["base64.binary.k8s.io"])
        }
        await peer.send("GET", LOG, headers)
        status, got = await peer.head()
        assert websocket.check_handshake_response(status, got, key, ["base64.binary.k8s.io"]) == ""
        socket = websocket.WebSocketConnection(client=True)
        events = socket.receive_data(await peer.reader.read())
        assert events == [
            websocket.WebSocketMessage(b"", True),
            websocket.WebSocketMessage(b"bGluZQo=", True),
            websocket.CloseReceived(1000, ""),
        ]
        peer.close()
