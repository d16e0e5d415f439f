"""Whether a remote APIService is available: its `Available` condition, with Kubernetes' reasons and
messages.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from transom.apiserver.core.service_resolver import (
    Resolve,
    ServiceResolver,
    UnresolvedService,
    service_port,
)
from transom.http import goerrors
from transom.http.goerrors import join_host_port
from transom.http.outgoing import CallError, CallTarget, ClientPair
from transom.http.pool import ConnectionPool
from transom.kit.http_message import encode_request
from transom.kit.named_tuple import NamedTuple
from transom.machinery.discovery_documents import listed_resources
from transom.machinery.objects import Object

_ATTEMPTS = 5
_SECONDS = 5.0
_MAX_DISCOVERY = 1024 * 1024


class Availability(NamedTuple):
    status: str
    reason: str
    message: str
    resources: list[Any] | None = None  # the server's discovery document, if it responded

    def condition(self, before: Object | None, now: str) -> Object:
        changed = before is None or before.get("status") != self.status
        return {
            "type": "Available",
            "status": self.status,
            "lastTransitionTime": now
            if changed or before is None
            else before.get("lastTransitionTime"),
            "reason": self.reason,
            "message": self.message,
        }


def availability_by_objects(spec: Object, services: ServiceResolver) -> Availability | None:
    """The problem with the service and its endpoints; None if there is none."""
    reference = spec["service"]
    namespace, name, port = reference["namespace"], reference["name"], reference.get("port", 443)
    where = f'service/{name} in "{namespace}"'
    service = services.service(namespace, name)
    if service is None:
        return Availability("False", "ServiceNotFound", f"{where} is not present")
    if (service.get("spec") or {}).get("type", "ClusterIP") != "ClusterIP":
        return None
    found = service_port(service, port)
    if found is None:
        return Availability("False", "ServicePortError", f"{where} is not listening on port {port}")
    if not services.has_endpoints(namespace, name):
        return Availability("False", "EndpointsNotFound", f"cannot find endpoints for {where}")
    port_name = found.get("name", "")
    if next(services.addresses(namespace, name, port_name), None) is None:
        return Availability(
            "False",
            "MissingEndpoints",
            f'endpoints for {where} have no addresses with port name "{port_name}"',
        )
    return None


async def availability_by_request(
    spec: Object, resolve: Resolve, pool: ConnectionPool, pair: ClientPair | None
) -> Availability:
    """Requests the discovery document, several times concurrently; one response is enough."""
    tasks = [asyncio.ensure_future(_ask(spec, resolve, pool, pair)) for _ in range(_ATTEMPTS)]
    problem: Exception = CallError("")
    try:
        for done in asyncio.as_completed(tasks):
            try:
                return Availability("True", "Passed", "all checks passed", await done)
            except (CallError, UnresolvedService) as failed:
                problem = failed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Availability("False", "FailedDiscoveryCheck", str(problem))


async def _ask(
    spec: Object, resolve: Resolve, pool: ConnectionPool, pair: ClientPair | None
) -> list[Any]:
    reference = spec["service"]
    address = resolve(reference["namespace"], reference["name"], reference.get("port", 443))
    group, version = spec.get("group", ""), spec["version"]
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    host = join_host_port(*address)
    url = f"https://{host}{path}"
    # A server with an invalid certificate could only affect the condition.
    target = CallTarget(address.host, address.port, address.host, insecure=True, pair=pair)
    headers = (
        ("Host", host),
        ("User-Agent", "Go-http-client/1.1"),
        ("X-Remote-User", "system:kube-aggregator"),
        ("X-Remote-Group", "system:masters"),
    )
    request = encode_request("GET", path, headers)
    try:
        async with asyncio.timeout(_SECONDS):
            connection, head = await pool.begin(target, request)
            body = await connection.read_all(_MAX_DISCOVERY)
    except TimeoutError:
        why = f'Get "{url}": {goerrors.DEADLINE} (Client.Timeout exceeded while awaiting headers)'
        raise CallError(f"failing or missing response from {url}: {why}") from None
    except CallError as problem:
        raise CallError(f'failing or missing response from {url}: Get "{url}": {problem}') from None
    pool.give_back(connection)
    if not 200 <= head.status < 300:
        raise CallError(
            f"failing or missing response from {url}: bad status from {url}: {head.status}"
        )
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []  # sufficient for the condition, but nothing to merge
    return [*listed_resources(document)]
