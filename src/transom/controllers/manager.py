"""All controllers: which there are, whom they are to the API server, and their common life.

The names are those of `kube-controller-manager --controllers=`. Each controller speaks with an identity of its own, the
service account `kube-system/IDENTITY`; what all share (informers) is read as the manager itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from transom.client.api import Client
from transom.client.events import EventRecorder
from transom.client.informer import InformerFactory
from transom.controllers.attachdetach import AttachDetach
from transom.controllers.base import Controller, Env, Settings
from transom.controllers.bootstrap_tokens import BootstrapSigner, TokenCleaner
from transom.controllers.certificates import CsrApprover, CsrCleaner, CsrSigner
from transom.controllers.clusterrole_aggregation import ClusterRoleAggregation
from transom.controllers.cronjob import CronJobs
from transom.controllers.daemonset import DaemonSets
from transom.controllers.deployment import Deployments
from transom.controllers.disruption import Disruption
from transom.controllers.endpoints import Endpoints
from transom.controllers.endpointslice import EndpointSliceMirroring, EndpointSlices
from transom.controllers.garbagecollector import GarbageCollector
from transom.controllers.horizontalpodautoscaler import Autoscaler
from transom.controllers.job import Jobs
from transom.controllers.namespace import NamespaceDeleter
from transom.controllers.nodeipam import NodeRanges
from transom.controllers.nodelifecycle import NodeLifecycle
from transom.controllers.persistentvolume import VolumeBinder
from transom.controllers.podgc import PodCollector
from transom.controllers.replicaset import ReplicaSets, replication_controllers
from transom.controllers.resourcequota import ResourceQuotas
from transom.controllers.root_ca import RootCaPublisher
from transom.controllers.service_lb import LoadBalancers
from transom.controllers.serviceaccount import ServiceAccounts
from transom.controllers.serviceaccount_token import ServiceAccountTokens
from transom.controllers.statefulset import StatefulSets
from transom.controllers.ttl import NodeTtl
from transom.controllers.ttl_after_finished import FinishedJobs
from transom.controllers.volume_expand import VolumeExpansion
from transom.controllers.volume_protection import ClaimProtection, VolumeProtection
from transom.kit.clock import Clock

log = logging.getLogger("transom.controllers")

USER = "system:kube-controller-manager"
USER_AGENT = "kube-controller-manager"


class Row(NamedTuple):
    """`build` gives None when the settings lack what the controller needs. `identity` "" is the manager's own."""

    name: str
    identity: str
    build: Callable[[Env], Controller | None]
    by_default: bool = True


def _tokens(env: Env) -> Controller | None:
    return ServiceAccountTokens(env, env.settings.sign) if env.settings.sign is not None else None


def _root_ca(env: Env) -> Controller | None:
    return RootCaPublisher(env) if env.settings.root_ca else None


def _csr_signing(env: Env) -> Controller | None:
    return CsrSigner(env, env.settings.sign_certificate) if env.settings.sign_certificate is not None else None


def _node_ranges(env: Env) -> Controller | None:
    return NodeRanges(env) if env.settings.pod_cidrs else None


def _load_balancers(env: Env) -> Controller | None:
    return LoadBalancers(env) if env.settings.load_balancers else None


