"""The API server put together: storage, watch hub, resources and the chains, behind one HTTP handler."""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.apiserver.admission import order
from transom.apiserver.admission.chain import Chain
from transom.apiserver.aggregation.aggregator import Aggregator
from transom.apiserver.aggregation.registration import Registration
from transom.apiserver.aggregation.trust import publish as publish_trust
from transom.apiserver.allocators import ServiceAllocators
from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.bootstrap import bootstrap, show_families
from transom.apiserver.context import Context, User
from transom.apiserver.crd.controller import Definitions
from transom.apiserver.discovery import ServedVersion
from transom.apiserver.flowcontrol.flows import Flows
from transom.apiserver.flowcontrol.keeper import Keeper
from transom.apiserver.flowcontrol.turns import Turns
from transom.apiserver.handler import Dispatcher
from transom.apiserver.kubelets.kubelets import Kubelets
from transom.apiserver.kubelets.options import KubeletOptions, nobody
from transom.apiserver.metrics import Metrics
from transom.apiserver.openapi.custom import CustomSchema
from transom.apiserver.openapi.endpoint import OpenApi
from transom.apiserver.paths import Paths
from transom.apiserver.resource_metrics import MetricsProvider, ResourceMetrics
from transom.apiserver.resources import Resource, Resources
from transom.apiserver.security import Security
from transom.apiserver.service_resolver import Resolve, ServiceResolver, own_address
from transom.apiserver.storage import Storage
from transom.apiserver.strategies import services
from transom.apiserver.subresources.components import Components
from transom.apiserver.watch import Hub
from transom.apiserver.webhooks.admission import AdmissionWebhooks
from transom.apiserver.webhooks.client import WebhookClient
from transom.http.messages import Answer, Request
from transom.http.outgoing import ClientPair
from transom.kit.clock import Clock, RealClock
from transom.machinery import serviceaccounts
from transom.machinery.objects import Object
from transom.store.api import Store
from transom.windows.policy import Policy

SERVER_USER = User("system:apiserver", ("system:masters", "system:authenticated"))


@dataclass(slots=True)
class ServerOptions:
    """What the composition root decides."""

    store: Store
    address: str = "127.0.0.1:6443"
    advertised_port: int = 0  # where the service `kubernetes` leads; 0 for that of the address
    release: str = "1.20"
    service_cidr: str = "10.96.0.0/16"  # or one of each family, with a comma
    node_ports: tuple[int, int] = (30000, 32767)
    clock: Clock = field(default_factory=RealClock)
    # For uids, names and jitter; nothing secret comes from it.
    rng: random.Random = field(default_factory=random.Random)
    tokens: Mapping[str, User] = field(default_factory=dict)
    # PEM: the key that signs tokens of service accounts, and further public keys that verify them.
    service_account_key: bytes = b""
    service_account_keys: Sequence[bytes] = ()
    issuer: str = serviceaccounts.DEFAULT_ISSUER
    api_audiences: Sequence[str] = ()  # the issuer, when none are given
    # PEM: the authority that signs this server and its clients.
    ca: bytes = b""
    # The authority of front proxies, and what this server shows as one to aggregated API servers.
    front_proxy_ca: bytes = b""
    front_proxy: ClientPair | None = None
    resolve_service: Resolve | None = None  # by stored endpoints, when nothing else is given
    kubelets: KubeletOptions | None = None  # without it no kubelet can be reached
    metrics: MetricsProvider | None = None  # what nodes and pods use; with it metrics.k8s.io is served
    components: Components = dict  # the other parts of the control plane, and how they are
    audit: Auditor | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    # Whether admission does what the webhooks of windows-gmsa do; for clusters that may have Windows nodes.
    gmsa: bool = False
    # Whether pods for Windows that use what Windows cannot do give warnings or are refused; None for neither.
    windows: Policy | None = None
    # Path -> who answers it and everything below; authorized like any path that is not a resource.
    more_paths: Mapping[str, Callable[[Request], Answer | Awaitable[Answer]]] = field(default_factory=dict)


