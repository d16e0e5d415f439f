"""Connections that a kubelet itself opens, as from its node."""

from __future__ import annotations

import asyncio
import socket

from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.kubelet.base import Env
from transom.network.api import Dial

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def from_node(env: Env) -> Dial:
    """Where no packet would come back it waits until it is cancelled, as a real connection does."""
    node_ip = env.config.node_ip

    async def connect(host: str, port: int) -> socket.socket:
        try:
            return await env.dial(node_ip if host in _LOOPBACK else host, port)
        except TimeoutError:
            await asyncio.get_running_loop().create_future()
            raise

    return connect


def failure_text(host: str, port: int, problem: OSError) -> str:
    """What Go says of a connection that failed."""
    if isinstance(problem, socket.gaierror):
        return goerrors.lookup(host, problem)
    return goerrors.dial(join_host_port(host, port), problem)
