"""Control plane components as separate processes, against the API server of any kubeconfig: the
controller manager, the scheduler, and `explain-schedule`.

NumPy takes longer to import than the rest of a cluster takes to start, so code that needs the
scheduler imports it late.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.client.api import ApiClient
from transom.client.http import HttpClient
from transom.client.kubeconfig import KubeconfigError, RestConfig, load_kubeconfig
from transom.client.leaderelection import LeaderElector
from transom.client.negotiation import NegotiatingClient
from transom.client.resources import ENDPOINT_SLICES
from transom.cluster.endpoints.component_metrics import ComponentMetrics, serving_metrics
from transom.controllers.manager import USER_AGENT as CONTROLLER_MANAGER
from transom.controllers.manager import ControllerManager, UnknownController
from transom.controllers.options import BadOption, ControllerManagerOptions, controller_settings
from transom.kit.clock import Clock, RealClock
from transom.kit.lazy import lazy_import, load_modules
from transom.kit.lazy_dataclass import dataclass
from transom.kit.process import run_event_loop, run_until_signal
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.machinery import goyaml
from transom.machinery.errors import ApiError
from transom.machinery.releases import Release, parse_release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.release import BUILDS

if TYPE_CHECKING:
    from transom.scheduler import config as scheduler_config
    from transom.scheduler import errors as scheduler_errors
    from transom.scheduler import explain, out_of_tree
    from transom.scheduler import scheduler as scheduler_module
    from transom.scheduler.config import KubeSchedulerConfiguration
    from transom.scheduler.explain import SchedulingExplanation
else:
    scheduler_config = lazy_import("transom.scheduler.config")
    scheduler_errors = lazy_import("transom.scheduler.errors")
    explain = lazy_import("transom.scheduler.explain")
    out_of_tree = lazy_import("transom.scheduler.out_of_tree")
    scheduler_module = lazy_import("transom.scheduler.scheduler")

log = logging.getLogger("transom.cluster")

_NEEDED_KINDS = {"endpointslice": ENDPOINT_SLICES, "endpointslicemirroring": ENDPOINT_SLICES}
_LEASE = "kube-scheduler"
_EXPLAIN_SECONDS = 30.0


def run_controller_manager(options: ControllerManagerOptions) -> None:
    """Runs until SIGTERM or SIGINT; an error when another instance becomes the leader."""
    target = _target(options.kubeconfig, options.context)
    clock, rng = RealClock(), random.SystemRandom()
    try:
        settings = controller_settings(options, target.authority, clock)
    except BadOption as problem:
        raise UserError(str(problem), "see docs/controller-manager.md for the options") from problem

    async def main() -> None:
        metrics = ComponentMetrics(f"{target.host}:{target.port}", settings.release)
        http = HttpClient(
            target, clock, user_agent=CONTROLLER_MANAGER, metrics=metrics.client.requests
        )
        client = NegotiatingClient(http, clock)
        try:
            off = await _unusable_controllers(client)
        except (ApiError, OSError) as problem:
            raise UserError(
                f"the API server at {target.host}:{target.port} does not respond: {problem}"
            ) from problem
        try:
            controllers = (*options.controllers, *(f"-{name}" for name in off))
            manager = ControllerManager(
                lambda _identity: client,
                clock,
                rng,
                settings,
                controllers=controllers,
                queues=metrics.client.queues,
            )
        except UnknownController as problem:
            raise UserError(str(problem)) from problem
        work: Callable[[], Awaitable[None]] = manager.run
        if options.leader_elect:
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            elector = LeaderElector(
                client,
                "kube-system",
                CONTROLLER_MANAGER,
                identity,
                clock,
                rng,
                metrics=metrics.client.leases,
            )
            work = _leading(elector, manager.run)
        try:
            async with serving_metrics(options.metrics_bind_address, metrics):
                await run_until_signal(work)
        finally:
            await http.close()

    run_event_loop(main())


async def _unusable_controllers(client: NegotiatingClient) -> list[str]:
    """Controllers of kinds that the server does not serve."""
    found = [name for name, kind in _NEEDED_KINDS.items() if not await client.serves(kind)]
    for name in found:
        log.info("the controller %s is not run: the API server does not have its kind", name)
    return found


def _leading(
    elector: LeaderElector, work: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await elector.run(work)
        raise UserError(
            "leaderelection lost", "another instance leads now; start this one again to stand by"
        )

    return run


# ---- scheduler ----


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of `transom scheduler`."""

    kubeconfig: Path | None = None
    context: str = ""
    config: Path | None = None
    leader_elect: bool | None = None  # None: as set in the configuration file
    plugins: tuple[str, ...] = ()  # FILE.py:CLASS or MODULE:CLASS
    metrics_bind_address: str = ""


