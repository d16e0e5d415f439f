"""Selects the next endpoint: round robin, or with ClientIP affinity the client's previous endpoint.

Independent of sockets. The endpoints are shuffled when they change, like in kube-proxy.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

from transom.kit.clock import Clock
from transom.proxy.tracker import DEFAULT_AFFINITY_SECONDS, PortName

log = logging.getLogger("transom.proxy")

Place = tuple[str, int]


class NoEndpoint(Exception):
    """The text is kube-proxy's."""


class _State:
    __slots__ = ("affinity", "clients", "endpoints", "index", "seconds")

    def __init__(self, affinity: str, seconds: int) -> None:
        self.affinity = affinity
        self.seconds = seconds or DEFAULT_AFFINITY_SECONDS
        self.endpoints: list[Place] = []
        self.index = 0
        # address -> endpoint, and the time of its last use
        self.clients: dict[str, tuple[Place, float]] = {}


class RoundRobin:
    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._services: dict[PortName, _State] = {}

    def put_service(self, name: PortName, affinity: str, seconds: int) -> None:
        """Does not update the affinity timeout of a known service, like kube-proxy."""
        state = self._services.get(name)
        if state is None:
            self._services[name] = _State(affinity, seconds)
        elif affinity:
            state.affinity = affinity

    def remove_service(self, name: PortName) -> None:
        self._services.pop(name, None)

    def put_endpoints(self, name: PortName, endpoints: Iterable[Place]) -> None:
        state = self._services.get(name)
        if state is None:
            state = self._services[name] = _State("", 0)
        now = list(endpoints)
        if sorted(now) == sorted(state.endpoints):
            return
        log.debug("LoadBalancerRR: Setting endpoints for %s to %s", name, now)
        gone = set(state.endpoints).symmetric_difference(now)
        state.clients = {
            client: used for client, used in state.clients.items() if used[0] not in gone
        }
        self._rng.shuffle(now)
        state.endpoints = now
        state.index = 0

    def remove_endpoints(self, name: PortName) -> None:
        state = self._services.get(name)
        if state is not None:
            log.debug("LoadBalancerRR: Removing endpoints for %s", name)
            state.endpoints, state.index, state.clients = [], 0, {}

    def next(self, name: PortName, client: str, *, reset: bool = False) -> Place:
        """`reset`: the previous endpoint did not answer. Raises NoEndpoint."""
        state = self._services.get(name)
        if state is None:
            raise NoEndpoint("missing service entry")
        if not state.endpoints:
            raise NoEndpoint("missing endpoints")
        now = self._clock.monotonic()
        sticky = state.affinity not in ("", "None")
        if sticky and not reset:
            used = state.clients.get(client)
            if used is not None and int(now - used[1]) < state.seconds:
                state.clients[client] = (used[0], now)
                return used[0]
        endpoint = state.endpoints[state.index]
        state.index = (state.index + 1) % len(state.endpoints)
        if sticky:
            state.clients[client] = (endpoint, now)
        return endpoint

    def forget_stale(self) -> None:
        """The only thing that the periodic sync of this mode does."""
        now = self._clock.monotonic()
        for state in self._services.values():
            stale = [
                client
                for client, (_, used) in state.clients.items()
                if int(now - used) >= state.seconds
            ]
            for client in stale:
                del state.clients[client]
