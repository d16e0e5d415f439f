"""What users' tests import: a cluster for the duration of a test, and the pytest plugin.

from transom.testing import Cluster

with Cluster(release="1.36", windows=1) as c:
    c.apply(manifest)
    c.wait("deployment/web", "condition=Available")
"""

from __future__ import annotations

from transom.cluster.temporary import ClusterOptions
from transom.testing.async_cluster import AsyncCluster, ClusterRequestFailed
from transom.testing.certificates import ServingCertificate, make_serving_certificate
from transom.testing.cluster import Cluster
from transom.testing.process import ClusterNotStarted
from transom.testing.waiting import WaitTimeout

__all__ = [
    "AsyncCluster",
    "Cluster",
    "ClusterNotStarted",
    "ClusterOptions",
    "ClusterRequestFailed",
    "ServingCertificate",
    "WaitTimeout",
    "make_serving_certificate",
]
