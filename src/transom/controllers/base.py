"""What every controller receives, and the operations that all of them share."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from transom.client.api import ApiClient
from transom.client.events import EventRecorder
from transom.client.informer import Informer, InformerFactory
from transom.client.metrics import WorkQueueMetrics
from transom.client.workqueue import RetryLater, WorkQueue
from transom.cloud.calls import CloudCalls
from transom.kit.clock import Clock
from transom.kit.lazy_dataclass import dataclass
from transom.kit.named_tuple import NamedTuple
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.features import FeatureSet

log = logging.getLogger("transom.controllers")

MAX_RETRIES = 15

Item = TypeVar("Item", bound=Hashable)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE = 58


class Controller(Protocol):
    async def run(self) -> None:
        """Runs until cancelled."""


class ProvisionedVolume(NamedTuple):
    """The fields of the PersistentVolume."""

    # its source; also capacity, access modes and node affinity if the provisioner determines them
    spec: Object
    labels: Mapping[str, str] = MappingProxyType({})


class Provisioner(Protocol):
    """Creates and deletes volumes of storage classes that name it. Raises `ProvisioningFailure`."""

    async def provision(
        self, claim: Object, storage_class: Object, name: str, node: str
    ) -> ProvisionedVolume:
        """Creates a volume with this name; `node` is "" for any."""

    async def delete(self, volume: Object) -> None: ...


class ProvisioningFailure(Exception):
    """A volume could not be created or deleted; the text is for the user."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings of the cluster's controllers."""

    release: Release = DEFAULT
    feature_gates: Mapping[str, bool] = field(default_factory=dict)  # changed from the defaults
    root_ca: str = ""  # PEM, with which pods verify the API server
    sign: Callable[[dict[str, Any]], str] | None = (
        None  # claims of a service account token -> the token
    )
    # seconds between the deletion of a namespace and that of its content
    namespace_grace: float = 5.0
    sign_certificate: Callable[[bytes, Iterable[str], float], bytes] | None = (
        None  # request (PEM), usages, seconds -> certificate
    )
    terminated_pods: int = 12500  # the number of terminated pods to keep
    node_grace: float = 40.0  # seconds without a heartbeat until a node is unreachable
    # ranges to allocate node CIDRs from, at most one of each family; none: no allocation
    pod_cidrs: Sequence[str] = ()
    service_cidrs: Sequence[str] = ()  # excluded from node CIDRs, if they overlap the ranges above
    node_cidr_mask: int = 24
    node_cidr_mask_ipv6: int = 64
    # The range of load balancer addresses, or one of each family separated by a comma; none:
    # another component handles these services.
    load_balancers: str = ""
    # volume provisioners in this process, by name
    provisioners: Mapping[str, Provisioner] = field(default_factory=dict)
    cloud: CloudCalls | None = None  # its disks are attached to nodes and created for claims

    @property
    def features(self) -> FeatureSet:
        return FeatureSet(Release(*self.release), self.feature_gates)


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The dependencies of a controller. `client` has this controller's identity; all controllers
    share the informers.
    """

    client: ApiClient
    informers: InformerFactory
    recorder: Callable[[str], EventRecorder]  # by the component shown in events
    clock: Clock
    rng: random.Random
    settings: ControllerSettings
    queues: WorkQueueMetrics = field(default_factory=WorkQueueMetrics)


async def run_worker(
    queue: WorkQueue[Item],
    sync: Callable[[Item], Awaitable[None]],
    needs: Iterable[Informer],
    workers: int = 1,
) -> None:
    """The main loop of most controllers: wait until the informers have synced, then sync item after
    item.
    """
    for informer in needs:
        await informer.synced()
    await queue.run(sync, workers)


async def with_max_retries(
    queue: WorkQueue[str], key: str, sync: Callable[[str], Awaitable[None]], kind: str
) -> None:
    """Syncs an item and drops it after MAX_RETRIES failures, until it changes."""
    try:
        await sync(key)
    except (ApiError, RetryLater) as error:
        if queue.failures(key) < MAX_RETRIES:
            raise
        log.warning("dropping %s %s out of the queue: %s", kind, key, error)
        queue.set_aside(key)


def generate_name(prefix: str, rng: random.Random) -> str:
    """The prefix and five random characters, like the API server's generateName."""
    return prefix[:_LONGEST_BASE] + "".join(rng.choices(_SUFFIX_LETTERS, k=5))
