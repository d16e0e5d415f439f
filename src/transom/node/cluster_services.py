"""The services that the control plane itself provides in the cluster's network: `kubernetes`, and
the DNS service `kube-dns`; and the objects of kubeadm.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from typing import Any

from transom.client.api import ApiClient, is_already_exists, is_conflict, is_not_found
from transom.client.informer import InformerFactory
from transom.client.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from transom.dns import objects
from transom.dns.attach import DnsAttachment
from transom.dns.feed import ZoneFeed
from transom.dns.server import DnsServer
from transom.dns.settings import DnsServerAddress, DnsSettings
from transom.dns.transport import DataplaneExchange
from transom.dns.zone import DnsZone
from transom.kit.clock import Clock
from transom.kit.task_set import TaskSet
from transom.machinery.errors import ApiError
from transom.network.api import Dataplane
from transom.node.kubeadm_objects import (
    KubeadmCluster,
    kubeadm_config_map,
    kubeadm_config_role,
    kubeadm_config_role_binding,
)
from transom.node.network_settings import API_PORT, OUTSIDE, OUTSIDE6, OUTSIDE_NAME
from transom.node.settings import ClusterSettings, cidr_of_family
from transom.proxy.objects import (
    kube_proxy_config_map,
    kube_proxy_role_binding,
    kube_proxy_service_account,
)

log = logging.getLogger("transom.node")

DNS_PORT = 53
_PUBLISH_SECONDS = 10.0
_CHUNK = 65536


async def publish_api_server(client: ApiClient, address: str) -> None:
    """The service `kubernetes` has this address of the cluster's network as its endpoint."""
    port = {"name": "https", "port": API_PORT, "protocol": "TCP"}
    meta = {"name": "kubernetes", "namespace": "default"}
    subsets = [{"addresses": [{"ip": address}], "ports": [port]}]
    labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    await _ensure(client, ENDPOINTS, {"metadata": {**meta, "labels": labels}, "subsets": subsets})
    await _ensure(
        client,
        ENDPOINT_SLICES,
        {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [port],
        },
    )


async def keep_api_server_published(client: ApiClient, clock: Clock, address: str) -> None:
    """As Kubernetes' API server does, corrects the endpoints every ten seconds."""
    while True:
        await clock.sleep(_PUBLISH_SECONDS)
        try:
            await publish_api_server(client, address)
        except (ApiError, OSError) as problem:
            log.warning('the endpoints of service "kubernetes" stay as they are: %s', problem)


async def publish_kubeadm_objects(client: ApiClient, cluster: KubeadmCluster) -> None:
    """Creates the objects of kubeadm that manifests use: the configuration of the cluster, and what
    kube-proxy as a DaemonSet needs. Those that exist stay as they are.
    """
    server = f"https://{cluster.address}:{API_PORT}"
    for resource, obj in (
        (SERVICE_ACCOUNTS, kube_proxy_service_account()),
        (CLUSTER_ROLE_BINDINGS, kube_proxy_role_binding()),
        (CONFIG_MAPS, kube_proxy_config_map(server, cluster.pod_cidr)),
        (CONFIG_MAPS, kubeadm_config_map(cluster)),
        (ROLES, kubeadm_config_role()),
        (ROLE_BINDINGS, kubeadm_config_role_binding()),
    ):
        try:
            await client.create(resource, obj["metadata"].get("namespace", ""), obj)
        except ApiError as problem:
            if not is_already_exists(problem):
                log.warning("the objects of kubeadm cannot be created: %s", problem)
                return


def relay_api_server(
    dataplane: Dataplane, address: str, real: tuple[str, int]
) -> Callable[[], None]:
    """Forwards connections to an address of the cluster's network to a socket of this machine."""
    return _serve(dataplane, address, API_PORT, lambda near: _join(near, real))


def _serve(
    dataplane: Dataplane, address: str, port: int, handle: Callable[[socket.socket], Any]
) -> Callable[[], None]:
    tasks = TaskSet()

    def accept(near: socket.socket) -> None:
        tasks.start(handle(near))

    close = dataplane.listen(address, port, accept)

    def end() -> None:
        close()
        tasks.cancel()

    return end


class ClusterDns:
    """Cluster DNS in this process, at the address of the control-plane node."""

    def __init__(
        self,
        settings: ClusterSettings,
        client: ApiClient,
        informers: InformerFactory,
        dataplane: Dataplane,
        clock: Clock,
        rng: random.Random,
        address: str,
        node: str,
    ) -> None:

        self._client = client
        self._dataplane = dataplane
        self._address = address
        self._node = node
        # As with kubeadm, the service is single-stack even in dual-stack clusters; it answers
        # queries for both families.
        self._cluster_ip = objects.dns_cluster_ip(cidr_of_family(settings.service_cidr, 4))
        outside = (OUTSIDE, OUTSIDE6) if settings.network.dual_stack else (OUTSIDE,)
        self._settings = DnsSettings(
            upstreams=settings.network.upstreams,
            stub_domains=settings.network.stub_domains,
            hosts={OUTSIDE_NAME: outside},
        )
        zone = DnsZone(now=clock.time)
        self._feed = ZoneFeed(zone, informers)
        self._informers = informers
        self.server = DnsServer(
            zone,
            self._settings,
            clock,
            rng,
            DataplaneExchange(dataplane, address),
            own=[DnsServerAddress(self._cluster_ip, DNS_PORT), DnsServerAddress(address, DNS_PORT)],
        )
        self._clock = clock

    async def run(self) -> None:
        """Runs until cancelled."""

        attached = DnsAttachment(self.server, self._dataplane, [self._address], self._clock)
        try:
            self._informers.start()
            await _ensure(self._client, SERVICES, objects.dns_service_object([self._cluster_ip]))
            await _ensure(self._client, CONFIG_MAPS, objects.dns_config_map(self._settings))
            await _ensure(
                self._client, ENDPOINTS, objects.dns_endpoints_object([self._address], self._node)
            )
            for found in objects.dns_endpoint_slices([self._address], self._node):
                await _ensure(self._client, ENDPOINT_SLICES, found)
            await self._feed.run()
            await asyncio.Event().wait()
        finally:
            await attached.close()


async def _ensure(client: ApiClient, resource: Any, obj: dict[str, Any]) -> None:
    meta = obj["metadata"]
    try:
        current = await client.get(resource, meta["namespace"], meta["name"])
    except ApiError as problem:
        if not is_not_found(problem):
            raise
        await client.create(resource, meta["namespace"], obj)
        return
    wanted = {k: v for k, v in obj.items() if k not in ("metadata", "apiVersion", "kind", "spec")}
    if any(current.get(k) != v for k, v in wanted.items()):
        try:
            await client.update(resource, {**current, **wanted})
        except ApiError as problem:
            if not is_conflict(problem):
                raise


async def _join(near: socket.socket, real: tuple[str, int]) -> None:
    """Copies bytes both ways between a connection of the model and a real one."""
    try:
        reader, writer = await asyncio.open_connection(sock=near)
    except OSError:
        near.close()
        return
    try:
        other_reader, other_writer = await asyncio.open_connection(*real)
    except OSError:
        writer.close()
        return
    await asyncio.gather(
        _pump(reader, other_writer), _pump(other_reader, writer), return_exceptions=True
    )


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    finally:
        target.close()
