"""A flood of lists by one user does not starve leases, watches, health checks or other users."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.http import HttpServer
from transom.http.messages import HttpResponse, PeerCertificate, StreamResponse
from transom.store.memory import MemoryStore

FLOOD = PeerCertificate("flood", ["devs"])
JANE = PeerCertificate("jane", ["devs"])
MANAGER = PeerCertificate("system:kube-controller-manager", [])
CM = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAME = "kube-controller-manager"
LEASE = f"{LEASES}/{NAME}"
OBJECTS = 2000


@asynccontextmanager
async def run() -> AsyncIterator[Api]:
    api = await start()
    await fill(api)
    yield api
    await api.server.stop()


async def fill(api: Api, size: int = 1000) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "Group", "apiGroup": group, "name": "devs"}],
    }
    await api.ok("POST", f"/apis/{group}/v1/clusterrolebindings", binding)
    for start_at in range(0, OBJECTS, 500):
        await asyncio.gather(
            *(
                api.ok("POST", CM, {"metadata": {"name": f"c{n:05}"}, "data": {"text": "x" * size}})
                for n in range(start_at, start_at + 500)
            )
        )


async def get(api: Api, target: str, peer: PeerCertificate) -> Any:
    """As over a connection whose client reads at once."""
    answer = await api.send("GET", target, peer=peer)
    if isinstance(answer, HttpResponse) and answer.on_end is not None:
        await asyncio.sleep(0)
        answer.on_end()
    return answer


async def test_leases_watches_health_and_others_go_on_during_a_flood_of_lists() -> None:
    async with run() as api:
        lease = await api.ok(
            "POST",
            LEASES,
            {"metadata": {"name": NAME}, "spec": {"holderIdentity": "m"}},
            peer=MANAGER,
        )
        stream = await api.watch(
            LEASES + f"?watch=1&resourceVersion={lease['metadata']['resourceVersion']}",
            peer=MANAGER,
        )
        done: list[Any] = []

        async def flood() -> None:
            done.append(await get(api, CM, FLOOD))

        tasks = [asyncio.create_task(flood()) for _ in range(600)]
        await asyncio.sleep(0)
        for n in range(10):
            lease["spec"]["renewTime"] = f"2020-01-02T03:04:{n:02}.000000Z"
            lease = await api.ok("PUT", LEASE, lease, peer=MANAGER)
            assert [e["object"]["spec"]["renewTime"] for e in stream.events()] == [
                lease["spec"]["renewTime"]
            ]
            assert (await get(api, "/readyz", FLOOD)).status == 200
        answered = [a for a in done if a.status == 200]
        # A write takes a few turns of the loop, and in each at most one list.
        assert len(answered) < 100, "the lists went first"
        theirs = await get(api, CM + "/c00001", JANE)
        assert theirs.status == 200
        before = len([a for a in done if a.status == 200])
        assert (await get(api, CM, JANE)).status == 200  # a list of another user of the same level
        assert len([a for a in done if a.status == 200]) < before + 20
        await asyncio.gather(*tasks)
        assert Counter(a.status for a in done).keys() == {200, 429}
        level = api.server.flows.levels["global-default"]
        assert (level.executing, level.waiting) == (0, 0)


async def test_requests_above_the_limit_get_retry_after() -> None:
    async with run() as api:
        answers = await asyncio.gather(*(get(api, CM, FLOOD) for _ in range(600)))
        refused = [a for a in answers if a.status == 429]
        assert 100 < len(refused) < 500
        assert refused[0].body == b"Too many requests, please try again later.\n"
        headers = dict(refused[0].headers)
        assert (
            headers[b"Retry-After"] == b"1"
            and headers[b"Content-Type"] == b"text/plain; charset=utf-8"
        )
        assert not any(name.startswith(b"X-Kubernetes-Pf") for name in headers)
        text = (await api.send("GET", "/metrics")).body.decode()
        assert (
            'apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",'
            f'reason="queue-full"}} {len(refused)}'
        ) in text


async def test_administrators_are_never_refused_but_their_lists_take_turns() -> None:
    async with run() as api:
        done = 0

        async def flood() -> None:
            nonlocal done
            assert (await api.send("GET", CM)).status == 200
            done += 1

        tasks = [asyncio.create_task(flood()) for _ in range(400)]
        await asyncio.sleep(0)
        for n in range(5):
            await api.ok(
                "PUT",
                LEASE,
                {"metadata": {"name": NAME, "namespace": "kube-system"}, "spec": {}}
                if not n
                else await api.ok("GET", LEASE),
            )
        assert done < 60
        await asyncio.gather(*tasks)


async def test_a_watch_that_begins_with_everything_takes_its_turn_too() -> None:
    async with run() as api:
        answers = [
            asyncio.create_task(api.send("GET", CM + "?watch=1", peer=FLOOD)) for _ in range(50)
        ]
        await asyncio.sleep(0)
        await api.ok("PUT", CM + "/c00000", await api.ok("GET", CM + "/c00000"))
        assert sum(a.done() for a in answers) < 30
        for answer in await asyncio.gather(*answers):
            assert isinstance(answer, StreamResponse)


async def test_answers_say_which_schema_and_level_matched() -> None:
    async with run() as api:
        group = "/apis/flowcontrol.apiserver.k8s.io/v1beta1"
        schema = await api.ok("GET", group + "/flowschemas/global-default")
        level = await api.ok("GET", group + "/prioritylevelconfigurations/global-default")
        for target, status in ((CM + "/c00000", 200), ("/api/v1/nodes", 403), (CM + "/none", 404)):
            answer = await get(api, target, FLOOD)
            headers = dict(answer.headers)
            assert answer.status == status
            assert headers[b"X-Kubernetes-Pf-Flowschema-Uid"].decode() == schema["metadata"]["uid"]
            assert (
                headers[b"X-Kubernetes-Pf-Prioritylevel-Uid"].decode() == level["metadata"]["uid"]
            )
        stream = await api.send("GET", LEASES + "?watch=1")
        assert not any(name.startswith(b"X-Kubernetes-Pf") for name, _ in stream.headers)


# ---- over sockets ----


class Client:
    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)

    def head(self, method: str, target: str, body: bytes = b"") -> bytes:
        return (
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    async def call(self, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        reader, writer = await self.connect()
        try:
            writer.write(self.head(method, target, b"" if body is None else orjson.dumps(body)))
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return int(head.split()[1]), await reader.readexactly(size)
        finally:
            writer.close()


def _lists_served(api: Any) -> int:
    lines = [
        line
        for line in api.metrics.render({}).splitlines()
        if line.startswith('apiserver_request_total{code="200"')
    ]
    return sum(
        int(line.rsplit(" ", 1)[1])
        for line in lines
        if 'resource="configmaps"' in line and 'verb="LIST"' in line
    )


@pytest.mark.timeout(60)
async def test_over_sockets_leases_stay_quick_and_a_slow_reader_keeps_his_seats() -> None:
    authenticated = ("system:authenticated",)
    tokens = {
        "flood": UserInfo("flood", ("devs", *authenticated)),
        "lease": UserInfo("system:kube-controller-manager", authenticated),
        "admin": UserInfo("admin", ("system:masters", *authenticated)),
    }
    api = build_api_server(ServerOptions(store=MemoryStore(), tokens=tokens))
    await api.start()
    server = HttpServer(api.handler, None, bodies=api.handler)
    port = await server.start("127.0.0.1")
    await fill(Api(api, api.clock), 5000)  # more than the sockets take in
    flood, leases = Client(port, "flood"), Client(port, "lease")
    lists = [asyncio.create_task(flood.call("GET", CM)) for _ in range(100)]
    await asyncio.sleep(0.05)
    lease: Any = {"metadata": {"name": NAME}, "spec": {}}
    status, made = await leases.call("POST", LEASES, lease)
    assert status == 201
    slowest = 0.0
    for _ in range(10):
        began = time.monotonic()
        status, made = await leases.call("PUT", LEASE, orjson.loads(made))
        slowest = max(slowest, time.monotonic() - began)
        assert status == 200
    assert slowest < 2.0
    assert {(await task)[0] for task in lists} <= {200, 429}
    level = api.flows.levels["global-default"]
    assert level.executing == 0

    # Clients that ask and do not read: their lists lie in memory, so their seats stay taken.
    slow = []
    for _ in range(30):
        _, writer = await flood.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(flood.head("GET", CM))
        slow.append(writer)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if level.waiting:
            break
    assert 40 < level.executing <= level.limit and level.waiting > 0
    served = _lists_served(api)
    for writer in slow:
        writer.transport.abort()
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not level.executing and not level.waiting:
            break
    assert (level.executing, level.waiting) == (0, 0)
    assert _lists_served(api) - served < 10  # hardly anything was done for those who had gone
    await server.stop(1.0)
    await api.stop()
