"""The ingress controller: follows Ingresses, services and Secrets, serves them on two ports of
127.0.0.1, and writes the address into their status.

It starts when the first Ingress appears (`first_ingress`); a cluster without any has no listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from transom.client.api import MERGE_PATCH, ApiClient, is_conflict, is_not_found
from transom.client.informer import Informer, InformerFactory
from transom.client.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    ENDPOINT_SLICES,
    INGRESSES,
    SECRETS,
    SERVICES,
    GroupVersionResource,
    builtin_resource,
)
from transom.http.messages import Answer, HttpRequest
from transom.http.pool import ConnectionPool
from transom.http.server import HttpServer
from transom.ingress import gateway, gateway_status
from transom.ingress.certificates import IngressCertificates, tls_hosts
from transom.ingress.proxy import BackendAddress, IngressProxy
from transom.ingress.routes import (
    RouteBackend,
    RouteTable,
    ingress_class,
    make_route_table,
    oldest_first,
)
from transom.kit.clock import Clock, rfc3339
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.network.api import Dataplane

log = logging.getLogger("transom.ingress")

CLASS_NAME = "transom"
CONTROLLER = "transom.dev/ingress-controller"
INGRESS_CLASSES = builtin_resource("networking.k8s.io/IngressClass")
_HOST = "127.0.0.1"
_HTTP_PORT, _HTTPS_PORT = 18080, 18443  # if they are free; another cluster gets other ones
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
_SERVICE_LABEL = "kubernetes.io/service-name"
_BY_SERVICE = "ingress-service"


class IngressPort(NamedTuple):
    scheme: str
    address: str


class IngressController:
    """`source` is the address in the cluster's network from which it connects to pods, `bind` the
    address of this machine on which it listens.
    """

    def __init__(
        self,
        client: ApiClient,
        informers: InformerFactory,
        dataplane: Dataplane,
        clock: Clock,
        rng: random.Random,
        source: str,
        bind: str = _HOST,
    ) -> None:
        self._bind = bind
        self._client = client
        self._informers = informers
        self._dataplane = dataplane
        self._clock = clock
        self._source = source
        self._changed = asyncio.Event()
        self._table: RouteTable | None = None
        self._ingresses = self._follow(INGRESSES)
        self._definitions = self._follow(CUSTOM_RESOURCE_DEFINITIONS)
        self._services = self._follow(SERVICES)
        self._slices = informers(ENDPOINT_SLICES)
        self._slices.add_index(_BY_SERVICE, _slice_service)
        self._secrets: Informer | None = None  # once an Ingress has TLS
        self._classes: Informer | None = None  # where the release has them
        self._gateway: dict[GroupVersionResource, Informer] = {}
        self._pool = ConnectionPool(self._connect)
        self._proxy = IngressProxy(self._routes, self._endpoints, self._pool, rng)
        self._certificates: IngressCertificates | None = None
        self.ports: list[IngressPort] = []

    async def run(self) -> None:
        """Runs until cancelled."""
        servers = []
        try:
            self._certificates = await asyncio.to_thread(IngressCertificates, self._secret)
            for scheme, port, context in (
                ("http", _HTTP_PORT, None),
                ("https", _HTTPS_PORT, self._certificates.context),
            ):
                server = HttpServer(self._handler(scheme), context)
                number = await server.serve([_listening_socket(self._bind, port)])
                servers.append(server)
                self.ports.append(IngressPort(scheme, f"{_HOST}:{number}"))
            log.info("serving Ingresses at %s", ", ".join(port.address for port in self.ports))
            await self._publish_class()
            self._informers.start()
            await self._ingresses.synced()
            await self._definitions.synced()
            await self._services.synced()
            while True:
                self._changed.clear()
                await self._sync()
                await self._changed.wait()
        finally:
            self.ports.clear()
            self._pool.close()
            for server in servers:
                await server.stop(0.5)

    # ---- requests ----

    def _handler(self, scheme: str) -> Any:
        async def handle(request: HttpRequest) -> Answer:
            return await self._proxy.answer(request, scheme)

        return handle

    def _connect(self, host: str, port: int) -> Any:
        return self._dataplane.connect(host, port, self._source)

    def _routes(self) -> RouteTable:
        if self._table is None:
            owned = gateways_of_informers(self._gateway)
            routes = [
                made
                for route in self._objects(gateway.HTTP_ROUTES)
                for made in gateway.http_routes(route, owned, self._service_problem)
            ]
            self._table = make_route_table(self._served(), routes)
        return self._table

    def _endpoints(self, backend: RouteBackend) -> Sequence[BackendAddress]:
        """The ready endpoints of a service's port."""
        service = self._services.get(backend.namespace, backend.service)
        ports = ((service or {}).get("spec") or {}).get("ports") or ()
        wanted = next((p for p in ports if backend.port in (p["port"], p.get("name"))), None)
        if wanted is None:
            return []
        found: dict[BackendAddress, None] = {}
        for one in self._slices.by_index(_BY_SERVICE, f"{backend.namespace}/{backend.service}"):
            numbers = [
                port["port"]
                for port in one.get("ports") or ()
                if (port.get("name") or "") == (wanted.get("name") or "") and port.get("port")
            ]
            for endpoint in one.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready", True):
                    for address in endpoint.get("addresses") or ():
                        found |= {BackendAddress(address, number): None for number in numbers[:1]}
        return list(found)

    def _service_problem(self, route_namespace: str, namespace: str, name: str) -> str | None:
        if not self._granted("HTTPRoute", route_namespace, "Service", namespace, name):
            return "RefNotPermitted"
        return "BackendNotFound" if self._services.get(namespace, name) is None else None

    def _certificate_problem(self, gateway_namespace: str, namespace: str, name: str) -> str | None:
        if not self._granted("Gateway", gateway_namespace, "Secret", namespace, name):
            return "RefNotPermitted"
        usable = self._certificates is not None and self._certificates.usable(namespace, name)
        return None if usable else "InvalidCertificateRef"

    def _granted(
        self, kind: str, namespace: str, target_kind: str, target_namespace: str, name: str
    ) -> bool:
        grants = self._objects(gateway.REFERENCE_GRANTS)
        return gateway.is_granted(grants, kind, namespace, target_kind, (target_namespace, name))

    def _secret(self, namespace: str, name: str) -> Object | None:
        return self._secrets.get(namespace, name) if self._secrets is not None else None

    # ---- objects ----

    def _follow(self, resource: GroupVersionResource) -> Informer:
        informer = self._informers(resource)
        informer.add_handler(
            add=self._note_change,
            update=lambda _, new: self._note_change(new),
            delete=self._note_change,
        )
        return informer

    def _note_change(self, _: Object) -> None:
        self._table = None
        self._changed.set()

    def _objects(self, resource: GroupVersionResource) -> list[Object]:
        informer = self._gateway.get(resource)
        return informer.list() if informer is not None else []

    def _served(self) -> list[Object]:
        classes = self._classes.list() if self._classes is not None else []
        return [obj for obj in self._ingresses.list() if serves_ingress(obj, classes)]

    async def _publish_class(self) -> None:
        """Creates our IngressClass, in releases that have this kind."""
        own = {"metadata": {"name": CLASS_NAME}, "spec": {"controller": CONTROLLER}}
        try:
            await self._client.create(INGRESS_CLASSES, "", own)
        except ApiError as problem:
            if is_not_found(problem):
                return
            if not is_conflict(problem):
                raise
        self._classes = self._follow(INGRESS_CLASSES)

    async def _sync(self) -> None:
        """Follows what the objects need, and writes their status."""
        definitions = self._definitions.list()
        if not self._gateway and gateway.gateway_api_installed(definitions):
            await self._follow_gateways(gateway.GATEWAY_RESOURCES)
        if gateway.REFERENCE_GRANTS not in self._gateway and gateway.grants_installed(definitions):
            await self._follow_gateways((gateway.REFERENCE_GRANTS,))
        served = oldest_first(self._served())
        hosts = [row for obj in served for row in tls_hosts(obj)]
        hosts += self._gateway_hosts()
        if hosts and self._secrets is None:
            self._secrets = self._follow(SECRETS)
            self._informers.start()
            await self._secrets.synced()
        if self._certificates is not None:
            self._certificates.use_hosts(hosts)
        wanted = [{"ip": _HOST, "ports": [_port_status(port) for port in self.ports]}]
        for obj in self._ingresses.list():
            now = [row.get("ip") for row in _balancer(obj)]
            if obj in served and now != [_HOST]:
                await self._write_status(INGRESSES, obj, {"loadBalancer": {"ingress": wanted}})
            elif obj not in served and now == [_HOST]:
                await self._write_status(INGRESSES, obj, {"loadBalancer": {"ingress": None}})
        await self._write_gateway_status()

    async def _follow_gateways(self, kinds: Iterable[GroupVersionResource]) -> None:
        found = {kind: self._follow(kind) for kind in kinds}
        self._informers.start()
        for informer in found.values():
            await informer.synced()
        self._gateway |= found
        self._table = None

    def _gateway_hosts(self) -> list[tuple[str, str, str]]:
        found = []
        for owned in oldest_first(gateways_of_informers(self._gateway).values()):
            namespace = owned["metadata"]["namespace"]
            for listener in (owned.get("spec") or {}).get("listeners") or ():
                for ref in (listener.get("tls") or {}).get("certificateRefs") or ():
                    place = ref.get("namespace") or namespace
                    if self._granted("Gateway", namespace, "Secret", place, ref["name"]):
                        found.append((listener.get("hostname") or "", place, ref["name"]))
        return found

    async def _write_gateway_status(self) -> None:
        now = rfc3339(self._clock.time())
        for one in self._objects(gateway.GATEWAY_CLASSES):
            if (one.get("spec") or {}).get("controllerName") == gateway.CONTROLLER:
                status = gateway_status.class_status(one, now)
                await self._update_status(gateway.GATEWAY_CLASSES, one, status)
        owned = gateways_of_informers(self._gateway)
        attached: dict[str, list[gateway.ParentAttachment]] = {key: [] for key in owned}
        for route in self._objects(gateway.HTTP_ROUTES):
            found = gateway.attach_route(route, owned)
            for one_parent in found:
                attached[one_parent.gateway].append(one_parent)
            if found or route.get("status"):
                status = gateway_status.route_status(route, found, self._service_problem, now)
                await self._update_status(gateway.HTTP_ROUTES, route, status)
        for key, owner in owned.items():
            status = gateway_status.gateway_status(
                owner, _HOST, attached[key], self._certificate_problem, now
            )
            await self._update_status(gateway.GATEWAYS, owner, status)

    async def _update_status(
        self, resource: GroupVersionResource, obj: Object, status: Object
    ) -> None:
        """Writes the fields of the status if they differ in more than times."""
        now = obj.get("status") or {}
        if not gateway_status.same_status({name: now.get(name) for name in status}, status):
            await self._write_status(resource, obj, status)

    async def _write_status(
        self, resource: GroupVersionResource, obj: Object, status: Object
    ) -> None:
        meta = obj["metadata"]
        try:
            await self._client.patch(
                resource,
                meta.get("namespace", ""),
                meta["name"],
                {"status": status},
                MERGE_PATCH,
                subresource="status",
            )
        except ApiError as problem:
            if not is_not_found(problem):  # it was deleted meanwhile
                log.warning("%s %s: cannot write its status: %s", resource, meta["name"], problem)


