"""How many DNS answers one core gives, and how long they take: python benchmarks/dns.py [SECONDS]

A server with 1,000 services and 5,000 endpoints on a UDP socket of the loopback interface, in a
process of its own; this process asks what pods ask: services of their own and of other namespaces
by way of the search list (so a third of the names does not exist), AAAA of them, headless ones, SRV
and PTR. First as fast as answers come back, then 5,000 questions a second.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import socket
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from transom.dns.server import DnsServer
from transom.dns.settings import DnsSettings
from transom.dns.transport import DnsDatagrams
from transom.dns.zone import DnsZone
from transom.kit import dnswire as wire
from transom.kit.clock import RealClock

GOAL_RATE = 30_000  # answers a second of one core
GOAL_P99 = 0.002  # seconds, at 5,000 a second
SERVICES, ENDPOINTS = 1_000, 5
OPEN = 64  # questions under way at once
PACE = 5_000


def zone() -> DnsZone:
    made = DnsZone(now=time.time)
    port = {"name": "http", "port": 80, "protocol": "TCP"}
    for i in range(SERVICES):
        meta = {"namespace": f"ns-{i % 50}", "name": f"svc-{i}"}
        headless = i % 10 == 0
        made.put_service(
            {
                "metadata": meta,
                "spec": {
                    "clusterIP": "None" if headless else f"10.96.{i // 250}.{i % 250 + 1}",
                    "ports": [port],
                },
            }
        )
        made.put_slice(
            {
                "metadata": {**meta, "labels": {"kubernetes.io/service-name": meta["name"]}},
                "addressType": "IPv4",
                "ports": [port],
                "endpoints": [
                    {
                        "addresses": [f"10.244.{i % 250}.{i // 250 * ENDPOINTS + e + 1}"],
                        "conditions": {"ready": True},
                    }
                    for e in range(ENDPOINTS)
                ],
            }
        )
    return made


def serve(pipe: Connection) -> None:
    import uvloop

    async def main() -> None:
        server = DnsServer(zone(), DnsSettings(), RealClock(), random.Random(1))
        datagrams = DnsDatagrams(server.take, "127.0.0.1", 0)
        pipe.send(datagrams.port)
        loop = asyncio.get_running_loop()
        requested: asyncio.Future[None] = loop.create_future()

        def wanted() -> None:
            if pipe.recv() == "cpu":
                pipe.send(time.process_time())
            elif not requested.done():
                requested.set_result(None)

        loop.add_reader(pipe.fileno(), wanted)
        await requested
        await datagrams.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def questions(rng: random.Random) -> Iterator[bytes]:
    edns = wire.Edns(1232)
    while True:
        i = rng.randrange(SERVICES)
        whole = f"svc-{i}.ns-{i % 50}.svc.cluster.local"
        name, type = rng.choice(
            (
                (whole, wire.A),
                (whole, wire.A),
                (whole, wire.AAAA),
                (f"_http._tcp.{whole}", wire.SRV),
                (f"svc-{i}.ns-{i % 50}.ns-7.svc.cluster.local", wire.A),
                (f"example-{i}.test.ns-7.svc.cluster.local", wire.A),
                (f"{i % 250 + 1}.{i // 250}.96.10.in-addr.arpa", wire.PTR),
            )
        )
        yield wire.encode_query(
            0, wire.encode_name(name), type, edns=edns if rng.random() < 0.3 else None
        )


def flood(client: socket.socket, requested: list[bytes], seconds: float) -> int:
    """Answers, with some questions always under way."""
    count = 0
    for i in range(OPEN):
        client.send(requested[i % len(requested)])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(256):
            client.recv(4096)
            count += 1
            client.send(requested[count % len(requested)])
    for _ in range(OPEN):
        client.recv(4096)
    return count


def paced(client: socket.socket, requested: list[bytes], seconds: float) -> list[float]:
    """How long each answer took, at a steady rate."""
    client.setblocking(False)
    sent: dict[int, float] = {}
    times: list[float] = []
    began = time.perf_counter()
    total = int(seconds * PACE)
    number = 0
    while len(times) < total and time.perf_counter() < began + seconds + 2:
        now = time.perf_counter()
        while number < total and began + number / PACE <= now:
            payload = requested[number % len(requested)]
            sent[number & 0xFFFF] = time.perf_counter()
            client.send((number & 0xFFFF).to_bytes(2) + payload[2:])
            number += 1
        try:
            while True:
                answer = client.recv(4096)
                times.append(time.perf_counter() - sent.pop(int.from_bytes(answer[:2])))
        except BlockingIOError:
            time.sleep(0.00002)
    return sorted(times)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs,), daemon=True
    )
    process.start()
    port = ours.recv()
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("127.0.0.1", port))
    client.settimeout(5)
    requested = [
        question for question, _ in zip(questions(random.Random(1)), range(20_000), strict=False)
    ]
    flood(client, requested, 1.0)

    def cpu() -> float:
        ours.send("cpu")
        return float(ours.recv())

    before, began = cpu(), time.perf_counter()
    count = flood(client, requested, seconds)
    wall, used = time.perf_counter() - began, cpu() - before
    rate = count / used
    print(
        f"{count / wall:,.0f} answers/s as seen by one client; {1e6 * used / count:.1f} us "
        f"of CPU each: {rate:,.0f}/s a core"
    )
    times = paced(client, requested, seconds)
    p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
    print(
        f"at {PACE:,}/s: p50 {1e3 * p50:.2f} ms, p99 {1e3 * p99:.2f} ms, slowest "
        f"{1e3 * times[-1]:.1f} ms, "
        f"{int(seconds * PACE) - len(times)} lost"
    )
    ours.send("end")
    process.join(5)
    return 0 if rate >= GOAL_RATE and p99 <= GOAL_P99 else 1


if __name__ == "__main__":
    sys.exit(main())
