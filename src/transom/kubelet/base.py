"""What every part of a kubelet is given, and the failures they tell each other of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from transom.client.api import Client
from transom.client.events import EventRecorder
from transom.hosts.api import Host
from transom.kit.clock import Clock
from transom.kubelet.config import KubeletConfig
from transom.kubelet.osrules import OsRules
from transom.machinery.objects import Object
from transom.network.api import Dial
from transom.runtime.api import Runtime


class Services(Protocol):
    """Services of a namespace, for the environment of containers; kept up by somebody for all kubelets of a process."""

    async def synced(self) -> None: ...
    def list(self, namespace: str) -> Sequence[Object]: ...


@dataclass(frozen=True, slots=True)
class Env:
    """A kubelet's surroundings. `client` speaks as the node; `node` is its Node object as last seen (None before)."""

    config: KubeletConfig
    os: OsRules
    client: Client
    clock: Clock
    rng: random.Random
    events: EventRecorder
    host: Host
    runtime: Runtime
    services: Services
    dial: Dial  # to an address of a pod, as from this node
    node: Callable[[], Object | None]


class ContainerFailure(Exception):
    """A container cannot go on. `reason` is what `state.waiting.reason` says (CreateContainerConfigError,
    ErrImagePull ...), `str()` the message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VolumeFailure(Exception):
    """A volume cannot be set up now; the text is the event's."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The node does not take the pod: it becomes Failed with these."""

    reason: str
    message: str