def gateways_of_informers(informers: dict[GroupVersionResource, Informer]) -> dict[str, Object]:
    if gateway.GATEWAYS not in informers:
        return {}
    return gateway.own_gateways(
        informers[gateway.GATEWAY_CLASSES].list(), informers[gateway.GATEWAYS].list()
    )


def serves_ingress(ingress: Object, classes: Sequence[Object]) -> bool:
    """Whether we serve an Ingress: its class is ours, or it has none and no class is the default."""
    name = ingress_class(ingress)
    if name is None:
        return not any(
            (obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
            and (obj.get("spec") or {}).get("controller") != CONTROLLER
            for obj in classes
        )
    known = next((obj for obj in classes if obj["metadata"]["name"] == name), None)
    if known is None:
        return name == CLASS_NAME
    return bool((known.get("spec") or {}).get("controller") == CONTROLLER)


def _slice_service(one: Object) -> list[str]:
    meta = one["metadata"]
    name = (meta.get("labels") or {}).get(_SERVICE_LABEL)
    return [f"{meta['namespace']}/{name}"] if name else []


def _balancer(ingress: Object) -> list[Object]:
    return ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _port_status(port: IngressPort) -> Object:
    return {"port": int(port.address.rpartition(":")[2]), "protocol": "TCP"}


def _listening_socket(bind: str, port: int) -> socket.socket:
    """Bound to the port if it is free, else to any."""
    for number in (port, 0):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setblocking(False)
        with contextlib.suppress(OSError):
            found.bind((bind, number))
            return found
        found.close()
    raise OSError(f"no port of {bind} is free")
