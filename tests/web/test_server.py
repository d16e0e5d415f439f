"""What the process of a console is set to."""

from __future__ import annotations

import asyncio
from asyncio import sslproto

import pytest

from transom.client.kubeconfig import RestConfig
from transom.kit.clock import VirtualClock
from transom.web import workers
from transom.web.server import ConsoleAddress, start_console
from transom.web.workers import run_in_worker


async def test_a_console_keeps_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each watch is a TLS connection, for which asyncio would allocate 256 KiB."""
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    trimmed = asyncio.Event()
    monkeypatch.setattr(workers, "trim_memory_later", trimmed.set)
    target = RestConfig("127.0.0.1", 1, None)
    console = await start_console(target, VirtualClock(), ConsoleAddress())
    try:
        assert sslproto.SSLProtocol.max_size <= 64 * 1024
        await asyncio.wait_for(trimmed.wait(), 10)
        trimmed.clear()
        assert await run_in_worker(sum, (1, 2)) == 3
        await asyncio.wait_for(trimmed.wait(), 10)
    finally:
        await console.stop()
