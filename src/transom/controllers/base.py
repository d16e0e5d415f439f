"""What every controller is given, and the few moves all of them make."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from transom.client.api import Client
from transom.client.events import EventRecorder
from transom.client.informer import Informer, InformerFactory
from transom.client.workqueue import WorkQueue
from transom.kit.clock import Clock

Item = TypeVar("Item", bound=Hashable)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58


class Controller(Protocol):
    async def run(self) -> None:
        """Work until cancelled."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the cluster decides about its controllers."""

    root_ca: str = ""  # PEM, for pods to know the API server by
    sign: Callable[[dict[str, Any]], str] | None = None  # claims of a service account token -> the token
    namespace_grace: float = 5.0  # between the deletion of a namespace and that of its content


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
