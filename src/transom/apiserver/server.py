"""Builds the API server: storage, watch hub, resources, and the request chain in front of them.

The only module that knows all parts. Reads from top to bottom: each constructor gets everything it
needs.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial

import orjson

from transom.apiserver.admission.chain import AdmissionChain
from transom.apiserver.admission.order import admission_plugins
from transom.apiserver.admission.policies import AdmissionPolicies
from transom.apiserver.admission.webhooks import AdmissionWebhooks
from transom.apiserver.aggregation.aggregator import Aggregator
from transom.apiserver.aggregation.registration import Registration
from transom.apiserver.aggregation.trust import publish_trust
from transom.apiserver.audit.auditor import Auditor
from transom.apiserver.authentication.reviews import IdentityReviews
from transom.apiserver.authentication.token_requests import TokenRequests
from transom.apiserver.authorization.reviews import AccessReviews
from transom.apiserver.bootstrap import bootstrap, show_families
from transom.apiserver.core.access_options import AccessOptions
from transom.apiserver.core.allocators import ServiceAllocators
from transom.apiserver.core.context import RequestContext, UserInfo
from transom.apiserver.core.dispatcher import Dispatcher
from transom.apiserver.core.integrity import Integrity
from transom.apiserver.core.loopback import SERVER_USER, Loopback
from transom.apiserver.core.names import NameGenerator
from transom.apiserver.core.objectstore import ObjectStore, core_finder
from transom.apiserver.core.resources import Resource, ResourceRegistry
from transom.apiserver.core.service_resolver import Resolve, ServiceResolver, own_service_address
from transom.apiserver.core.storage import Storage
from transom.apiserver.core.strategies import services
from transom.apiserver.core.subresources.components import Components, ComponentStatuses
from transom.apiserver.core.subresources.connect import ConnectSubresources
from transom.apiserver.core.subresources.pods import PodSubresources
from transom.apiserver.core.subresources.rollback import RollbackSubresource
from transom.apiserver.core.watch import WatchHub
from transom.apiserver.crd.controller import DefinitionController
from transom.apiserver.endpoint_reconciler import EndpointReconciler
from transom.apiserver.flowcontrol.config_controller import CONSUMER, PRODUCER, FlowConfigController
from transom.apiserver.flowcontrol.flows import RequestFlows
from transom.apiserver.flowcontrol.turns import HeavyReadTurns
from transom.apiserver.identity_lease import IdentityLease
from transom.apiserver.kubelets.kubelets import Kubelets
from transom.apiserver.kubelets.options import KubeletOptions, refuse_connections
from transom.apiserver.security import DEFAULT_AUTHORIZERS, Security
from transom.apiserver.serving.chain import RequestChain, request_steps
from transom.apiserver.serving.corruption_events import CorruptionEvents
from transom.apiserver.serving.encoder import ResponseEncoder
from transom.apiserver.serving.health import HealthEndpoints, LoopMonitor
from transom.apiserver.serving.http import HttpDependencies, HttpHandler
from transom.apiserver.serving.inprocess import InProcessClient, InProcessDependencies, ReadTurns
from transom.apiserver.serving.metrics import ApiServerMetrics
from transom.apiserver.serving.openapi import OpenApi
from transom.apiserver.serving.paths import NonResourcePaths
from transom.apiserver.serving.resource_metrics import MetricsProvider, ResourceMetrics
from transom.apiserver.serving.served import ServedVersions
from transom.apiserver.serving.verbs import verb_table
from transom.apiserver.serving.zpages import DebugPages
from transom.apiserver.system_objects import system_objects
from transom.apiserver.webhooks.client import WebhookClient
from transom.http.messages import Answer, HttpRequest
from transom.http.outgoing import ClientPair
from transom.kit.clock import Clock, RealClock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.prometheus import Collector
from transom.kit.workers import WorkerThread, WorkRunner
from transom.machinery import serviceaccounts
from transom.machinery.objects import Object
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet
from transom.store.api import Store, StoreEvent
from transom.windows.policy import WarningPolicy


@dataclass(slots=True)
class ServerOptions:
    """The options set by the composition root."""

    store: Store
    address: str = "127.0.0.1:6443"
    advertised_port: int = 0  # the port of the service `kubernetes`; 0 for that of the address
    # The address of this server among the endpoints of `kubernetes`, which all servers keep; "" if
    # something else keeps them.
    advertised_address: str = ""
    hostname: str = ""  # the machine, of which the identity of this server is made; "" for none
    release: str = "1.20"
    service_cidr: str = "10.96.0.0/16"  # or one of each family, separated by a comma
    node_ports: tuple[int, int] = (30000, 32767)
    clock: Clock = field(default_factory=RealClock)
    # for large bodies and expensive rules; stopped with the server
    workers: WorkRunner = field(default_factory=WorkerThread)
    # For uids, names and jitter; never used for secrets.
    rng: random.Random = field(default_factory=random.Random)
    tokens: Mapping[str, UserInfo] = field(default_factory=dict)
    # PEM: the key that signs service account tokens, and further public keys that verify them.
    service_account_key: bytes = b""
    service_account_keys: Sequence[bytes] = ()
    issuer: str = serviceaccounts.DEFAULT_ISSUER
    api_audiences: Sequence[str] = ()  # the issuer, if none are given
    # PEM: the CA of this server and its clients.
    ca: bytes = b""
    # The CA of front proxies, and this server's client certificate for aggregated API servers.
    front_proxy_ca: bytes = b""
    front_proxy: ClientPair | None = None
    # The headers in which front proxies send the UID (RemoteRequestHeaderUID), for aggregated API
    # servers.
    uid_headers: Sequence[str] = ()
    resolve_service: Resolve | None = None  # uses stored endpoints by default
    kubelets: KubeletOptions | None = None  # without it, kubelets cannot be reached
    metrics: MetricsProvider | None = (
        None  # resource usage of nodes and pods; enables metrics.k8s.io
    )
    components: Components = dict  # the other control plane components, and their health
    audit: Auditor | None = None
    access: AccessOptions = field(default_factory=AccessOptions)
    more_metrics: Sequence[Collector] = ()  # metrics of components outside this server
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)  # of --runtime-config
    # Whether admission emulates the webhooks of windows-gmsa; for clusters that may have Windows
    # nodes.
    gmsa: bool = False
    disabled_admission: frozenset[str] = frozenset()  # names of admission plugins
    # Whether Windows pods that use unsupported features get warnings or are rejected; None for
    # neither.
    windows: WarningPolicy | None = None
    # Path -> handler of it and everything below; authorized like any non-resource path.
    more_paths: Mapping[str, Callable[[HttpRequest], Answer | Awaitable[Answer]]] = field(
        default_factory=dict
    )

    def flags(self) -> dict[str, str]:
        """These options as flags of kube-apiserver, with values in the form of `/flagz`."""
        host, _, port = self.address.rpartition(":")
        access = self.access
        modes = [one["type"] for one in (access.authorization or {}).get("authorizers", ())]
        return {
            "advertise-address": self.advertised_address or host.strip("[]"),
            "anonymous-auth": str(access.anonymous).lower(),
            "api-audiences": _listed(self.api_audiences or (self.issuer,)),
            "authentication-config": access.authentication_file,
            "authorization-config": access.authorization_file,
            "authorization-mode": _listed(modes or DEFAULT_AUTHORIZERS),
            "bind-address": host.strip("[]"),
            "disable-admission-plugins": _listed(sorted(self.disabled_admission)),
            "feature-gates": _pairs(self.feature_gates, ":"),
            "requestheader-uid-headers": _listed(self.uid_headers),
            "runtime-config": _pairs(self.runtime_config, ""),
            "secure-port": port,
            "service-account-issuer": _listed([self.issuer]),
            "service-cluster-ip-range": self.service_cidr,
            "service-node-port-range": "{}-{}".format(*self.node_ports),
        }


def _listed(values: Iterable[str]) -> str:
    return f"[{','.join(values)}]"


def _pairs(values: Mapping[str, bool], prefix: str) -> str:
    """`prefix`: gates have the name of a component, which is empty by default, and a colon."""
    return ",".join(f"{prefix}{name}={str(on).lower()}" for name, on in sorted(values.items()))


class ApiServer:
    def __init__(self, options: ServerOptions) -> None:
        token = secrets.token_urlsafe(32)  # for calls to this server itself
        clock, rng, workers, store = options.clock, options.rng, options.workers, options.store
        release = parse_release(options.release)
        self.options = options
        self.clock = clock
        self.address = options.address
        self.ready = False

        # Resources, and reading their objects.
        self.resources = ResourceRegistry(
            release=release,
            runtime_config=options.runtime_config,
            feature_gates=options.feature_gates,
        )
        features = FeatureSet(release, options.feature_gates or {})
        objects = ObjectStore(store, workers)
        self.find_core = core_finder(objects, self.resources)
        self.security = Security(
            store,
            clock,
            self.find_core,
            {**options.tokens, token: SERVER_USER},
            options.service_account_key,
            options.service_account_keys,
            options.issuer,
            options.api_audiences,
            features,
            options.access,
            workers,
        )

        # Calls to other servers. This machine has no route to pod addresses, so services are
        # reached in the same way as kubelets.
        endpoints = ServiceResolver(
            objects, self.resources, own_service_address(options.address), rng
        )
        resolve = options.resolve_service or endpoints
        connect = options.kubelets.connect if options.kubelets is not None else None
        self.webhooks = WebhookClient(resolve, token, options.ca, connect, workers)
        self.kubelets = Kubelets(
            options.kubelets or KubeletOptions(connect=refuse_connections),
            self.find_core,
            clock,
            rng,
            services=options.service_cidr.split(","),
            own=options.address,
            release=release,
        )

        # Admission and storage.
        names = NameGenerator(rng)
        self.admission_webhooks = AdmissionWebhooks(
            objects, self.resources, self.webhooks, clock, rng, self.security.decide
        )
        self.admission_policies = AdmissionPolicies(objects, self.resources)
        plugins = admission_plugins(
            objects,
            self.resources,
            self.find_core,
            self.security,
            self.admission_webhooks,
            self.admission_policies,
            names,
            clock,
            options.release,
            features=features,
            gmsa=options.gmsa,
            windows=options.windows,
        )
        self.admission_plugins = [
            plugin for plugin in plugins if plugin.name not in options.disabled_admission
        ]
        self.admission = AdmissionChain(self.admission_plugins, workers)
        self.services = ServiceAllocators(options.service_cidr, options.node_ports, rng)
        self.storage = Storage(
            objects,
            self.admission,
            self.services,
            clock,
            names,
            rng,
            release,
            options.feature_gates,
        )
        self.hub = WatchHub(self.storage, rng)
        store.on_reset(self.hub.end_all)
        self.integrity = Integrity(objects, self.resources, clock)

        # Added and removed at run time: custom resources, aggregated servers, resource metrics.
        self.loopback = Loopback(self.storage, self.resources, clock)
        self.definitions = DefinitionController(self.loopback, self.hub, self.webhooks, rng)
        self.resource_metrics = (
            ResourceMetrics(self.loopback, options.metrics) if options.metrics is not None else None
        )
        own_services = ResourceMetrics.api_services() if options.metrics is not None else {}
        self.registration = Registration(self.loopback, own_services)
        self.aggregation = Aggregator(
            self.loopback,
            endpoints,
            resolve,
            connect,
            options.front_proxy,
            sends_uid=features.enabled("RemoteRequestHeaderUID"),
        )

        # The request chain and its two adapters.
        self.flows = RequestFlows(clock)
        self.metrics = ApiServerMetrics(self.resources.is_served, self.resources.release)
        dispatcher = Dispatcher(
            verb_table(
                self.storage,
                PodSubresources(self.storage, self.admission, self.resources),
                ConnectSubresources(
                    self.storage, self.admission, self.security.authorize.require_create
                ),
                RollbackSubresource(self.storage, self.admission, self.resources),
                TokenRequests(
                    self.storage,
                    self.admission,
                    self.find_core,
                    self.security.issuer,
                    self.security.tokens.audiences,
                    rng,
                    self.resources.types,
                ),
                AccessReviews(
                    self.storage, self.admission, self.security.authorize, self.security.rbac
                ),
                IdentityReviews(self.storage, self.admission, self.security.tokens),
                ComponentStatuses(self.storage, options.components),
            ),
            store,
        )
        self.chain = RequestChain(
            request_steps(
                self.security.authenticate,
                self.security.authorize,
                options.audit,
                self.flows,
                HeavyReadTurns(),
                self.resources,
                store,
                dispatcher,
                clock,
            ),
            self.integrity,
        )
        self.loop_monitor = LoopMonitor()
        self.health = HealthEndpoints(store, lambda: self.ready, self.loop_monitor, features)
        paths = self._paths(internal=False)
        # Components of the cluster can discover all its kinds.
        self.handler = HttpHandler(
            self.chain,
            HttpDependencies(
                self.resources,
                ResponseEncoder(workers, self.hub, clock),
                paths,
                paths if self.resources.serves_all else self._paths(internal=True),
                self.aggregation,
                self.kubelets,
                self.metrics,
                clock,
            ),
            self.security.authenticate,
            self.security.authorize,
        )
        self.read_turns = ReadTurns()
        in_process = InProcessDependencies(
            self.chain,
            self.handler,
            self.resources,
            self.storage,
            self.hub,
            clock,
            self.read_turns,
        )

        # The server's own controllers.
        self.flow_config = FlowConfigController(
            self.flows,
            objects,
            self.resources,
            InProcessClient(in_process, SERVER_USER, user_agent=PRODUCER),
            InProcessClient(in_process, SERVER_USER, user_agent=CONSUMER),
            clock,
        )
        self._port = options.advertised_port or int(options.address.rpartition(":")[2])
        self.endpoints = (
            EndpointReconciler(
                store,
                InProcessClient(in_process, SERVER_USER, user_agent="kube-apiserver/transom"),
                clock,
                options.advertised_address,
                self._port,
            )
            if options.advertised_address
            else None
        )
        self.identity = (
            IdentityLease(
                InProcessClient(in_process, SERVER_USER, user_agent="kube-apiserver/transom"),
                clock,
                self.resources.release,
                options.hostname,
            )
            if options.hostname and features.enabled("APIServerIdentity")
            else None
        )
        self.system_objects = system_objects(self.loopback, options.service_cidr, self._port)
        self.corruption_events = CorruptionEvents(
            InProcessClient(in_process, SERVER_USER, user_agent="kube-apiserver/transom"),
            self.resources,
            clock,
            rng,
        )

    def _paths(self, *, internal: bool) -> NonResourcePaths:
        options = self.options
        served = ServedVersions(
            self.resources, self.aggregation, self.resource_metrics, internal=internal
        )
        debug_pages = DebugPages(
            self.resources.types.features, options.flags(), options.clock, options.rng
        )
        return NonResourcePaths(
            self.resources,
            served,
            self.resource_metrics,
            self.health,
            OpenApi(self.resources, served, self.definitions.schemas, options.release),
            self.security,
            self.metrics,
            self._metrics_page,
            options.more_paths,
            options.address,
            options.release,
            debug_pages,
        )

    def _metrics_page(self) -> Callable[[], str]:
        """Renders the metrics; those that depend on the store are collected now, on the event
        loop.
        """
        return partial(
            self.metrics.render,
            self._object_counts(),
            self.flows.collect_metrics,
            self.integrity.collect_metrics,
            self.security.collect_metrics,
            *self.options.more_metrics,
        )

    def _object_counts(self) -> dict[str, int]:
        out = {}
        for kind in self.resources.kinds():
            if kind.stored:
                bucket = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
                out[bucket] = self.storage.store.count(bucket + "/")
        return out

    def resource(self, group: str, version: str, plural: str) -> Resource:
        return self.resources.require(group, version, plural)

    def context(self) -> RequestContext:
        """A context for the server's own operations."""
        return self.loopback.context()

    async def start(self) -> None:
        options, loopback = self.options, self.loopback
        if options.audit is not None:
            options.audit.start()
        self.loop_monitor.start()
        await options.store.start()
        await self.integrity.check_first()
        self._mark_services()
        self.definitions.start()
        await show_families(loopback)
        await bootstrap(loopback, options.service_cidr, self._port)
        await self.flow_config.start()
        if self.resource_metrics is not None:
            await self.resource_metrics.start()
        await self.registration.start()
        await publish_trust(loopback, options.ca, options.front_proxy_ca, options.uid_headers)
        await self.security.legacy_tokens.start(loopback)
        self.aggregation.start()
        self.admission_webhooks.start()
        self.admission_policies.start()
        self.integrity.start(self.corruption_events.report)
        self.security.start()
        self.ready = True
        if self.endpoints is not None:
            await self.endpoints.start()
        if self.identity is not None:
            self.identity.start()
        for recreation in self.system_objects:
            recreation.start()

    def _mark_services(self) -> None:
        """Marks the addresses and ports of stored services as used."""
        store, res = self.storage.store, self.resource("", "v1", "services")
        if store.follows:
            for svc in self.storage.objects(res):
                self.services.follow(*services.service_allocations(svc), 1)
            store.watch(res.key_prefix(""), store.revision, self._services_changed)
            return
        for svc in self.storage.objects(res):
            self._mark_service(svc)

    def _mark_service(self, svc: Object) -> None:
        addresses, ports = services.service_allocations(svc)
        for address in addresses:
            pool = self.services.pool(address)
            if pool is not None:
                pool.mark(address)
        for port in ports:
            self.services.ports.mark(port)

    def service_replaced(self, old: bytes | None, new: bytes | None) -> None:
        """A stored service is replaced without a request: its addresses and ports change owner."""
        if old is not None:
            services.release_allocations(self.storage, orjson.loads(old))
        if new is not None:
            self._mark_service(orjson.loads(new))

    def _services_changed(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            for record, change in ((event.record, 1), (event.previous, -1)):
                if record is not None:
                    found = services.service_allocations(orjson.loads(record.value))
                    self.services.follow(*found, change)

    async def stop(self) -> None:
        self.ready = False
        if self.identity is not None:
            await self.identity.stop()
        if self.endpoints is not None:
            await self.endpoints.stop()
        for recreation in self.system_objects:
            await recreation.stop()
        self.loop_monitor.stop()
        await self.integrity.stop()
        await self.corruption_events.stop()
        self.admission_webhooks.stop()
        self.admission_policies.stop()
        await self.aggregation.stop()
        await self.registration.stop()
        self.webhooks.close()
        self.security.legacy_tokens.stop()
        self.security.stop()
        self.kubelets.close()
        await self.definitions.stop()
        self.storage.workers.close()
        await self.options.store.close()
        if self.options.audit is not None:
            await self.options.audit.stop()


def build_api_server(options: ServerOptions) -> ApiServer:
    return ApiServer(options)
