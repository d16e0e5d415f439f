"""What every controller is given, and the few moves all of them make."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from transom.client.api import Client
from transom.client.events import EventRecorder
from transom.client.informer import Informer, InformerFactory
from transom.client.workqueue import WorkQueue
from transom.kit.clock import Clock
from transom.machinery.objects import Object

Item = TypeVar("Item", bound=Hashable)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58


class Controller(Protocol):
    async def run(self) -> None:
        """Work until cancelled."""


class Provisioner(Protocol):
    """Makes and destroys volumes of storage classes that name it. A failure is a `VolumeFailure`."""

    async def provision(self, claim: Object, storage_class: Object, name: str, node: str) -> Object:
        """The spec of a volume of this name: its source, capacity and access modes; `node` is "" for any."""

    async def delete(self, volume: Object) -> None: ...


class VolumeFailure(Exception):
    """A volume could not be made or destroyed; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the cluster decides about its controllers."""

    root_ca: str = ""  # PEM, for pods to know the API server by
    sign: Callable[[dict[str, Any]], str] | None = None  # claims of a service account token -> the token
    namespace_grace: float = 5.0  # between the deletion of a namespace and that of its content
    sign_certificate: Callable[[bytes, Iterable[str]], bytes] | None = None  # request (PEM), usages -> certificate
    terminated_pods: int = 12500  # that may stay after they have ended
    node_grace: float = 40.0  # without a sign of life before a node is unreachable
    pod_cidrs: Sequence[str] = ()  # ranges that nodes get their share of, at most one of each family; none: no shares
    service_cidrs: Sequence[str] = ()  # which nodes must not get, should they lie in the former
    node_cidr_mask: int = 24
    node_cidr_mask_ipv6: int = 64
    # Range that services of this type get an address from, or one of each family with a comma; none: they wait for somebody.
    load_balancers: str = ""
    provisioners: Mapping[str, Provisioner] = field(default_factory=dict)  # of volumes, in this process, by name


@dataclass(frozen=True, slots=True)
class Env:
    """A controller's surroundings. `client` speaks as this controller; the informers are everybody's."""

    client: Client
    informers: InformerFactory
    recorder: Callable[[str], EventRecorder]  # by the component that events shall name
    clock: Clock
    rng: random.Random
    settings: Settings


async def work(
    queue: WorkQueue[Item], sync: Callable[[Item], Awaitable[None]], needs: Iterable[Informer], workers: int = 1
) -> None:
    """The life of most controllers: wait until the informers have what there is, then sync item after item."""
    for informer in needs:
        await informer.synced()
    await queue.run(sync, workers)


def generate_name(prefix: str, rng: random.Random) -> str:
    """The prefix and five random letters, as the API server makes names from generateName."""
    return prefix[:_LONGEST_BASE] + "".join(rng.choices(_SUFFIX_LETTERS, k=5))
