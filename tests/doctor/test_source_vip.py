"""A Windows node of an overlay network without a source VIP still boots, and doctor's remedy
repairs it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doctor.failures import remove_file, write_file
from tests.doctor.virtual_cluster import VirtualCluster, virtual_cluster

from transom.node.network_settings import NetworkSettings

VIP, REQUEST = r"C:\k\sourceVip.json", r"C:\k\sourceVipRequest.json"


@pytest.mark.windows("TRB-86", "TRB-87", "TRB-88")
def test_a_failing_source_vip_is_reported_and_its_remedy_ends_it(tmp_path: Path) -> None:
    network = NetworkSettings(mode="overlay")
    with virtual_cluster(tmp_path, network=network) as (cluster, run):

        async def repair(cluster: VirtualCluster) -> None:
            for file in (VIP, REQUEST):
                await remove_file("windows-1", file)(cluster)
            await cluster.pool.reboot("windows-1")
            await cluster.silence()

        async def scenario() -> None:
            for content, what in (
                (b"{ nope", "kube-proxy has no source VIP: "),
                (b'{"ip4": {}}', "kube-proxy has no source VIP: "),
                (b'{"ip4": {"ip": "10.99.0.2/24"}}', "the source VIP 10.99.0.2 is not of the node"),
            ):
                await write_file("windows-1", VIP, content)(cluster)
                await cluster.pool.reboot("windows-1")
                found = await cluster.finding("node/windows-1", what)
                assert (
                    found.record == "SUP-TRB-012" and r"Remove C:\k\SourceVip.json" in found.remedy
                )
                await cluster.clock.sleep(60)
                # it is Ready
                assert [one.record for one in await cluster.doctor()] == ["SUP-TRB-012"]
                await repair(cluster)

        run(scenario())
