from __future__ import annotations

import asyncio
import socket

from tests.dns.zones import ask, server

from transom.dns.metrics import DnsMetrics, metrics_text
from transom.kit.clock import VirtualClock


def test_figures_are_read_over_http() -> None:
    on = server()
    for name in ("svc1", "svc1", "svc0"):
        ask(on, f"{name}.testns.svc.cluster.local.")

    async def get(path: str) -> str:
        near, far = socket.socketpair()
        near.setblocking(False)
        metrics = DnsMetrics(on, VirtualClock())
        metrics.accept(far)
        reader, writer = await asyncio.open_connection(sock=near)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        read = (await reader.read()).decode()
        writer.close()
        await metrics.close()
        return read

    head, _, body = asyncio.run(get("/metrics")).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n") and body == metrics_text(on)
    assert 'coredns_dns_responses_total{rcode="NOERROR",server="dns://:53",zone="."} 2\n' in body
    assert 'coredns_dns_responses_total{rcode="NXDOMAIN",server="dns://:53",zone="."} 1\n' in body
    assert "coredns_cache_entries 2\n" in body
    assert asyncio.run(get("/")).startswith("HTTP/1.1 404 ")
