"""Runs the controller manager and the scheduler of a cluster, with leader election."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.loopback import SERVER_USER
from transom.apiserver.server import ApiServer
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.cluster.config import (
    ClusterConfig,
    scheduler_config_file,
)
from transom.cluster.endpoints.component_metrics import (
    CONTROLLER_MANAGER,
    SCHEDULER,
    ClusterComponentMetrics,
    ComponentMetrics,
)
from transom.cluster.options import parse_feature_gates
from transom.cluster.pki import ClusterPki
from transom.kit.jws import TokenSigner
from transom.kit.lazy import lazy_import, load_modules
from transom.kit.pki import load_key_pair
from transom.kit.signing import sign_request
from transom.kit.uuids import random_uuid
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.serviceaccounts import group_names, user_name
from transom.node.settings import split_cidrs

if TYPE_CHECKING:
    from transom.client import leaderelection
    from transom.cloud.calls import CloudCalls
    from transom.controllers import base as controllers_base
    from transom.controllers import early as early_controllers
    from transom.controllers import manager as controller_manager
    from transom.controllers import runner as controller_runner
    from transom.controllers.runner import ControllerRow
    from transom.scheduler import config as scheduler_config
    from transom.scheduler import metrics as scheduler_metrics
    from transom.scheduler import scheduler as scheduler_module
else:
    leaderelection = lazy_import("transom.client.leaderelection")
    controllers_base = lazy_import("transom.controllers.base")
    early_controllers = lazy_import("transom.controllers.early")
    controller_manager = lazy_import("transom.controllers.manager")
    controller_runner = lazy_import("transom.controllers.runner")
    scheduler_config = lazy_import("transom.scheduler.config")
    scheduler_metrics = lazy_import("transom.scheduler.metrics")
    scheduler_module = lazy_import("transom.scheduler.scheduler")

# Bootstrap tokens are enabled in every cluster that nodes may join.
_CONTROLLERS = ("*", "bootstrapsigner", "tokencleaner")

RunComponent = Callable[[], Coroutine[None, None, None]]


class CloudOfNodes(Protocol):
    def cloud_calls(self) -> CloudCalls | None: ...


async def run_cluster_controllers(
    api: ApiServer,
    config: ClusterConfig,
    pki: ClusterPki,
    nodes: CloudOfNodes | None,
    nodes_ready: asyncio.Event,
    metrics: ClusterComponentMetrics,
) -> None:
    """The controllers in this process. Each has the identity that it would have in a separate
    process. Those that no node waits for start when the nodes are ready.
    """

    async def others() -> list[ControllerRow]:
        if nodes is not None:
            await nodes_ready.wait()
        await asyncio.to_thread(load_modules, controller_manager)
        selected = controller_manager.selected_controllers(_CONTROLLERS)
        return [row for row in selected if row not in early_controllers.EARLY_CONTROLLERS]

    def make_client(identity: str, check_write: Callable[[], None] | None) -> ApiClient:
        namespace = "kube-system"
        name = user_name(namespace, identity) if identity else controller_runner.USER
        groups = (*group_names(namespace),) if identity else ()
        component = f"kubernetes/{identity or 'shared-informers'}"
        agent = f"{controller_runner.USER_AGENT}/{config.git_version} (linux/amd64) {component}"
        user = UserInfo(name, (*groups, "system:authenticated"))
        requests = metrics.controllers.client.requests
        return InProcessClient(
            api, user, user_agent=agent, metrics=requests, check_write=check_write
        )

    authority = load_key_pair(pki.ca, pki.ca_key)

    # TLS compares certificates with real time, also in a cluster with virtual time.
    def sign_certificate(request: bytes, usages: Iterable[str], seconds: float) -> bytes:
        return sign_request(authority, request, usages, seconds, time.time())

    settings = controllers_base.ControllerSettings(
        release=parse_release(config.release),
        feature_gates=parse_feature_gates(config.feature_gates, config.release),
        root_ca=pki.ca.read_text(),
        sign=TokenSigner(pki.service_account_key.read_bytes()).sign,
        sign_certificate=sign_certificate,
    )
    if nodes is not None:  # external nodes bring their own address ranges and cloud
        settings = replace(
            settings,
            pod_cidrs=split_cidrs(config.pod_cidr),
            service_cidrs=split_cidrs(config.service_cidr),
            load_balancers=config.load_balancer_cidr,
            cloud=nodes.cloud_calls(),
        )

    electing = make_client("", None)
    elector = _make_elector(api, config, CONTROLLER_MANAGER, electing, metrics.controllers)
    check_write = None if elector is None else elector.check_leading

    async def lead() -> None:
        runner = controller_runner.ControllerRunner(
            lambda identity: make_client(identity, check_write),
            api.clock,
            random.SystemRandom(),
            settings,
            metrics.controllers.client.queues,
        )
        await runner.run(early_controllers.EARLY_CONTROLLERS, others)

    await (lead() if elector is None else elector.run(lead))


async def run_cluster_scheduler(
    api: ApiServer, config: ClusterConfig, metrics: ClusterComponentMetrics
) -> None:
    await asyncio.to_thread(load_modules, scheduler_module)

    agent = f"{scheduler_module.USER_AGENT}/{config.git_version} (linux/amd64) kubernetes/scheduler"

    def make_client(check_write: Callable[[], None] | None) -> ApiClient:
        return InProcessClient(
            api,
            UserInfo(scheduler_module.USER, ("system:authenticated",)),
            user_agent=agent,
            metrics=metrics.scheduler.client.requests,
            check_write=check_write,
        )

    elector = _make_elector(api, config, SCHEDULER, make_client(None), metrics.scheduler)
    client = make_client(None if elector is None else elector.check_leading)
    path = scheduler_config_file(config)
    features = FeatureSet(
        parse_release(config.release), parse_feature_gates(config.feature_gates, config.release)
    )
    settings = scheduler_config.load_scheduler_config(path, features) if path.exists() else None

    counted = scheduler_metrics.SchedulerMetrics(features.release)

    async def lead() -> None:
        scheduler = scheduler_module.Scheduler(
            client,
            api.clock,
            random.SystemRandom(),
            settings,
            features=features,
            metrics=counted,
        )
        metrics.scheduler.set_own(scheduler.collect_metrics)
        await scheduler.run()

    await (lead() if elector is None else elector.run(lead))


def _make_elector(
    api: ApiServer,
    config: ClusterConfig,
    name: str,
    client: ApiClient,
    metrics: ComponentMetrics,
) -> leaderelection.LeaderElector | None:
    """Elects the server, of those that share a store, in which a component runs. A store of one
    process needs no election.
    """
    if not config.store:
        return None
    return leaderelection.LeaderElector(
        client,
        "kube-system",
        name,
        f"{socket.gethostname()}_{random_uuid(random.SystemRandom())}",
        api.clock,
        random.SystemRandom(),
        watch_client=InProcessClient(api, SERVER_USER),
        metrics=metrics.client.leases,
    )
