"""An aggregated API server over real TLS: the connection, the user that it is sent, and its
availability.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.apiserver.harness import Api, start
from tests.conftest import UVLOOP, Backend

from transom.apiserver.core.context import UserInfo
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import GroupVersionResource
from transom.http import HttpServer, server_context
from transom.http.messages import Answer, HttpRequest, HttpResponse, StreamResponse, UpgradeResponse
from transom.http.outgoing import CallError, CallTarget, ClientPair, OutgoingConnection, dial_target
from transom.http.server import listen_sockets
from transom.http.stream import Stream
from transom.kit import pki
from transom.machinery.errors import ApiError


@pytest.fixture
def anyio_backend() -> Backend:
    return UVLOOP


Json = dict[str, Any]
CA, PROXY_CA = pki.make_ca("aggregated"), pki.make_ca("front-proxy-ca")
GROUP = "things.example.com"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DISCOVERY = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/v1",
    "resources": [
        {
            "name": "things",
            "singularName": "",
            "namespaced": True,
            "kind": "Thing",
            "verbs": ["get", "list"],
        }
    ],
}


class RemoteApiService:
    """The aggregated server. `discovery` is asked for its resources, `answer` for all else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[HttpRequest] = []
        self.answer: Callable[[HttpRequest], Answer] = lambda _request: HttpResponse(200, [], b"{}")
        self.discovery: Callable[[HttpRequest], Answer] = lambda _request: HttpResponse(
            200, [(b"Content-Type", b"application/json")], orjson.dumps(DISCOVERY)
        )
        self.port = 0
        self._server: HttpServer | None = None

    def __call__(self, request: HttpRequest) -> Answer:
        if request.path == f"/apis/{GROUP}/v1":
            return self.discovery(request)
        self.requests.append(request)
        return self.answer(request)

    async def start(self) -> None:
        pki.save_key_pair(
            pki.issue_server(CA, "agg", ["agg.default.svc"]),
            self.folder / "s.crt",
            self.folder / "s.key",
        )
        (self.folder / "proxy-ca.crt").write_bytes(PROXY_CA.certificate)
        context = server_context(
            self.folder / "s.crt", self.folder / "s.key", self.folder / "proxy-ca.crt"
        )
        self._server = HttpServer(self, context)
        sockets = listen_sockets(["127.0.0.1"], self.port)
        self.port = sockets[0].getsockname()[1]
        await self._server.serve(sockets)

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0.0)
            self._server = None


