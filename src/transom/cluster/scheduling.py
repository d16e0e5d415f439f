"""The scheduler in a cluster: beside the API server in one process, alone in its own, and asked for explanations.

NumPy takes longer to import than the rest of the cluster to start; so that comes after the cluster is ready.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.cluster.alone import leading, until_signal
from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer
    from transom.client.kubeconfig import Target

_LEASE = "kube-scheduler"
_EXPLAIN_SECONDS = 30.0


def config_file(config: ClusterConfig) -> Path:
    """Where a cluster's scheduler finds its configuration, if it has one."""
    return config.state / "scheduler.yaml"


def _load_numpy() -> None:
    # One small array at a time: threads inside NumPy would only cost memory.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("transom.scheduler.scheduler")


async def run_beside(api: ApiServer, config: ClusterConfig) -> None:
    """The scheduler of a cluster, in the process of its API server, until cancelled."""
    await asyncio.to_thread(_load_numpy)
    from transom.apiserver.context import User
    from transom.apiserver.inprocess import InProcessClient
    from transom.scheduler.config import SchedulerConfig, load
    from transom.scheduler.scheduler import USER, USER_AGENT, Scheduler

    agent = f"{USER_AGENT}/{config.git_version} (linux/amd64) kubernetes/scheduler"
    client = InProcessClient(api, User(USER, ("system:authenticated",)), user_agent=agent)
    path = config_file(config)
    settings = load(path) if path.exists() else SchedulerConfig()
    await Scheduler(client, api.clock, random.SystemRandom(), settings).run()


@dataclass(frozen=True, slots=True)
class Alone:
    """Options of `transom scheduler`."""

    kubeconfig: Path | None = None
    context: str = ""
    config: Path | None = None
    leader_elect: bool | None = None  # None: as the configuration file says


def run_alone(wanted: Alone) -> None:
    """Runs until SIGTERM or SIGINT; an error when the lead is lost."""
    target = _target(wanted.kubeconfig, wanted.context)
    _load_numpy()
    from transom.client.http import HttpClient
    from transom.client.leaderelection import LeaderElector
    from transom.kit.clock import RealClock
    from transom.scheduler.scheduler import USER_AGENT, Scheduler

    settings = _settings(wanted.config)
    clock, rng = RealClock(), random.SystemRandom()

    async def main() -> None:
        client = HttpClient(target, clock, user_agent=USER_AGENT)
        try:
            work: Callable[[], Awaitable[None]] = _scheduler(Scheduler, client, clock, rng, settings).run
            if settings.leader_elect if wanted.leader_elect is None else wanted.leader_elect:
                identity = f"{socket.gethostname()}_{uuid.uuid4()}"
                work = leading(LeaderElector(client, "kube-system", _LEASE, identity, clock, rng), work)
            await until_signal(work)
        finally:
            await client.close()

    import uvloop

    from transom.cluster.run import tune_process

    tune_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def explain(kubeconfig: Path | None, context: str, config: Path | None, namespace: str, pod: str) -> Any:
    """How the scheduler sees a pod: a `scheduler.explain.Explanation`."""
    target = _target(kubeconfig, context)
    namespace = namespace or target.namespace or "default"
    _load_numpy()
    from transom.client.http import HttpClient
    from transom.kit.clock import RealClock
    from transom.machinery.errors import ApiError
    from transom.scheduler.explain import explain_pod
    from transom.scheduler.scheduler import USER_AGENT, Scheduler

    settings = _settings(config)
    clock, rng = RealClock(), random.SystemRandom()

    async def main() -> Any:
        client = HttpClient(target, clock, user_agent=USER_AGENT)
        try:
            scheduler = _scheduler(Scheduler, client, clock, rng, settings)
            async with asyncio.timeout(_EXPLAIN_SECONDS):
                return await explain_pod(scheduler, client, namespace, pod)
        except ApiError as problem:
            raise ClusterError(str(problem)) from problem
        except (TimeoutError, OSError) as problem:
            raise ClusterError(f"the API server at {target.host}:{target.port} does not answer") from problem
        finally:
            await client.close()

    return asyncio.run(main())


def _scheduler(factory: Any, *args: Any) -> Any:
    from transom.scheduler.framework import ConfigError

    try:
        return factory(*args)
    except ConfigError as problem:
        raise ClusterError(str(problem), "see docs/scheduler.md for what a configuration can say") from problem


def _settings(path: Path | None) -> Any:
    from transom.scheduler.config import SchedulerConfig, load
    from transom.scheduler.framework import ConfigError

    try:
        return load(path) if path is not None else SchedulerConfig()
    except ConfigError as problem:
        raise ClusterError(str(problem), "see docs/scheduler.md for what a configuration can say") from problem


def _target(kubeconfig: Path | None, context: str) -> Target:
    from transom.client.kubeconfig import KubeconfigError, load

    try:
        return load(kubeconfig, context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise ClusterError(str(problem)) from problem
