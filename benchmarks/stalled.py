"""What clients that never read cost the API server: memory over the idle server, and how long they
stay.

Usage: python benchmarks/stalled.py [--watchers 2000] [--pods 50000] [--lists 40] [--user
admin|view] [--churn 50]
                                      [--live]

The server runs in a process of its own, with the pods in memory and TLS as in a cluster. Watchers
ask for all pods as JSON, Table and protobuf in turn and never read; lists are asked for and closed
unread. Prints the resident memory before, at its peak and after, the number of open watches, and
the latency that a client that does read sees meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import uvloop

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.bench.api import bench_pod
from transom.client import resources
from transom.http import HttpServer, server_context
from transom.kit import pki
from transom.store.memory import MemoryStore

PODS = "/api/v1/pods"
FORMS = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf",
)
TOKENS = {
    "admin": UserInfo("admin", ("system:masters", "system:authenticated")),
    "view": UserInfo("viewer", ("viewers", "system:authenticated")),
}


# ---- the server ----


async def serve(folder: Path, pods: int) -> None:
    from transom.kit.clock import RealClock
    from transom.kit.process import tune_process

    tune_process()
    store = MemoryStore(RealClock())
    api = build_api_server(ServerOptions(store=store, tokens=TOKENS))
    await api.start()
    client = InProcessClient(api, TOKENS["admin"])
    await client.create(resources.NAMESPACES, "", {"metadata": {"name": "bench"}})
    await client.create(resources.SERVICE_ACCOUNTS, "bench", {"metadata": {"name": "default"}})
    await client.create(
        resources.CLUSTER_ROLE_BINDINGS,
        "",
        {
            "metadata": {"name": "viewers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "viewers"}
            ],
        },
    )
    sample = bench_pod("web-0")
    sample["spec"]["automountServiceAccountToken"] = False
    await client.create(resources.PODS, "bench", sample)
    first = store.get("pods/bench/web-0")
    assert first is not None
    value = orjson.loads(first.value)
    for number in range(1, pods):

        def encode(revision: int, number: int = number) -> bytes:
            meta = {**value["metadata"], "name": f"web-{number}", "resourceVersion": str(revision)}
            return orjson.dumps({**value, "metadata": meta})

        await store.put(f"pods/bench/web-{number}", encode)
    server = HttpServer(
        api.handler,
        server_context(folder / "api.crt", folder / "api.key", folder / "ca.crt"),
        bodies=api.handler,
    )
    port = await server.start("127.0.0.1")
    print(port, flush=True)
    await asyncio.Event().wait()


# ---- the clients ----


class Client:
    def __init__(self, port: int, context: ssl.SSLContext, user: str) -> None:
        self._port, self._context, self._user = port, context, user

    def open(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        return self._context.wrap_socket(plain, server_hostname="127.0.0.1")

    def request(
        self,
        path: str,
        accept: str = FORMS[0],
        method: str = "GET",
        body: bytes = b"",
        more: Sequence[str] = (),
    ) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: api",
            f"Authorization: Bearer {self._user}",
            f"Accept: {accept}",
            f"Content-Length: {len(body)}",
            "Content-Type: application/merge-patch+json",
            *more,
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def ask(self, sock: ssl.SSLSocket, request: bytes) -> bytes:
        sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received(sock)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        size = next(
            int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")
        )
        while len(body) < size:
            body += self._received(sock)
        return body

    @staticmethod
    def _received(sock: ssl.SSLSocket) -> bytes:
        data = sock.recv(65536)
        if not data:
            raise EOFError
        return data


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def kernel_tcp() -> float:
    """MiB that the kernel holds for TCP, both ends of each connection."""
    lines = Path("/proc/net/sockstat").read_text().splitlines()
    line = next(line for line in lines if line.startswith("TCP:"))
    return int(line.split()[-1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def still_open(sockets: Sequence[socket.socket]) -> int:
    """Connections that the server has not closed; nothing is read from them."""
    poll = select.poll()
    for sock in sockets:
        poll.register(sock, select.POLLRDHUP)
    return len(sockets) - len(poll.poll(0))


def flood(client: Client, pid: int, args: argparse.Namespace) -> None:
    idle = resident(pid)
    print(f"idle server with {args.pods} pods: {idle:.0f} MiB")
    with client.open() as first:
        version = orjson.loads(client.ask(first, client.request(f"{PODS}?limit=1")))["metadata"][
            "resourceVersion"
        ]
    sockets: list[ssl.SSLSocket] = []
    began = time.monotonic()
    for number in range(args.watchers):
        sock = client.open()
        query = "&resourceVersion=" + version if args.live else ""
        sock.sendall(
            client.request(
                f"{PODS}?watch=1{query}",
                FORMS[number % len(args.forms)] if not args.form else args.form,
            )
        )
        sockets.append(sock)
    opened = time.monotonic()
    probe = client.open()
    print(f"{args.watchers} watchers opened in {opened - began:.1f} s: {resident(pid):.0f} MiB")
    peak, worst, gone = resident(pid), 0.0, 0.0
    number = 0
    while time.monotonic() < opened + args.seconds:
        requested = time.monotonic()
        client.ask(probe, client.request("/api/v1/namespaces/bench"))
        worst = max(worst, time.monotonic() - requested)
        if args.user == "admin":
            for _ in range(args.churn):
                number += 1
                body = b'{"metadata":{"annotations":{"n":"%d"}}}' % number
                path = f"/api/v1/namespaces/bench/pods/web-{number % args.pods}"
                client.ask(probe, client.request(path, method="PATCH", body=body))
        peak = max(peak, resident(pid))
        left = still_open(sockets)
        if int(requested - opened) % 10 == 0:
            print(
                f"  after {requested - opened:3.0f} s: {resident(pid):.0f} MiB, {left} open, "
                f"kernel TCP {kernel_tcp():.0f} MiB"
            )
        if not left and not gone:
            gone = time.monotonic() - opened
        if gone and time.monotonic() > opened + gone + 5:
            break
        time.sleep(max(0.0, requested + 1 - time.monotonic()))
    print(
        f"peak: {peak - idle:+.0f} MiB over idle; all gone after {gone:.0f} s; slowest get "
        "of a client that reads: "
        f"{worst * 1e3:.0f} ms"
    )
    for sock in sockets:
        sock.close()
    time.sleep(5)
    print(f"5 s after the end: {resident(pid) - idle:+.0f} MiB over idle")


def unread_lists(client: Client, pid: int, args: argparse.Namespace) -> None:
    for name, accept, more in (
        ("JSON", FORMS[0], ()),
        ("gzip", FORMS[0], ("Accept-Encoding: gzip",)),
        ("Table", FORMS[1], ()),
        ("protobuf", FORMS[2], ()),
    ):
        before = resident(pid)
        sockets = [client.open() for _ in range(args.lists)]
        for sock in sockets:
            sock.sendall(client.request(PODS, accept, more=more))
        peak = 0.0
        for _ in range(args.list_seconds * 10):
            time.sleep(0.1)
            peak = max(peak, resident(pid))
        for sock in sockets:
            sock.close()
        time.sleep(5)
        print(
            f"{args.lists} unread lists, {name}: {peak - before:+.0f} MiB at the peak, "
            f"{resident(pid) - before:+.0f} MiB 5 s after they were closed"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--watchers", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--lists", type=int, default=40)
    parser.add_argument("--list-seconds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=75)
    parser.add_argument(
        "--churn", type=int, default=50, help="patches of pods per second meanwhile"
    )
    parser.add_argument(
        "--live", action="store_true", help="watch from now on: only what changes meanwhile"
    )
    parser.add_argument("--user", choices=tuple(TOKENS), default="admin")
    parser.add_argument("--form", default="", help="one media type instead of three in turn")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.forms = FORMS
    if args.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(args.serve, args.pods))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = pki.make_ca("kubernetes")
        pki.save_key_pair(authority, folder / "ca.crt", folder / "ca.key")
        pki.save_key_pair(
            pki.issue_server(authority, "api", [], ["127.0.0.1"]),
            folder / "api.crt",
            folder / "api.key",
        )
        command = [sys.executable, __file__, "--serve", str(folder), "--pods", str(args.pods)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            client = Client(
                port, ssl.create_default_context(cafile=str(folder / "ca.crt")), args.user
            )
            time.sleep(3)
            if args.watchers:
                flood(client, server.pid, args)
            if args.lists:
                unread_lists(client, server.pid, args)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
