"""A short seed of `make jepsen`: faults in three API servers and three etcd members."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.etcd_process import require_etcd
from tests.jepsen.faults import FaultCluster, play_seed
from tests.jepsen.history import OK


@pytest.mark.timeout(300)
async def test_clients_see_one_order_of_changes_while_processes_fail(tmp_path: Path) -> None:
    require_etcd()
    cluster = FaultCluster(tmp_path)
    try:
        cluster.start()
        history, violations = await play_seed(cluster, 1, 8.0)
        assert not violations
        assert sum(one.outcome == OK for one in history.operations) > 50
        assert any(watch.changes for watch in history.watches)
    finally:
        cluster.delete()
