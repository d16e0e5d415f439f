"""Everything that goes to a kubelet, or through this server into the cluster's network, in one place.

What speaks the protocols is imported when the first client asks: a start has no use for it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from transom.apiserver.kubelets import locations
from transom.apiserver.kubelets.locations import Find, Location
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.kubelets.way import Way
from transom.http.messages import Answer, Request
from transom.kit.clock import Clock
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.kit.streaming.remotecommand import Streams

_LARGEST_SUMMARY = 64 * 1024 * 1024
_SUMMARY = "/stats/summary?only_cpu_and_memory=true"


class Kubelets:
    def __init__(self, options: KubeletOptions, find: Find, clock: Clock, rng: random.Random) -> None:
        self._options = options
        self._find = find
        self._rng = rng
        self._way = Way(options, clock)

    def close(self) -> None:
        self._way.pool.close()

    def _kubelet(self, node: str) -> Location:
        return locations.of_kubelet(locations.required(self._find, "nodes", "", node), self._options)

    async def log(self, request: Request, pod: Object, container: str, options: Object) -> Answer:
        from transom.apiserver.kubelets import logs

        return await logs.serve(self._way, request, self._kubelet(pod["spec"]["nodeName"]), pod, container, options)

    async def command(self, request: Request, what: str, pod: Object, container: str, options: Mapping[str, Any]) -> Answer:
        """exec and attach."""
        from transom.kit.streaming.remotecommand import Streams

        wanted = [("command", word) for word in options.get("command") or ()]
        names = {"error": "stderr", "input": "stdin", "output": "stdout", "tty": "tty"}
        wanted += [(short, "1") for short, name in names.items() if options.get(name)]
        tty = bool(options.get("tty"))
        asked = Streams(
            bool(options.get("stdin")), bool(options.get("stdout")), bool(options.get("stderr")) and not tty, tty
        )
        target = f"/{what}/{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        return await self._stream(request, pod, target, wanted, asked)

    async def port_forward(self, request: Request, pod: Object, ports: list[int]) -> Answer:
        target = f"/portForward/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        wanted = [("port", ",".join(map(str, ports)))] if ports else []
        return await self._stream(request, pod, target, wanted, None)

    async def _stream(
        self, request: Request, pod: Object, target: str, query: list[tuple[str, str]], asked: Streams | None
    ) -> Answer:
        from transom.apiserver.kubelets import streams

        kubelet = self._kubelet(pod["spec"]["nodeName"])
        if query:
            target += f"?{urlencode(query)}"
        return await streams.serve(self._way, request, kubelet, target, asked)

    async def proxy(self, request: Request, resource: str, namespace: str, name: str, path: str) -> Answer:
        if resource == "pods":
            location = locations.of_pod(self._find, namespace, name)
        elif resource == "services":
            location = locations.of_service(self._find, namespace, name, self._rng)
        else:
            location = locations.of_node(self._find, name, self._options)
        from transom.apiserver.kubelets import proxying

        return await proxying.serve(self._way, request, location, path)

    async def summary(self, node: str) -> Object:
        """What a node and its pods use, as its kubelet says; ApiError, CallError or ValueError when that fails."""
        from transom.apiserver.kubelets import requests

        kubelet = self._kubelet(node)
        raw = requests.encode("GET", _SUMMARY, kubelet.authority, [(b"Accept", b"application/json")])
        connection, head = await self._way.pool.begin(self._way.target(kubelet), raw)
        body = await connection.read_all(_LARGEST_SUMMARY)
        self._way.pool.give_back(connection)
        if head.status != 200:
            raise ValueError(f"the kubelet of {node} answered {head.status}: {body[:200].decode(errors='replace')}")
        found = orjson.loads(body)
        if not isinstance(found, dict):
            raise ValueError(f"the kubelet of {node} gave no summary")
        return found
