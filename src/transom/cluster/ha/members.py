"""The members of the etcd that a cluster with several API servers starts itself."""

from __future__ import annotations

import signal

from transom.cluster import daemon
from transom.cluster.config import ClusterConfig
from transom.cluster.ha import layout
from transom.cluster.ha.processes import ManagedProcess

MEMBER_STOP_SECONDS = 1.0


def make_members(config: ClusterConfig) -> list[ManagedProcess]:
    """Not started yet. There are none if the cluster uses another etcd."""
    return [_member(config, number) for number in range(1, len(config.etcd_ports) // 2 + 1)]


def _member(config: ClusterConfig, number: int) -> ManagedProcess:
    folder = layout.etcd_folder(config, number)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = daemon.open_log(folder.with_name(folder.name + ".log"))
    return ManagedProcess(
        f"etcd-{number}",
        layout.etcd_command(config, number),
        log_file=file,
        # A leader that ends on SIGTERM keeps its ports for 7 s, and the next start needs them.
        parent_death_signal=signal.SIGKILL,
    )
