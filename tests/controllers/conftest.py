"""A control plane on virtual time: an API server on a memory store, and the controllers under test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conftest import ContextFactory
from tests.inline_workers import InlineWorkers

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import CONTROLLERS, USER, ControllerManager, ControllerRow
from transom.kit.clock import VirtualClock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import parse_release
from transom.machinery.serviceaccounts import group_names, user_name
from transom.store.memory import MemoryStore

ROOT_CA = "-----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n"


def sign(claims: dict[str, Any]) -> str:
    """A token that shows what it was made of."""
    return "token of " + claims["sub"]


class Plane:
    """`client` is the administrator's."""

    def __init__(
        self,
        clock: VirtualClock,
        controllers: Sequence[str],
        table: Sequence[ControllerRow],
        settings: ControllerSettings | None = None,
        dual_stack: bool = True,
        release: str = "1.20",
    ) -> None:
        self.clock = clock
        self.rng = random.Random(7)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(clock),
                workers=InlineWorkers(),
                clock=clock,
                rng=self.rng,
                release=release,
                feature_gates={"IPv6DualStack": dual_stack, "TTLAfterFinished": True},
                service_cidr="10.96.0.0/16" + (",fd00:10:96::/112" if dual_stack else ""),
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        self._selection = controllers, table
        self._settings = settings or ControllerSettings(
            root_ca=ROOT_CA, sign=sign, release=parse_release(release)
        )
        self._running: asyncio.Task[None] | None = None

    def _client(self, identity: str) -> ApiClient:
        name = user_name("kube-system", identity) if identity else USER
        groups = group_names("kube-system") if identity else ()
        return InProcessClient(
            self.api,
            UserInfo(name, (*groups, "system:authenticated")),
            user_agent="kube-controller-manager",
        )

    def start_controllers(self) -> None:
        controllers, table = self._selection
        manager = ControllerManager(
            self._client, self.clock, self.rng, self._settings, controllers=controllers, table=table
        )
        self._running = asyncio.create_task(manager.run())

    async def stop_controllers(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def settle(self, seconds: float = 0.5) -> None:
        """Run all tasks that are due, for so long on the clock of the plane."""
        await self.clock.run_for(seconds, turns=200)

    async def missing(self, *where: Any) -> bool:
        try:
            await self.client.get(*where)
        except ApiError as problem:
            assert problem.code == 404
            return True
        return False

    async def get(self, *where: Any) -> Object:
        return await self.client.get(*where)


@asynccontextmanager
async def running_control_plane(
    controllers: Sequence[str] = ("*",),
    table: Sequence[ControllerRow] = CONTROLLERS,
    settings: ControllerSettings | None = None,
    dual_stack: bool = True,
    release: str = "1.20",
) -> AsyncIterator[Plane]:
    plane = Plane(VirtualClock(), controllers, table, settings, dual_stack, release)
    await plane.api.start()
    plane.start_controllers()
    try:
        await plane.settle()
        yield plane
    finally:
        await plane.stop_controllers()
        await plane.api.stop()


@pytest.fixture
def control_plane() -> ContextFactory:
    """Runs a scenario with some controllers: play(scenario, "namespace")."""

    @asynccontextmanager
    async def run(
        *controllers: str,
        settings: ControllerSettings | None = None,
        dual_stack: bool = True,
        release: str = "1.20",
    ) -> AsyncIterator[Plane]:
        made = running_control_plane(
            controllers or ("*",), settings=settings, dual_stack=dual_stack, release=release
        )
        async with asyncio.timeout(30), made as plane:
            yield plane

    return run