class ApiServer:
    def __init__(self, options: ServerOptions) -> None:
        token = secrets.token_urlsafe(32)  # for calls that lead back to this server
        options = replace(options, tokens={**options.tokens, token: SERVER_USER})
        self.options = options
        self.clock = options.clock
        self.release = options.release
        self.address = options.address
        self.resources = Resources()
        self.security = Security(options, self.find_core)
        self.authenticate = self.security.authenticate
        self.authorize = self.security.authorize
        self.admission = Chain()
        self.services = ServiceAllocators(options.service_cidr, options.node_ports, options.rng)
        major, minor = (int(part) for part in options.release.split("."))
        self.storage = Storage(
            options.store, self.admission, self.services, options.clock, options.rng, (major, minor),
            options.feature_gates,
        )
        self.service_endpoints = ServiceResolver(
            self.storage, self.resource, own_address(options.address), options.rng
        )
        self.resolve_service = options.resolve_service or self.service_endpoints
        # Nothing on this machine routes addresses of a cluster's pods: what is behind services is reached as kubelets are.
        self.connect = options.kubelets.connect if options.kubelets is not None else None
        self.webhooks = WebhookClient(self.resolve_service, token, options.ca, self.connect)
        self.admission_webhooks = AdmissionWebhooks(self)
        self.admission.install(order.plugins(self))
        self.hub = Hub(self.storage, options.rng)
        self.definitions = Definitions(self)
        self.registration = Registration(self)
        self.aggregation = Aggregator(self)
        self.metrics = Metrics()
        self.resource_metrics = ResourceMetrics(self, options.metrics) if options.metrics is not None else None
        self.flows = Flows(options.clock)
        self.turns = Turns()
        self.audit = options.audit
        self.kubelets = Kubelets(
            options.kubelets or KubeletOptions(connect=nobody), self.find_core, options.clock, options.rng
        )
        self.openapi = OpenApi(self)
        self.paths = Paths(self)
        self.handler = Dispatcher(self)
        self.ready = False

    def find_core(self, plural: str, namespace: str, name: str) -> Object | None:
        """A stored object of the core group. Shared: read only."""
        return self.storage.find(self.resource("", "v1", plural), namespace, name)

    def resource(self, group: str, version: str, plural: str) -> Resource:
        found = self.resources.find(group, version, plural)
        if found is None:
            raise LookupError(f"{group}/{version} {plural} is not served")
        return found

    def context(self, user: User = SERVER_USER) -> Context:
        """A context for what the server does on its own account."""
        return Context(user, self.clock.time(), user_agent="kube-apiserver/transom")

    def aggregated(self) -> Iterable[ServedVersion]:
        yield from self.aggregation.served()
        if self.resource_metrics is not None:
            own = self.resource_metrics.served()
            if not self.aggregation.claims(own.group, own.version):
                yield own

    def custom_schemas(self) -> list[CustomSchema]:
        return self.definitions.schemas()

    def discovery_generation(self) -> object:
        return self.resources.generation, self.aggregation.generation

    def object_counts(self) -> dict[str, int]:
        out = {}
        for kind in self.resources.kinds():
            if kind.stored:
                bucket = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
                out[bucket] = self.storage.store.count(bucket + "/")
        return out

    async def start(self) -> None:
        if self.audit is not None:
            self.audit.start()
        await self.options.store.start()
        self._mark_services()
        self.definitions.start()
        await show_families(self)
        await bootstrap(self)
        await Keeper(self, self.flows, SERVER_USER).start()
        if self.resource_metrics is not None:
            await self.resource_metrics.start()
        await self.registration.start()
        await publish_trust(self)
        self.aggregation.start()
        self.admission_webhooks.start()
        self.ready = True

    def _mark_services(self) -> None:
        """What stored services hold is taken."""
        for svc in self.storage.objects(self.resource("", "v1", "services")):
            addresses, ports = services.held(svc)
            for address in addresses:
                pool = self.services.pool(address)
                if pool is not None:
                    pool.mark(address)
            for port in ports:
                self.services.ports.mark(port)

    async def stop(self) -> None:
        self.ready = False
        self.admission_webhooks.stop()
        await self.aggregation.stop()
        await self.registration.stop()
        self.webhooks.close()
        self.kubelets.close()
        await self.definitions.stop()
        await self.options.store.close()
        if self.audit is not None:
            await self.audit.stop()


def build(options: ServerOptions) -> ApiServer:
    return ApiServer(options)
