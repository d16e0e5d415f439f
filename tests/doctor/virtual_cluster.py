"""A whole cluster on virtual time: API server, controllers, scheduler and emulated nodes, examined
by doctor through its API.

Everything runs in this process. Sockets between its parts work; nothing outside is reached, and no
time passes while there is something to do, so that a five-minute back-off takes milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.inline_workers import InlineWorkers
from tests.node.pools import make_pool
from tests.simulation.loop import LoopClock, VirtualLoop, _Selector

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import APPLY_PATCH, ApiClient, ObjectList
from transom.client.resources import EVENTS, GroupVersionResource, builtin_resource
from transom.cloud.calls import local_cloud
from transom.cloud.provider import CloudProvider
from transom.cluster.config import ClusterConfig
from transom.cluster.endpoints.node_control import ControlHandler
from transom.cluster.options import parse_feature_gates
from transom.cluster.pki import ClusterPki
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import USER, ControllerManager
from transom.doctor.examine import checks, examine
from transom.doctor.findings import DoctorFinding, is_safe_command
from transom.doctor.gather import gather_snapshot
from transom.doctor.snapshot import ClusterSnapshot
from transom.http.messages import HttpRequest, HttpResponse
from transom.kit.jws import TokenSigner
from transom.machinery.errors import ApiError
from transom.machinery.kinds import BY_KEY
from transom.machinery.objects import Object
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.serviceaccounts import group_names, user_name
from transom.node import spec as specs
from transom.node.cluster_access import ControlPlaneFacts
from transom.node.network_settings import NetworkSettings
from transom.node.spec import NodeSpec
from transom.scheduler.scheduler import USER as SCHEDULER
from transom.scheduler.scheduler import Scheduler
from transom.store.memory import MemoryStore

_SIGNING_KEY = generate_private_key(SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
ADMIN = UserInfo("admin", ("system:masters", "system:authenticated"))
MERGE = "application/merge-patch+json"
LINUX_IMAGE = "busybox:1.33"
WINDOWS_IMAGE = "mcr.microsoft.com/windows/nanoserver:1809"


class _SocketSelector(_Selector):
    """Time moves only when no socket of this process has anything to read."""

    def select(self, timeout: float | None = None) -> list[Any]:
        # Without a timer only a thread can wake the loop: the one that ends its executor, for one.
        ready = super(_Selector, self).select(5 if timeout is None else 0)
        return ready or super().select(timeout)


class TickingClock(LoopClock):
    """Never the same time twice: names of events are made of it."""

    _extra = 0.0

    def time(self) -> float:
        self._extra += 1e-6
        return super().time() + self._extra


class SocketLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        selector = _SocketSelector()
        selector.loop = self
        for key in [*self._selector.get_map().values()]:  # the loop's own pipe
            selector.register(key.fileobj, key.events, key.data)
        self._selector.close()
        self._selector = selector


class DirectApi:
    """What doctor reads of a cluster, without a socket: objects from the API server, /transom from
    the cluster's control.
    """

    def __init__(self, client: ApiClient, control: ControlHandler, git_version: str) -> None:
        self._client, self._control, self._version = client, control, git_version

    async def list(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> ObjectList:
        return await self._client.list(resource, namespace, **options)

    async def get(self, resource: GroupVersionResource, namespace: str, name: str) -> Object:
        return await self._client.get(resource, namespace, name)

    async def get_json(self, path: str) -> Any:
        if path == "/version":
            return {"gitVersion": self._version}
        answer = await self._control(HttpRequest("GET", path.encode(), path.partition("?")[0], {}))
        assert isinstance(answer, HttpResponse) and isinstance(answer.body, bytes)
        if answer.status != 200:
            raise ApiError(answer.status, "NotFound", answer.body.decode())
        return orjson.loads(answer.body)

    async def get_text(self, path: str) -> str:
        if path == "/readyz":
            return "ok"
        raise ApiError(404, "NotFound", path)


def _with_images_of(build: int, obj: Object) -> Object:
    """Objects have images of Windows Server 2019; nodes of newer releases have 2022."""
    if build != 20348:
        return obj
    changed: Object = json.loads(json.dumps(obj).replace("nanoserver:1809", "nanoserver:ltsc2022"))
    return changed


class VirtualCluster:
    def __init__(
        self,
        clock: LoopClock,
        nodes: list[NodeSpec] | None = None,
        network: NetworkSettings | None = None,
        **config: Any,
    ) -> None:
        self.clock = clock
        self.rng = random.Random(7)
        self.config = ClusterConfig(
            name="doctor", port=6443, network=network or NetworkSettings(), **config
        )
        self.config.state.mkdir(parents=True, exist_ok=True)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(clock),
                workers=InlineWorkers(),
                clock=clock,
                rng=self.rng,
                release=self.config.release,
                feature_gates=parse_feature_gates(self.config.feature_gates, self.config.release),
                service_account_key=_SIGNING_KEY,
                gmsa=True,
            )
        )
        self.client = InProcessClient(self.api, ADMIN)
        wanted = nodes or specs.demo_specs(self.config, None, None, None, taint=False)
        self.cloud = CloudProvider(clock)
        nodes = specs.complete_specs(self.config, wanted)
        self._build = next((node.build for node in nodes if node.os == "windows"), 17763)
        pki = ClusterPki(self.config.pki)
        self.pool = make_pool(self.api, self.config, nodes, clock, self.rng, self.cloud, pki=pki)
        self.control = ControlHandler(
            self.config,
            self.pool,
            ControlPlaneFacts(pki.certificates(), lambda: self.api.webhooks.failures),
        )
        self.reader = DirectApi(self.client, self.control, self.config.git_version)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.api.start()
        settings = ControllerSettings(
            release=parse_release(self.config.release),
            feature_gates=parse_feature_gates(self.config.feature_gates, self.config.release),
            root_ca="-",
            sign=TokenSigner(_SIGNING_KEY).sign,
            pod_cidrs=("10.244.0.0/16",),
            cloud=local_cloud(self.cloud),
        )

        def client(identity: str) -> ApiClient:
            name = user_name("kube-system", identity) if identity else USER
            return InProcessClient(
                self.api, UserInfo(name, (*group_names("kube-system"), "system:authenticated"))
            )

        self.scheduler = Scheduler(
            InProcessClient(self.api, UserInfo(SCHEDULER, ("system:authenticated",))),
            self.clock,
            self.rng,
            features=FeatureSet(settings.release, settings.feature_gates),
        )
        manager = ControllerManager(client, self.clock, self.rng, settings)
        self._tasks = [
            asyncio.create_task(life)
            for life in (manager.run(), self.scheduler.run(), self.pool.run())
        ]
        await self.until(self.pool.all_ready)
        await self.clock.sleep(2)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.api.stop()

    # ---- what users do ----

    async def apply(self, *objects: Object) -> None:
        """Creates each object, or changes one that exists to what is given."""
        for given in objects:
            obj = _with_images_of(self._build, given)
            resource, namespace = self.resource(obj), obj["metadata"].get("namespace", "")
            await self.client.patch(
                resource,
                namespace,
                obj["metadata"]["name"],
                obj,
                APPLY_PATCH,
                field_manager="test",
                force=True,
            )
            if obj["kind"] == "ResourceQuota":
                await self.clock.sleep(6)  # until the controller has counted

    async def delete(self, *objects: Object) -> None:
        """Deletes what exists of them, and waits until they are gone."""
        for obj in objects:
            resource, (namespace, name) = (
                self.resource(obj),
                (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]),
            )
            grace = 0 if obj["kind"] == "Pod" else None
            try:
                await self.client.delete(
                    resource, namespace, name, grace=grace, propagation="Background"
                )
            except ApiError as problem:
                if problem.code != 404:
                    raise
        for obj in objects:
            await self.until(lambda obj=obj: self._gone(obj))

    async def _gone(self, obj: Object) -> bool:
        try:
            await self.client.get(
                self.resource(obj), obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            )
        except ApiError as problem:
            return problem.code == 404
        return False

    @staticmethod
    def kinds() -> list[GroupVersionResource]:
        return [builtin_resource(key) for key in BY_KEY]

    @staticmethod
    def resource(obj: Object) -> GroupVersionResource:
        group, _, version = obj["apiVersion"].rpartition("/")
        return builtin_resource(f"{group}/{obj['kind']}")._replace(version=version)

    async def patch(
        self, resource: GroupVersionResource, name: str, body: Any, namespace: str = "default"
    ) -> None:
        await self.client.patch(resource, namespace, name, body, MERGE)

    # ---- what doctor sees ----

    async def snapshot(self) -> ClusterSnapshot:
        return await gather_snapshot(self.reader, "127.0.0.1:6443", self.clock.time())

    async def doctor(self) -> list[DoctorFinding]:
        found = await self.snapshot()
        for row in checks(found):  # no command is dropped because a shell would expand it
            for one in row.check(found):
                assert all(is_safe_command(line) for line in one.commands), one
        return examine(found)

    async def finding(self, where: str, what: str, seconds: float = 120) -> DoctorFinding:
        """The finding about an object whose text contains `what`, as soon as doctor reports it."""
        found: list[DoctorFinding] = []
        for _ in range(int(seconds)):
            found = await self.doctor()
            for one in found:
                if about(one, where) and what in one.what:
                    return one
            await self.clock.sleep(1)
        raise AssertionError(
            f"{where}: {what!r} not reported within {seconds} s:\n{await self.story(found)}"
        )

    async def settled(self) -> None:
        """Until what was created runs."""
        await self.clock.sleep(3)
        await self.silence()

    async def silence(self, seconds: float = 400) -> None:
        found: list[DoctorFinding] = []
        for _ in range(int(seconds / 2)):
            found = await self.doctor()
            if not found:
                return
            await self.clock.sleep(2)
        raise AssertionError(f"still reported after {seconds} s:\n{await self.story(found)}")

    async def story(self, found: list[DoctorFinding]) -> str:
        events = (await self.client.list(EVENTS, "")).items[-25:]
        recorded = [
            f"  {e['type']} {e['reason']} "
            f"{e['involvedObject'].get('kind')}/{e['involvedObject'].get('name')}: "
            f"{e.get('message')}"
            for e in events
        ]
        return "\n".join(
            [
                "findings:",
                *(f"  {one.severity} {one.where}: {one.what} | {one.remedy}" for one in found),
                "events:",
                *recorded,
            ]
        )

    async def until(self, seen: Callable[[], Any], seconds: float = 120) -> None:
        for _ in range(int(seconds * 4)):
            found = seen()
            if found if not isinstance(found, Awaitable) else await found:
                return
            await self.clock.sleep(0.25)
        raise AssertionError(f"not within {seconds} s:\n{await self.story([])}")


def about(finding: DoctorFinding, where: str) -> bool:
    """Whether a finding is about an object; a name that ends with a dash stands for generated
    ones.
    """
    places = finding.where or ("cluster",)
    return where in places or (
        where.endswith("-") and any(place.startswith(where) for place in places)
    )


@contextmanager
def virtual_cluster(
    tmp_path: Path,
    nodes: list[NodeSpec] | None = None,
    network: NetworkSettings | None = None,
    **config: Any,
) -> Iterator[tuple[VirtualCluster, Callable[[Awaitable[Any]], Any]]]:
    """A started cluster, and what runs coroutines on its loop."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=SocketLoop) as runner:
        patch.setenv("XDG_DATA_HOME", str(tmp_path))
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        cluster = VirtualCluster(TickingClock(loop), nodes, network, **config)
        runner.run(cluster.start())
        try:
            yield cluster, runner.run  # type: ignore[misc]
        finally:
            runner.run(cluster.stop())
