"""How long the API server waits for a kubelet that does not answer."""

from __future__ import annotations

import socket

import pytest
from tests.simulation.loop import VIRTUAL_LOOP, loop_clock

from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.kubelets.transport import KubeletTransport
from transom.http.outgoing import CallError, CallTarget


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_LOOP


@pytest.mark.parametrize("seconds", [0.0, 12.0, 30.0])
async def test_a_dial_without_a_reply_takes_thirty_seconds(seconds: float) -> None:
    clock = loop_clock()

    async def silent(_host: str, _port: int) -> socket.socket:
        await clock.sleep(seconds)
        raise TimeoutError

    transport = KubeletTransport(KubeletOptions(connect=silent), clock)
    started = clock.monotonic()
    with pytest.raises(CallError, match="i/o timeout"):
        await transport.pool.open(CallTarget("10.0.0.1", 10250, "10.0.0.1"))
    assert clock.monotonic() - started == pytest.approx(30, abs=0.01)
