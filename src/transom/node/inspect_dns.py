"""Which name servers of nodes and pods do not answer, for `transom doctor`. Only servers that an
administrator or a pod has chosen are asked; cluster DNS has its own check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from transom.kit import dnswire
from transom.machines.linux import NAME_SERVER
from transom.machines.smallfiles import read_small_file
from transom.machines.windows.system import chosen_name_servers
from transom.network.resolver import read_resolv_conf
from transom.node.machine import windows_machine
from transom.runtime.sim.engine import SimRuntime

if TYPE_CHECKING:
    from transom.node.node import Node
    from transom.node.pool import NodePool

_TIMEOUT: Final = 2.0
_MAX_QUERIES: Final = 50  # for each node
_NAME: Final = "kubernetes.default.svc.cluster.local"  # any answer counts, also NXDOMAIN


class DeadNameServers(NamedTuple):
    node: tuple[str, ...]
    pods: dict[str, tuple[str, ...]]  # by NAMESPACE/NAME


async def dead_name_servers(pool: NodePool, node: Node) -> DeadNameServers:
    own = _servers(node)
    usual = {*own, NAME_SERVER, pool.cluster.service_ip(10)}
    requested = [("", pool.cluster.node_ips(node.spec)[0], server) for server in own]
    if isinstance(node.runtime, SimRuntime):
        requested += [
            (f"{sandbox.config.namespace}/{sandbox.config.name}", sandbox.ips[0], server)
            for sandbox in node.runtime.sandboxes()
            if sandbox.state == "ready" and sandbox.ips
            for server in sandbox.config.dns.servers
            if server not in usual
        ]
    requested = requested[:_MAX_QUERIES]
    alive = await asyncio.gather(
        *(_answers(pool, source, server) for _, source, server in requested)
    )
    dead = [row for row, answered in zip(requested, alive, strict=True) if not answered]
    pods = {pod: _of(pod, dead) for pod, _, _ in dead if pod}
    return DeadNameServers(_of("", dead), pods)


def _of(pod: str, dead: Iterable[tuple[str, str, str]]) -> tuple[str, ...]:
    return tuple(server for name, _, server in dead if name == pod)


def _servers(node: Node) -> tuple[str, ...]:
    """The name servers of the machine, if they are not those that it was installed with."""
    if node.spec.stopped or not isinstance(node.runtime, SimRuntime):
        return ()
    if node.spec.windows:
        return chosen_name_servers(windows_machine(node.machine).registry)
    try:
        text = read_small_file(node.machine.files, "/etc/resolv.conf")
    except OSError:
        return ()
    servers = read_resolv_conf(text.decode("utf-8", "replace")).servers
    return tuple(server for server in servers if server != NAME_SERVER)


async def _answers(pool: NodePool, source: str, server: str) -> bool:
    query = dnswire.encode_query(1, dnswire.encode_name(_NAME), dnswire.A)
    try:
        return bool(await pool.cluster.dataplane.ask(server, 53, query, source, timeout=_TIMEOUT))
    except OSError:
        return False
