"""Makes the nodes of a test cluster: an API server in this process and simulated machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ApiServer
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.api import ApiClient
from transom.cloud.provider import CloudProvider
from transom.cluster.config import ClusterConfig, save_nodes
from transom.cluster.pki import ClusterPki
from transom.cluster.run import supervised
from transom.kit.clock import Clock
from transom.node.address_ranges import address_ranges
from transom.node.cluster_access import CertificatePaths, ClusterAccess
from transom.node.cluster_network import make_dataplane, make_fabric
from transom.node.machine_disks import MachineDisks
from transom.node.pool import NodePool
from transom.node.spec import NodeSpec, control_plane_node


def make_pool(
    api: ApiServer,
    config: ClusterConfig,
    specs: Sequence[NodeSpec],
    clock: Clock,
    rng: random.Random,
    cloud: CloudProvider,
    disks: MachineDisks | None = None,
    *,
    pki: ClusterPki = ClusterPki(Path()),  # noqa: B008
    wrap_client: Callable[[str, ApiClient], ApiClient] = lambda _user, client: client,
) -> NodePool:
    """No kubelet has a port of this machine. `wrap_client` gets the client of each user."""

    def make_client(user: str, groups: tuple[str, ...], agent: str) -> ApiClient:
        return wrap_client(user, InProcessClient(api, UserInfo(user, groups), user_agent=agent))

    fabric = make_fabric(address_ranges(config))
    cluster = ClusterAccess(
        config,
        clock,
        make_client,
        CertificatePaths(pki.ca, pki.ca_key),
        fabric,
        make_dataplane(config, fabric, clock, rng),
        cloud,
        supervised,
        control_plane_node(specs),
    )
    return NodePool(
        cluster, specs, disks, save=lambda found: save_nodes(config, found), max_listening=0
    )