def run_scheduler(options: SchedulerOptions) -> None:
    """Runs until SIGTERM or SIGINT; an error when another instance becomes the leader."""
    target = _target(options.kubeconfig, options.context)
    load_modules(scheduler_module)

    settings = _scheduler_config(options.config)
    clock, rng = RealClock(), random.SystemRandom()

    async def main() -> None:
        features = FeatureSet(await _server_release_at(target, clock))
        metrics = ComponentMetrics(f"{target.host}:{target.port}", features.release)
        http = HttpClient(
            target, clock, user_agent=scheduler_module.USER_AGENT, metrics=metrics.client.requests
        )
        client = NegotiatingClient(http, clock)
        try:
            scheduler = _make_scheduler(client, clock, rng, settings, options.plugins, features)
            metrics.set_own(scheduler.collect_metrics)
            work: Callable[[], Awaitable[None]] = scheduler.run
            elects = settings is None or settings.leader_elect
            if elects if options.leader_elect is None else options.leader_elect:
                identity = f"{socket.gethostname()}_{uuid.uuid4()}"
                elector = LeaderElector(
                    client,
                    "kube-system",
                    _LEASE,
                    identity,
                    clock,
                    rng,
                    metrics=metrics.client.leases,
                )
                work = _leading(elector, work)
            async with serving_metrics(options.metrics_bind_address, metrics):
                await run_until_signal(work)
        finally:
            await http.close()

    run_event_loop(main())


def explain_schedule(
    kubeconfig: Path | None,
    context: str,
    config: Path | None,
    namespace: str,
    pod: str,
    plugins: Sequence[str] = (),
) -> SchedulingExplanation:
    target = _target(kubeconfig, context)
    namespace = namespace or target.namespace or "default"
    return explain_schedule_at(target, namespace, pod, config, plugins)


def explain_schedule_at(
    target: RestConfig,
    namespace: str,
    pod: str,
    config: Path | None = None,
    plugins: Sequence[str] = (),
) -> SchedulingExplanation:
    """The same with the credentials of `target`. It runs a loop of its own, so it may be called in
    a thread.
    """
    load_modules(scheduler_module)
    settings = _scheduler_config(config)
    clock, rng = RealClock(), random.SystemRandom()

    async def main() -> SchedulingExplanation:
        http = HttpClient(target, clock, user_agent=scheduler_module.USER_AGENT)
        client = NegotiatingClient(http, clock)
        try:
            features, running = await running_scheduler(client)
            used = settings if config is not None else running
            scheduler = _make_scheduler(client, clock, rng, used, plugins, features)
            async with asyncio.timeout(_EXPLAIN_SECONDS):
                return await explain.explain_pod(scheduler, client, namespace, pod)
        except ApiError as problem:
            raise UserError(
                str(problem), code=EXIT_USAGE if problem.code == 404 else 1
            ) from problem
        except (TimeoutError, OSError) as problem:
            raise UserError(
                f"the API server at {target.host}:{target.port} does not answer"
            ) from problem
        finally:
            await http.close()

    return asyncio.run(main())


async def running_scheduler(
    client: ApiClient,
) -> tuple[FeatureSet, KubeSchedulerConfiguration | None]:
    """The features and the configuration of a cluster's scheduler. Only Transom clusters report
    gates and a configuration; None stands for the default configuration of the release.
    """
    release = await _server_release(client)
    try:
        found = await client.get_json("/transom/scheduler")
        text, gates = found["configuration"], found.get("featureGates", {})
    except (ApiError, KeyError, TypeError):
        return FeatureSet(release), None
    features = FeatureSet(release, gates)
    if not text:
        return features, None
    return features, scheduler_config.decode_scheduler_config(
        goyaml.load_yaml(text.encode()), features
    )


async def _server_release_at(target: RestConfig, clock: Clock) -> Release:
    http = HttpClient(target, clock, user_agent=scheduler_module.USER_AGENT)
    try:
        return await _server_release(http)
    except OSError as problem:
        raise UserError(
            f"the API server at {target.host}:{target.port} does not answer"
        ) from problem
    finally:
        await http.close()


async def _server_release(client: ApiClient) -> Release:
    """The release of the API server, or the nearest one that the tables have."""
    version = await client.get_json("/version")
    found = parse_release(f"{version['major']}.{version['minor'].rstrip('+')}")
    known = [parse_release(name) for name in BUILDS]
    return min(max(found, min(known)), max(known))


def _make_scheduler(
    client: ApiClient,
    clock: Clock,
    rng: random.Random,
    settings: KubeSchedulerConfiguration | None,
    plugins: Sequence[str],
    features: FeatureSet,
) -> scheduler_module.Scheduler:
    try:
        return scheduler_module.Scheduler(
            client, clock, rng, settings, out_of_tree.load_plugins(plugins), features
        )
    except scheduler_errors.SchedulerConfigError as error:
        raise _invalid_configuration(error) from error


def _scheduler_config(path: Path | None) -> scheduler_config.KubeSchedulerConfiguration | None:
    if path is None:
        return None
    try:
        return scheduler_config.load_scheduler_config(path)
    except scheduler_errors.SchedulerConfigError as error:
        raise _invalid_configuration(error) from error


def _invalid_configuration(error: Exception) -> UserError:
    return UserError(str(error), "see docs/scheduler.md for the fields of a configuration")


def _target(kubeconfig: Path | None, context: str) -> RestConfig:

    try:
        return load_kubeconfig(kubeconfig, context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise UserError(str(problem)) from problem
