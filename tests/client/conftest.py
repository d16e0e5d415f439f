"""An API server on a memory store, and clients of both kinds to it, all on the loop of one test."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ContextFactory

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.client.http import HttpClient
from transom.client.kubeconfig import RestConfig
from transom.http import HttpServer, server_context
from transom.kit import pki
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

ADMIN = UserInfo("jane", ("system:masters", "system:authenticated"))
NOBODY = UserInfo("nobody", ("system:authenticated",))


class Hurried(RealClock):
    """Waits a hundredth of the time: back-off is real, but short."""

    __slots__ = ()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


class Tls:
    def __init__(self, folder: Path) -> None:
        ca = pki.make_ca("kubernetes")
        pki.save_key_pair(ca, folder / "ca.crt", folder / "ca.key")
        pki.save_key_pair(
            pki.issue_server(ca, "api", ["localhost"], ["127.0.0.1"]),
            folder / "api.crt",
            folder / "api.key",
        )
        self.server = server_context(folder / "api.crt", folder / "api.key", folder / "ca.crt")
        self.clients = {}
        for user in (ADMIN, NOBODY):
            pki.save_key_pair(
                pki.issue_client(ca, user.name, [user.groups[0]]),
                folder / "user.crt",
                folder / "user.key",
            )
            context = self.clients[user.name] = ssl.create_default_context(cafile=folder / "ca.crt")
            context.load_cert_chain(folder / "user.crt", folder / "user.key")


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("pki"))


class ClientHarness:
    """One API server. `client()` gives a client of the kind under test."""

    def __init__(self, api: ApiServer, kind: str, tls: Tls | None) -> None:
        self.api = api
        self.kind = kind
        self._tls = tls
        self._http: HttpServer | None = None
        self._port = 0
        self._clients: list[HttpClient] = []

    async def serve(self) -> None:
        if self._tls is not None:
            self._http = HttpServer(self.api.handler, self._tls.server, bodies=self.api.handler)
            self._port = await self._http.start("127.0.0.1", self._port)

    async def stop_serving(self) -> None:
        if self._http is not None:
            await self._http.stop(0.0)
            self._http = None

    def client(self, user: UserInfo = ADMIN) -> ApiClient:
        if self._tls is None:
            return InProcessClient(self.api, user, user_agent="tester/1")
        made = HttpClient(
            RestConfig("127.0.0.1", self._port, self._tls.clients[user.name]),
            Hurried(),
            user_agent="tester/1",
        )
        self._clients.append(made)
        return made

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.stop_serving()


@asynccontextmanager
async def running_api_server(
    kind: str, tls: Tls | None, release: str = "1.20"
) -> AsyncIterator[ClientHarness]:
    api = build_api_server(
        ServerOptions(store=MemoryStore(), rng=random.Random(1), release=release)
    )
    await api.start()
    made = ClientHarness(api, kind, tls if kind == "https" else None)
    await made.serve()
    try:
        yield made
    finally:
        await made.close()
        await api.stop()


Scenario = Callable[[ClientHarness], Awaitable[None]]


@pytest.fixture(params=["inprocess", "https"])
def api_server(request: pytest.FixtureRequest, tls: Tls) -> ContextFactory:
    """Runs a scenario in a world of either kind."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Any]:
        async with asyncio.timeout(20), running_api_server(request.param, tls) as made:
            yield made

    return run


@pytest.fixture
def https_api_server(tls: Tls) -> ContextFactory:
    """The same over HTTPS, on the loop that components run on."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Any]:
        async with asyncio.timeout(20), running_api_server("https", tls) as made:
            yield made

    return run


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until something is so; the scenario's time limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110 (the condition has no event)
        await asyncio.sleep(0.001)
