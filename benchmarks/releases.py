"""How many Python bytecodes a write costs at each release, compared with the first one.

Usage: python benchmarks/releases.py [RELEASE...] [--most RATIO]

One API server for each release in this process, without sockets and disk. The counts hardly depend
on the machine or its load. The exit code is 1 if a write costs more than RATIO times as much.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import Any

import orjson

from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.bench.api import bench_config_map, bench_pod
from transom.http.messages import HttpRequest, HttpResponse, PeerCertificate, body_bytes
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

WARM, COUNTED = 20, 20
SETTLE = 2.0  # seconds until the checks at start-up are done
ADMIN = PeerCertificate("admin", ["system:masters"])
CORE = "/api/v1/namespaces/bench"
KINDS = {"pods": bench_pod, "configmaps": bench_config_map}
VERBS = ("create", "get", "patch", "update", "list", "delete")


async def send(
    server: ApiServer, method: str, path: str, body: Any = None, media: bytes = b"application/json"
) -> Any:
    headers = {b"accept": b"application/json", b"content-type": media, b"user-agent": b"bench/1"}
    data = b"" if body is None else orjson.dumps(body)
    plain = path.partition("?")[0]
    answer = server.handler(HttpRequest(method, path.encode(), plain, headers, data, ADMIN))
    answer = await answer if asyncio.iscoroutine(answer) else answer
    assert isinstance(answer, HttpResponse)
    raw = body_bytes(answer.body)
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {raw.decode()}")
    return orjson.loads(raw)


async def start(release: str) -> ApiServer:
    """A server with a namespace that has an account, as its controllers leave it."""
    clock = RealClock()
    server = build_api_server(ServerOptions(store=MemoryStore(clock), clock=clock, release=release))
    await server.start()
    await send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
    account = {"metadata": {"name": "default"}}
    account = await send(server, "POST", f"{CORE}/serviceaccounts", account)
    about = {"name": "default", "uid": account["metadata"]["uid"]}
    annotations = {f"kubernetes.io/service-account.{key}": about[key] for key in about}
    secret = {
        "metadata": {"name": "default-token", "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
        "stringData": {"token": "t", "ca.crt": "c", "namespace": "bench"},
    }
    await send(server, "POST", f"{CORE}/secrets", secret)
    listed = {**account, "secrets": [{"name": "default-token"}]}
    await send(server, "PUT", f"{CORE}/serviceaccounts/default", listed)
    return server


async def request(server: ApiServer, verb: str, resource: str, number: int) -> None:
    one, label = f"{CORE}/{resource}/o{number}", {"metadata": {"labels": {"verb": verb}}}
    if verb == "create":
        await send(server, "POST", f"{CORE}/{resource}", KINDS[resource](f"o{number}"))
    elif verb == "get":
        await send(server, "GET", one)
    elif verb == "patch":
        await send(server, "PATCH", one, label, b"application/merge-patch+json")
    elif verb == "update":  # includes the GET before it
        found = await send(server, "GET", one)
        found["metadata"]["labels"]["verb"] = verb
        await send(server, "PUT", one, found)
    elif verb == "list":
        await send(server, "GET", f"{CORE}/{resource}?limit=500")
    else:
        await send(server, "DELETE", f"{one}?gracePeriodSeconds=0")


async def count_bytecodes(run: Callable[[int], Awaitable[None]]) -> float:
    """The mean number of bytecodes of one call."""
    total = 0

    def local(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal total
        total += event == "opcode"
        return local

    def trace(frame: FrameType, _event: str, _arg: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    for number in range(WARM):
        await run(number)
    gc.disable()
    sys.settrace(trace)
    for number in range(WARM, WARM + COUNTED):
        await run(number)
    sys.settrace(None)
    gc.enable()
    return total / COUNTED


async def measure_release(release: str) -> dict[str, float]:
    """Bytecodes by verb and resource."""
    server = await start(release)
    await asyncio.sleep(SETTLE)
    counts = {}
    for resource in KINDS:
        for verb in VERBS:
            run = partial(request, server, verb, resource)
            counts[f"{verb} {resource}"] = await count_bytecodes(run)
    await server.stop()
    return counts


async def measure(releases: list[str]) -> float:
    """Prints a table; returns the largest ratio to the first release."""
    await measure_release(releases[0])  # fills the caches of paths that all servers share
    tables = [await measure_release(release) for release in releases]
    worst = 0.0
    print(f"{'bytecodes':18}" + "".join(f"{release:>16}" for release in releases))
    for name, first in tables[0].items():
        ratios = [table[name] / first for table in tables]
        worst = max(worst, *ratios)
        cells = (f"{ratio * first:8.0f} ({ratio:.3f})".rjust(16) for ratio in ratios)
        print(name.ljust(18) + "".join(cells))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", default=["1.20", "1.36"], metavar="RELEASE")
    parser.add_argument("--most", type=float, default=1.05, help="the largest accepted ratio")
    args = parser.parse_args()
    return int(asyncio.run(measure(args.releases)) > args.most)


if __name__ == "__main__":
    sys.exit(main())
