"""All connections to kubelets, and through this server into the cluster network.

Protocol modules are imported with the first client, because start-up does not need them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from transom.apiserver.core.call import (
    PodCommand,
    PodLogs,
    PodPortForward,
    ProxyTarget,
)
from transom.apiserver.kubelets import locations
from transom.apiserver.kubelets.locations import FindObject, ProxyLocation
from transom.apiserver.kubelets.options import KubeletOptions
from transom.apiserver.kubelets.transport import KubeletTransport
from transom.http.messages import Answer, HttpRequest
from transom.kit.clock import Clock
from transom.kit.lazy import lazy_import
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release

# Protocol modules are imported with the first client that needs them.
if TYPE_CHECKING:
    from transom.apiserver.kubelets import logs, proxying, requests, streams
    from transom.kit.streaming import remotecommand
else:
    logs = lazy_import("transom.apiserver.kubelets.logs")
    proxying = lazy_import("transom.apiserver.kubelets.proxying")
    requests = lazy_import("transom.apiserver.kubelets.requests")
    streams = lazy_import("transom.apiserver.kubelets.streams")
    remotecommand = lazy_import("transom.kit.streaming.remotecommand")

_LARGEST_SUMMARY = 64 * 1024 * 1024
_SUMMARY = "/stats/summary?only_cpu_and_memory=true"


class Kubelets:
    def __init__(
        self,
        options: KubeletOptions,
        find: FindObject,
        clock: Clock,
        rng: random.Random,
        services: Sequence[str] = (),
        own: str = "",
        release: Release = DEFAULT,
    ) -> None:
        self._options = options
        self._release = release
        self._find = find
        self._rng = rng
        self._transport = KubeletTransport(options, clock, services, own)

    def close(self) -> None:
        self._transport.pool.close()

    def _kubelet(self, node: str) -> ProxyLocation:
        return locations.kubelet_location(
            locations.find_required_object(self._find, "nodes", "", node), self._options
        )

    async def connect(
        self, request: HttpRequest, target: PodLogs | PodCommand | PodPortForward | ProxyTarget
    ) -> Answer:
        if isinstance(target, PodLogs):
            return await self.log(request, target.pod, target.container, target.options)
        if isinstance(target, PodPortForward):
            return await self.port_forward(request, target.pod, target.ports)
        if isinstance(target, ProxyTarget):
            return await self.proxy(request, *target)
        return await self.command(request, *target)

    async def log(
        self, request: HttpRequest, pod: Object, container: str, options: Mapping[str, Any]
    ) -> Answer:
        return await logs.serve_log(
            self._transport,
            request,
            self._kubelet(pod["spec"]["nodeName"]),
            pod,
            container,
            options,
        )

    async def command(
        self,
        request: HttpRequest,
        what: str,
        pod: Object,
        container: str,
        options: Mapping[str, Any],
    ) -> Answer:
        """exec and attach."""
        wanted = [("command", word) for word in options.get("command") or ()]
        names = {"error": "stderr", "input": "stdin", "output": "stdout", "tty": "tty"}
        wanted += [(short, "1") for short, name in names.items() if options.get(name)]
        tty = bool(options.get("tty"))
        command_streams = remotecommand.CommandStreams(
            bool(options.get("stdin")),
            bool(options.get("stdout")),
            bool(options.get("stderr")) and not tty,
            tty,
        )
        target = f"/{what}/{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        return await self._stream(request, pod, target, wanted, command_streams)

    async def port_forward(self, request: HttpRequest, pod: Object, ports: Sequence[int]) -> Answer:
        target = f"/portForward/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        wanted = [("port", ",".join(map(str, ports)))] if ports else []
        return await self._stream(request, pod, target, wanted, None)

    async def _stream(
        self,
        request: HttpRequest,
        pod: Object,
        target: str,
        query: list[tuple[str, str]],
        command_streams: remotecommand.CommandStreams | None,
    ) -> Answer:
        kubelet = self._kubelet(pod["spec"]["nodeName"])
        if query:
            target += f"?{urlencode(query)}"
        return await streams.serve_stream(
            self._transport, request, kubelet, target, command_streams
        )

    async def proxy(
        self, request: HttpRequest, resource: str, namespace: str, name: str, path: str
    ) -> Answer:
        if resource == "pods":
            location = locations.pod_location(self._find, namespace, name)
        elif resource == "services":
            location = locations.service_location(self._find, namespace, name, self._rng)
        else:
            location = locations.node_location(self._find, name, self._options)
        return await proxying.serve_proxy(self._transport, request, location, path, self._release)

    async def summary(self, node: str) -> Object:
        """The resource usage of a node and its pods from its kubelet; raises ApiError, CallError or
        ValueError.
        """
        kubelet = self._kubelet(node)
        raw = requests.encode_kubelet_request(
            "GET", _SUMMARY, kubelet.authority, [(b"Accept", b"application/json")]
        )
        connection, head = await self._transport.pool.begin(
            await self._transport.target(kubelet), raw
        )
        body = await connection.read_all(_LARGEST_SUMMARY)
        self._transport.pool.give_back(connection)
        if head.status != 200:
            raise ValueError(
                f"the kubelet of {node} answered {head.status}: "
                f"{body[:200].decode(errors='replace')}"
            )
        found = orjson.loads(body)
        if not isinstance(found, dict):
            raise ValueError(f"the kubelet of {node} gave no summary")
        return found