class AggregationHarness:
    def __init__(self, api: Api, remote: RemoteApiService, front: int) -> None:
        self.api, self.remote, self._front = api, remote, front

    async def register(self, service: str = "agg", **spec: Any) -> None:
        if not spec:
            spec = {"caBundle": base64.b64encode(CA.certificate).decode()}
        await self.api.ok(
            "POST",
            SERVICES,
            {
                "metadata": {"name": f"v1.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "version": "v1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 10,
                    "service": {"namespace": "default", "name": service, "port": self.remote.port},
                    **spec,
                },
            },
        )

    async def service(self) -> None:
        await self.api.ok(
            "POST",
            "/api/v1/namespaces/default/services",
            {
                "metadata": {"name": "agg"},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
        )

    async def condition(self, reason: str) -> Json:
        """The condition, once it is there for this reason."""
        async with asyncio.timeout(10):
            while True:
                found = await self.api.ok("GET", f"{SERVICES}/v1.{GROUP}")
                conditions = (found.get("status") or {}).get("conditions") or [{}]
                if conditions[0].get("reason") == reason:
                    return conditions[0]
                await asyncio.sleep(0.005)

    async def dial(self) -> OutgoingConnection:
        """A connection of a client, as the admin."""
        pair = ClientPair(self.remote.folder / "admin.crt", self.remote.folder / "admin.key")
        return await dial_target(
            CallTarget("127.0.0.1", self._front, "127.0.0.1", CA.certificate, pair=pair)
        )


@asynccontextmanager
async def running_api_server() -> Any:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pki.save_key_pair(
            pki.issue_client(PROXY_CA, "front-proxy-client"), folder / "p.crt", folder / "p.key"
        )
        pki.save_key_pair(
            pki.issue_server(CA, "front", [], ["127.0.0.1"]), folder / "f.crt", folder / "f.key"
        )
        (folder / "ca.crt").write_bytes(CA.certificate)
        api = await start(
            front_proxy=ClientPair(folder / "p.crt", folder / "p.key"),
            front_proxy_ca=PROXY_CA.certificate,
            ca=CA.certificate,
        )
        admin = pki.issue_client(CA, "admin", ["system:masters"], now=api.clock.time())
        pki.save_key_pair(admin, folder / "admin.crt", folder / "admin.key")
        remote = RemoteApiService(folder)
        await remote.start()
        front = HttpServer(
            api.server.handler,
            server_context(folder / "f.crt", folder / "f.key", folder / "ca.crt"),
            bodies=api.server.handler,
        )
        sockets = listen_sockets(["127.0.0.1"], 0)
        await front.serve(sockets)
        try:
            yield AggregationHarness(api, remote, sockets[0].getsockname()[1])
        finally:
            await front.stop(0.0)
            await remote.stop()
            await api.server.stop()


@asynccontextmanager
async def run() -> AsyncIterator[AggregationHarness]:
    async with running_api_server() as found:
        yield found


def get(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_the_user_is_forwarded_and_the_answer_returned() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        assert (await w.condition("Passed"))["message"] == "all checks passed"
        w.remote.answer = lambda r: HttpResponse(
            418, [(b"Content-Type", b"text/tea"), (b"X-Own", b"1")], b"got " + r.body
        )
        client = await w.dial()
        head = await client.send(
            get(
                f"/apis/{GROUP}/v1/namespaces/a/things?x=%2F",
                "X-Remote-User: mallory",
                "X-Remote-Extra-A: b",
                "Authorization: Bearer secret",
                "X-Mine: kept",
                "Impersonate-User: jane",
                "Impersonate-Group: g,1",
                "Impersonate-Extra-Scope%2Fs: deep",
                "Impersonate-Group: system:masters",
                method="POST",
                body=b"tea",
            )
        )
        assert (head.status, head.header(b"content-type"), head.header(b"x-own")) == (
            418,
            "text/tea",
            "1",
        )
        assert await client.read_all(100) == b"got tea"
        (requested,) = w.remote.requests
        assert requested.target == f"/apis/{GROUP}/v1/namespaces/a/things?x=%2F".encode()
        assert requested.peer is not None
        assert requested.peer.cn == "front-proxy-client"
        assert requested.header(b"x-remote-user") == "jane"
        assert requested.header(b"x-remote-group") == "g,1, system:masters, system:authenticated"
        assert requested.header(b"x-remote-extra-scope%2fs") == "deep"
        assert (requested.header(b"x-mine"), requested.header(b"x-forwarded-for")) == (
            "kept",
            "127.0.0.1",
        )
        assert not {b"authorization", b"impersonate-user", b"x-remote-extra-a"} & set(
            requested.headers
        )
        client.close()


async def test_access_is_decided_first() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")
        code, body = await w.api.call(
            "GET", f"/apis/{GROUP}/v1/things", headers={b"impersonate-user": b"jane"}
        )
        assert (code, body["message"]) == (
            403,
            f'things.{GROUP} is forbidden: User "jane" cannot list resource "things" in API '
            f'group "{GROUP}" at the '
            "cluster scope",
        )
        assert not w.remote.requests


async def test_its_groups_are_in_discovery() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")
        groups = (await w.api.ok("GET", "/apis"))["groups"]
        group = next(g for g in groups if g["name"] == GROUP)
        assert group["preferredVersion"] == {"groupVersion": f"{GROUP}/v1", "version": "v1"}
        assert (await w.api.ok("GET", f"/apis/{GROUP}"))["versions"] == group["versions"]
        assert await w.api.ok("GET", f"/apis/{GROUP}/v1") == DISCOVERY  # asked for, not remembered
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        items = (await w.api.ok("GET", "/apis", accept=accept))["items"]
        found = next(g for g in items if g["metadata"]["name"] == GROUP)["versions"][0]
        assert (found["freshness"], found["resources"][0]["resource"]) == ("Current", "things")
        await w.api.ok("DELETE", f"{SERVICES}/v1.{GROUP}")
        assert GROUP not in [g["name"] for g in (await w.api.ok("GET", "/apis"))["groups"]]
        assert await w.api.call("GET", f"/apis/{GROUP}/v1/things") == (404, "404 page not found\n")


async def test_a_watch_flows_through() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")
        streams: list[Stream] = []
        w.remote.answer = lambda _r: StreamResponse(
            200, [(b"Content-Type", b"application/json")], streams.append
        )
        client = await w.dial()
        head = await client.send(get(f"/apis/{GROUP}/v1/things?watch=1"))
        assert head.header(b"transfer-encoding") == "chunked"
        streams[0].write(b"one\n")
        assert await client.read() == b"one\n"
        streams[0].write(b"two\n")
        assert await client.read() == b"two\n"
        client.abort()  # a client that leaves is not waited for
        left = asyncio.Event()
        streams[0].on_close = left.set
        async with asyncio.timeout(5):
            await left.wait()


async def test_big_answers_wait_for_a_slow_reader() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")
        parts = [bytes([n % 251]) * 500_000 for n in range(60)]
        w.remote.answer = lambda _r: HttpResponse(200, [], list(parts))
        client = await w.dial()
        await client.send(get(f"/apis/{GROUP}/v1/things"))
        # the client does not read: more than any buffer holds is still to come
        await asyncio.sleep(0.2)
        assert await client.read_all(40_000_000) == b"".join(parts)
        client.close()


async def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")

        def half(stream: Stream) -> None:
            stream.write(b"half")
            stream.flush()
            stream.abort()

        w.remote.answer = lambda _r: StreamResponse(200, [], half)
        client = await w.dial()
        await client.send(get(f"/apis/{GROUP}/v1/things"))
        with pytest.raises(CallError, match=r"EOF|reset"):
            await client.read_all(1000)


async def test_upgrades_are_joined() -> None:
    async with run() as w:
        await w.service()
        await w.register()
        await w.condition("Passed")
        headers = [(b"Connection", b"Upgrade"), (b"Upgrade", b"echo")]
        w.remote.answer = lambda _r: UpgradeResponse(
            headers, lambda raw: raw.receive(lambda d: raw.write(d.upper()))
        )
        client = await w.dial()
        head = await client.send(
            get(f"/apis/{GROUP}/v1/things", "Connection: Upgrade", "Upgrade: echo")
        )
        assert (head.status, head.header(b"upgrade")) == (101, "echo")
        big = b"abc" * 400_000
        await client.write(big)
        got = b""
        while len(got) < len(big):
            got += await client.read()
        assert got == big.upper()
        client.abort()


async def test_certificates_are_checked() -> None:
    async with run() as w:
        await w.service()
        other = base64.b64encode(PROXY_CA.certificate).decode()
        await w.register(caBundle=other)
        await w.condition("Passed")  # the check of availability does not mind
        code, text = await w.api.call("GET", f"/apis/{GROUP}/v1/things")
        assert (code, text) == (
            503,
            "error trying to reach service: x509: certificate signed by unknown authority\n",
        )


async def test_it_comes_and_goes() -> None:
    async with run() as w:
        await w.register()
        found = await w.condition("ServiceNotFound")
        assert found["message"] == 'service/agg in "default" is not present'
        assert await w.api.call("GET", f"/apis/{GROUP}/v1/things") == (503, "service unavailable\n")
        await w.service()  # noticed at once
        await w.condition("Passed")
        port = w.remote.port
        await w.remote.stop()
        w.api.clock.advance(31)
        found = await w.condition("FailedDiscoveryCheck")
        url = f"https://localhost:{port}/apis/{GROUP}/v1"
        assert found["message"].startswith(
            f'failing or missing response from {url}: Get "{url}": dial tcp '
        )
        assert found["message"].endswith(f":{port}: connect: connection refused")
        assert await w.api.call("GET", f"/apis/{GROUP}/v1/things") == (503, "service unavailable\n")


def endpoints(ports: list[Json], addresses: list[Json]) -> Json:
    return {
        "metadata": {"name": "agg"},
        "subsets": [{"addresses": addresses, "ports": ports}] if ports else [],
    }


@pytest.mark.parametrize(
    ("port", "found", "reason", "message"),
    [
        (8443, None, "ServicePortError", 'service/agg in "default" is not listening on port PORT'),
        (None, None, "EndpointsNotFound", 'cannot find endpoints for service/agg in "default"'),
        (
            None,
            endpoints([], []),
            "MissingEndpoints",
            'endpoints for service/agg in "default" have no addresses with port name "https"',
        ),
        (
            None,
            endpoints([{"name": "other", "port": 1}], [{"ip": "10.0.0.1"}]),
            "MissingEndpoints",
            'endpoints for service/agg in "default" have no addresses with port name "https"',
        ),
    ],
)
async def test_what_is_wrong_with_a_service(
    port: int | None, found: Json | None, reason: str, message: str
) -> None:
    async with run() as w:
        if found is not None:
            await w.api.ok("POST", "/api/v1/namespaces/default/endpoints", found)
        await w.api.ok(
            "POST",
            "/api/v1/namespaces/default/services",
            {
                "metadata": {"name": "agg"},
                "spec": {"ports": [{"name": "https", "port": port or w.remote.port}]},
            },
        )
        await w.register()
        condition = await w.condition(reason)
        assert (condition["status"], condition["message"]) == (
            "False",
            message.replace("PORT", str(w.remote.port)),
        )


async def test_what_this_server_serves_is_registered() -> None:
    async with run() as w:
        core, apps = [await w.api.ok("GET", f"{SERVICES}/{name}") for name in ("v1.", "v1.apps")]
        assert core["spec"] == {
            "version": "v1",
            "groupPriorityMinimum": 18000,
            "versionPriority": 1,
        }
        assert apps["metadata"]["labels"] == {
            "kube-aggregator.kubernetes.io/automanaged": "onstart"
        }
        (condition,) = apps["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("True", "Local")

        schema = {"openAPIV3Schema": {"type": "object"}}
        await w.api.ok(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {
                "metadata": {"name": "cogs.wheel.example.com"},
                "spec": {
                    "group": "wheel.example.com",
                    "scope": "Cluster",
                    "names": {"plural": "cogs", "kind": "Cog"},
                    "versions": [
                        {"name": "v1", "served": True, "storage": True, "schema": schema},
                        {"name": "v0", "served": False, "storage": False, "schema": schema},
                    ],
                },
            },
        )

        async def listed(wanted: bool) -> Json | None:
            async with asyncio.timeout(10):
                while True:
                    code, found = await w.api.call("GET", f"{SERVICES}/v1.wheel.example.com")
                    if (code == 200) is wanted:
                        return found if wanted else None
                    await asyncio.sleep(0.005)

        made = await listed(True)
        assert made is not None
        assert made["metadata"]["labels"] == {"kube-aggregator.kubernetes.io/automanaged": "true"}
        assert (made["spec"]["groupPriorityMinimum"], made["spec"]["versionPriority"]) == (
            1000,
            100,
        )
        assert (await w.api.call("GET", f"{SERVICES}/v0.wheel.example.com"))[0] == 404
        await w.api.ok("DELETE", f"{SERVICES}/v1.wheel.example.com")
        await listed(True)  # it comes back as long as the definition is there
        await w.api.ok(
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cogs.wheel.example.com",
        )
        await listed(False)


async def test_the_request_header_ca_is_published() -> None:
    async with run() as w:
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        data = (await w.api.ok("GET", path))["data"]
        assert data["client-ca-file"] == CA.certificate.decode()
        assert data["requestheader-client-ca-file"] == PROXY_CA.certificate.decode()
        assert data["requestheader-allowed-names"] == '["front-proxy-client"]'


async def test_components_reach_aggregated_resources() -> None:
    """The namespace controller lists and deletes them; it is a client in the same process."""
    things = GroupVersionResource(GROUP, "v1", "things", True, "Thing")
    listed = {
        "kind": "ThingList",
        "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a", "namespace": "x"}}],
    }

    def answer(request: HttpRequest) -> Answer:
        if request.method == "GET":
            return HttpResponse(200, [], orjson.dumps(listed))
        status = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        return HttpResponse(404 if request.path.endswith("/b") else 200, [], orjson.dumps(status))

    async with running_api_server() as w:
        w.remote.answer = answer
        await w.service()
        await w.register()
        await w.condition("Passed")
        client = InProcessClient(w.api.server, UserInfo("admin", ("system:masters",)))
        found = await client.list(things, "x", label_selector="a=b")
        assert (found.items, found.resource_version) == (listed["items"], "7")
        await client.delete_collection(things, "x", propagation="Background")
        with pytest.raises(ApiError) as problem:
            await client.delete(things, "x", "b")
        assert problem.value.code == 404
        sent = [r for r in w.remote.requests if b"x-remote-user" in r.headers]
        assert [(r.method, r.target) for r in sent][-3:] == [
            ("GET", b"/apis/things.example.com/v1/namespaces/x/things?labelSelector=a%3Db"),
            ("DELETE", b"/apis/things.example.com/v1/namespaces/x/things"),
            ("DELETE", b"/apis/things.example.com/v1/namespaces/x/things/b"),
        ]
        assert orjson.loads(sent[-2].body)["propagationPolicy"] == "Background"
        assert sent[-2].headers[b"content-type"] == b"application/json"
