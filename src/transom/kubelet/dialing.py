"""Connections that the kubelet opens itself, from its node."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from transom.http import goerrors
from transom.http.goerrors import NetworkTexts, join_host_port
from transom.kubelet.base import KubeletContext
from transom.network.api import Dial

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
_ADDRESS = {"localhost": "127.0.0.1"}


def from_node(env: KubeletContext) -> Dial:
    """Where no packet would come back, this waits until cancelled, as a real connection does."""
    node_ip = env.config.node_ip

    async def connect(host: str, port: int) -> socket.socket:
        try:
            if host in _LOOPBACK and env.dial_loopback is not None:
                with contextlib.suppress(ConnectionRefusedError):
                    return await env.dial_loopback(_ADDRESS.get(host, host), port)
            return await env.dial(node_ip if host in _LOOPBACK else host, port)
        except TimeoutError:
            await asyncio.get_running_loop().create_future()
            raise

    return connect


def failure_text(host: str, port: int, problem: OSError, texts: NetworkTexts) -> str:
    """Go's error text for a failed connection, on the node's operating system."""
    if isinstance(problem, socket.gaierror):
        return goerrors.lookup_error(host, problem, texts)
    return goerrors.dial_error(join_host_port(host, port), problem, texts)