CONTROLLERS: tuple[Row, ...] = (
    Row("serviceaccount-token", "", _tokens),
    Row("serviceaccount", "service-account-controller", ServiceAccounts),
    Row("root-ca-cert-publisher", "root-ca-cert-publisher", _root_ca),
    Row("garbagecollector", "generic-garbage-collector", GarbageCollector),
    Row("namespace", "namespace-controller", NamespaceDeleter),
    Row("deployment", "deployment-controller", Deployments),
    Row("replicaset", "replicaset-controller", ReplicaSets),
    Row("replicationcontroller", "replication-controller", replication_controllers),
    Row("statefulset", "statefulset-controller", StatefulSets),
    Row("daemonset", "daemon-set-controller", DaemonSets),
    Row("job", "job-controller", Jobs),
    Row("cronjob", "cronjob-controller", CronJobs),
    Row("ttl-after-finished", "ttl-after-finished-controller", FinishedJobs),
    Row("horizontalpodautoscaling", "horizontal-pod-autoscaler", Autoscaler),
    Row("disruption", "disruption-controller", Disruption),
    Row("endpoint", "endpoint-controller", Endpoints),
    Row("endpointslice", "endpointslice-controller", EndpointSlices),
    Row("endpointslicemirroring", "endpointslicemirroring-controller", EndpointSliceMirroring),
    Row("resourcequota", "resourcequota-controller", ResourceQuotas),
    Row("nodeipam", "node-controller", _node_ranges),
    Row("nodelifecycle", "node-controller", NodeLifecycle),
    Row("podgc", "pod-garbage-collector", PodCollector),
    Row("service", "service-controller", _load_balancers),
    Row("ttl", "ttl-controller", NodeTtl),
    Row("clusterrole-aggregation", "clusterrole-aggregation-controller", ClusterRoleAggregation),
    Row("csrapproving", "certificate-controller", CsrApprover),
    Row("csrsigning", "certificate-controller", _csr_signing),
    Row("csrcleaner", "certificate-controller", CsrCleaner),
    Row("persistentvolume-binder", "persistent-volume-binder", VolumeBinder),
    Row("attachdetach", "attachdetach-controller", AttachDetach),
    Row("persistentvolume-expander", "expand-controller", VolumeExpansion),
    Row("pvc-protection", "pvc-protection-controller", ClaimProtection),
    Row("pv-protection", "pv-protection-controller", VolumeProtection),
    Row("bootstrapsigner", "bootstrap-signer", BootstrapSigner, by_default=False),
    Row("tokencleaner", "token-cleaner", TokenCleaner, by_default=False),
)


class UnknownController(Exception):
    pass


def selected(wanted: Sequence[str], table: Sequence[Row] = CONTROLLERS) -> list[Row]:
    """The rows that `--controllers` names: `*` means all that are on by default, `NAME` one, `-NAME` not that one."""
    known = {row.name for row in table}
    for name in wanted:
        if name != "*" and name.removeprefix("-") not in known:
            raise UnknownController(f'"{name.removeprefix("-")}" is not in the list of known controllers')
    return [
        row for row in table
        if f"-{row.name}" not in wanted and (row.name in wanted or ("*" in wanted and row.by_default))
    ]


class ControllerManager:
    def __init__(
        self, clients: Callable[[str], Client], clock: Clock, rng: random.Random, settings: Settings, *,
        controllers: Sequence[str] = ("*",), table: Sequence[Row] = CONTROLLERS,
    ) -> None:
        """`clients` makes the client of an identity ("" for the manager's own)."""
        self._clients = clients
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._rows = selected(controllers, table)
        self._own = clients("")
        self.informers = InformerFactory(self._own, clock, rng)
        self._recorders: list[EventRecorder] = []

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        running = []
        for row in self._rows:
            controller = row.build(self._env(row))
            if controller is None:
                log.info("the controller %s is not run: it lacks its settings", row.name)
            else:
                running.append((row.name, controller))
        self.informers.start()
        try:
            async with asyncio.TaskGroup() as group:
                for recorder in self._recorders:
                    group.create_task(recorder.run())
                for name, controller in running:
                    group.create_task(self._run(name, controller), name=name)
        finally:
            await self.informers.stop()

    def _env(self, row: Row) -> Env:
        client = self._clients(row.identity) if row.identity else self._own

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(client, component, self._clock, self._rng)
            self._recorders.append(made)
            return made

        return Env(client, self.informers, recorder, self._clock, self._rng, self._settings)

    async def _run(self, name: str, controller: Controller) -> None:
        """A controller that breaks does not take the others with it."""
        try:
            await controller.run()
        except Exception:
            log.exception("the controller %s has ended", name)
