"""Components that run alone, each in a process of its own, against the API server of any kubeconfig."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable

from transom.client.http import HttpClient
from transom.client.kubeconfig import KubeconfigError, load
from transom.client.leaderelection import LeaderElector
from transom.cluster.errors import ClusterError
from transom.cluster.manager_options import BadOption, Manager, settings_of
from transom.controllers.manager import USER_AGENT, ControllerManager, UnknownController
from transom.kit.clock import RealClock

log = logging.getLogger("transom.cluster")


def controller_manager(wanted: Manager) -> None:
    """Runs until SIGTERM or SIGINT; an error when the lead is lost."""
    try:
        target = load(wanted.kubeconfig, wanted.context)
    except (KubeconfigError, OSError, ValueError) as problem:
        raise ClusterError(str(problem)) from problem
    clock, rng = RealClock(), random.SystemRandom()
    try:
        settings = settings_of(wanted, target.authority, clock)
    except BadOption as problem:
        raise ClusterError(str(problem), "see docs/controller-manager.md for what each option means") from problem

    async def main() -> None:
        client = HttpClient(target, clock, user_agent=USER_AGENT)
        try:
            manager = ControllerManager(lambda _identity: client, clock, rng, settings, controllers=wanted.controllers)
        except UnknownController as problem:
            raise ClusterError(str(problem)) from problem
        work: Callable[[], Awaitable[None]] = manager.run
        if wanted.leader_elect:
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            elector = LeaderElector(client, "kube-system", USER_AGENT, identity, clock, rng)
            work = leading(elector, manager.run)
        try:
            await until_signal(work)
        finally:
            await client.close()

    import uvloop

    from transom.cluster.run import tune_process

    tune_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def leading(elector: LeaderElector, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await elector.run(work)
        raise ClusterError("leaderelection lost", "another instance leads now; start this one again to stand by")

    return run


async def until_signal(work: Callable[[], Awaitable[None]]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    working = asyncio.ensure_future(work())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if working.done():
        await working
        return
    log.info("stopping")
    working.cancel()
    await asyncio.wait((working,))
