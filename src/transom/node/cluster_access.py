"""What the nodes of a process use of their cluster: clients, Node objects, the network that
connects them, the clock and tasks. One instance serves all nodes and knows none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path

from transom.client.api import ApiClient
from transom.client.informer import Informer
from transom.client.resources import EVENTS, NODES
from transom.cloud.provider import CloudProvider
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import UserError
from transom.machinery.objects import Object
from transom.network.api import Dataplane
from transom.network.stacks import Fabric
from transom.node.cluster_network import ClusterNetwork
from transom.node.network_settings import API_PORT
from transom.node.settings import ClusterSettings, cidr_of_family, split_cidrs
from transom.node.spec import NodeSpec, node_has_ipv6

MakeClient = Callable[[str, tuple[str, ...], str], ApiClient]
"""Makes a client for a user, its groups and a user agent."""
Run = Callable[[], Coroutine[None, None, None]]
Supervise = Callable[[str, Run], Coroutine[None, None, None]]
"""Runs a component forever: one that fails is restarted with increasing back-off."""


class ServiceLister:
    """Services by namespace, for the environment of containers."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    async def synced(self) -> None:
        await self._informer.synced()

    def list(self, namespace: str) -> Sequence[Object]:
        return self._informer.list(namespace)


@dataclass(frozen=True, slots=True)
class CertificatePaths:
    """The cluster's certificate authority, which signs the serving certificates of kubelets."""

    ca: Path
    ca_key: Path


@dataclass(frozen=True, slots=True)
class ControlPlaneFacts:
    """What doctor reads of the control plane: certificate files by purpose, and failed webhooks
    (URL -> loop time and reason).
    """

    certificates: Mapping[str, Path]
    failures: Callable[[], Mapping[str, tuple[float, str]]]

    def webhook_failures(self, seconds: float) -> dict[str, str]:
        """URLs of webhooks whose last call failed within this many seconds, and the reasons."""
        now = asyncio.get_running_loop().time()
        return {url: why for url, (when, why) in self.failures().items() if now - when < seconds}


class ClusterAccess:
    def __init__(
        self,
        settings: ClusterSettings,
        clock: Clock,
        make_client: MakeClient,
        authority: CertificatePaths,
        fabric: Fabric,
        dataplane: Dataplane,
        cloud: CloudProvider,
        supervise: Supervise,
        control_plane: NodeSpec | None,
        api_relays: Mapping[int, int] | None = None,
    ) -> None:
        """`control_plane` is the node that serves the API server and cluster DNS. `api_relays`:
        with several API servers, the numbers of the nodes that stand for them, and their ports on
        this machine; the servers keep the endpoints of `kubernetes` then.
        """
        self.settings = settings
        self.clock = clock
        self.client = make_client
        self.authority = authority
        self.dataplane = dataplane
        self.cloud = cloud
        self.supervise = supervise
        self.rng = random.SystemRandom()
        groups = ("system:masters", "system:authenticated")
        self.admin = make_client("system:transom:nodes", groups, "transom")
        self.nodes = Informer(self.admin, NODES, clock, self.new_rng())
        self.nodes.add_handler(
            add=self._node_changed, update=lambda _old, new: self._node_changed(new)
        )
        self.network = ClusterNetwork(
            settings, self.admin, clock, self.new_rng(), fabric, dataplane
        )
        self.services = ServiceLister(self.network.services)
        self._tasks: asyncio.TaskGroup | None = None
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.control_plane = control_plane
        self.api_relays = {
            str(ipaddress.ip_network(cidr_of_family(settings.node_cidr, 4))[number + 1]): port
            for number, port in (api_relays or {}).items()
        }
        service = self.service_ip(1)
        urls: tuple[str, ...] = (f"https://{service}:443", f"https://{service}")
        if control_plane is not None:
            urls = (f"https://{self.node_ips(control_plane)[0]}:{API_PORT}", *urls)
        self._api_servers = urls

    def new_rng(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # ---- Node objects ----

    def pod_cidr(self, node: str) -> str | None:
        """The pod CIDRs of a Node, comma-separated; None if the Node does not exist."""
        found = self.nodes.get("", node)
        return None if found is None else pod_cidrs_of(found)

    def internal_ip(self, node: str) -> str:
        """The InternalIP of a Node; "" if it has none."""
        found = self.nodes.get("", node) or {}
        addresses = (found.get("status") or {}).get("addresses") or ()
        return next((str(a["address"]) for a in addresses if a["type"] == "InternalIP"), "")

    async def pod_cidr_assigned(self, node: str) -> None:
        """Waits until a Node has its pod CIDR."""
        while not self.pod_cidr(node):
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(node, []).append(changed)
            await changed

    def _node_changed(self, node: Object) -> None:
        for waiting in self._waiting.pop(node["metadata"]["name"], ()):
            if not waiting.done():
                waiting.set_result(None)

    async def list_events(self) -> list[Object]:
        return list((await self.admin.list(EVENTS, "")).items)

    # ---- addresses ----

    def node_ips(self, spec: NodeSpec) -> tuple[str, ...]:
        """One address for each IP family of the node, IPv4 first."""
        families = 2 if node_has_ipv6(self.settings, spec) else 1
        cidrs = split_cidrs(self.settings.node_cidr)[:families]
        return tuple(str(ipaddress.ip_network(cidr)[spec.number + 1]) for cidr in cidrs)

    def service_ip(self, number: int) -> str:
        """An address of the IPv4 service range: 1 is the API server, 10 the DNS server."""
        return str(ipaddress.ip_network(cidr_of_family(self.settings.service_cidr, 4))[number])

    def api_servers(self) -> tuple[str, ...]:
        """The URLs at which nodes reach the API server: the control-plane node first, then the
        service.
        """
        return self._api_servers

    # ---- tasks ----

    def use_tasks(self, tasks: asyncio.TaskGroup | None) -> None:
        """Sets the task group for everything that runs on the nodes."""
        self._tasks = tasks

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs a task on a node. The task must handle its own failures."""
        try:
            if self._tasks is None:
                raise RuntimeError("nothing runs yet")
            return self._tasks.create_task(work)
        except RuntimeError as problem:  # also while the task group shuts down
            work.close()
            raise UserError("the nodes are not running") from problem

    def spawn_if_running(self, work: Run) -> None:
        """Runs a task that is not needed once the nodes stop."""
        with contextlib.suppress(UserError):
            self.spawn(work())


def pod_cidrs_of(node: Object) -> str:
    return ",".join((node.get("spec") or {}).get("podCIDRs") or ())
