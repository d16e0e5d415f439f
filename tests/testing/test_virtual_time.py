"""A cluster whose time a test advances, and whose objects it restores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from transom.testing import Cluster, ClusterRequestFailed

pytestmark = pytest.mark.e2e

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      containers: [{name: c, image: nginx}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}
"""
TICK = """
apiVersion: batch/v1beta1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "*/1 * * * *"
  successfulJobsHistoryLimit: 10
  jobTemplate:
    spec:
      template:
        spec:
          nodeSelector: {kubernetes.io/os: linux}
          restartPolicy: Never
          containers: [{name: c, image: busybox, command: [sh, -c, "sleep 30; date"]}]
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(linux=2, windows=0, virtual_time=True) as cluster:
        yield cluster


@pytest.fixture
def namespace(running: Cluster) -> Iterator[str]:
    """All objects are as before at the end of the test."""
    before = running.snapshot()
    yield running.create_namespace()
    running.restore(before)


def ready(node: Any) -> str:
    return next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready")


def test_cron_jobs_run_at_their_times(running: Cluster, namespace: str) -> None:
    running.apply(TICK, namespace)
    began = datetime.fromisoformat(running.advance(seconds=0))
    ended = datetime.fromisoformat(running.advance(minutes=4))
    assert timedelta(minutes=4) <= ended - began < timedelta(minutes=5)
    jobs = running.list("jobs", namespace)
    starts = sorted(datetime.fromisoformat(job["status"]["startTime"]) for job in jobs)
    assert len(jobs) == 4
    assert all(timedelta(seconds=45) < b - a < timedelta(seconds=75) for a, b in pairwise(starts))
    done = [job for job in jobs if job["status"].get("succeeded")]
    assert len(done) >= 3
    taken = [
        datetime.fromisoformat(job["status"]["completionTime"])
        - datetime.fromisoformat(job["status"]["startTime"])
        for job in done
    ]
    assert all(timedelta(seconds=30) <= each < timedelta(seconds=40) for each in taken)


def test_nodes_stay_ready_and_pods_of_a_failed_one_are_evicted(
    running: Cluster, namespace: str
) -> None:
    running.apply(WEB, namespace)
    running.wait("deployment/web", "condition=Available", namespace)
    running.advance(minutes=10)
    assert {ready(node) for node in running.list("nodes")} == {"True"}
    victim = running.list("pods", namespace)[0]["spec"]["nodeName"]
    running.node(victim).stop()
    running.advance(seconds=30)
    assert ready(running.get(f"node/{victim}")) == "True"
    running.advance(seconds=30)  # 40 s without a heartbeat
    assert ready(running.get(f"node/{victim}")) == "Unknown"
    assert not [p for p in running.list("pods", namespace) if "deletionTimestamp" in p["metadata"]]
    running.advance(minutes=5)  # the default toleration of pods
    pods = running.list("pods", namespace)
    evicted = [p for p in pods if "deletionTimestamp" in p["metadata"]]
    assert evicted and {p["spec"]["nodeName"] for p in evicted} == {victim}
    left = [p for p in pods if p not in evicted]
    assert len(left) == 2 and all(p["spec"]["nodeName"] != victim for p in left)
    running.node(victim).start()
    running.wait(f"node/{victim}", "condition=Ready")


def test_tokens_expire(running: Cluster) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    wanted = {"spec": {"expirationSeconds": 600}}
    answer = running.client().request("POST", path, wanted)
    review = {"spec": {"token": answer["status"]["token"]}}
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    before = running.client().request("POST", reviews, kind | review)
    assert before["status"]["authenticated"]
    running.advance(minutes=11)
    after = running.client().request("POST", reviews, kind | review)
    assert not after["status"].get("authenticated")


def test_a_restored_cluster_works(running: Cluster) -> None:
    empty = running.snapshot()
    running.apply(WEB)
    running.wait("deployment/web", "condition=Available")
    deployed = running.snapshot()
    names = {pod["metadata"]["name"] for pod in running.list("pods", "default")}
    running.restore(empty)
    assert running.list("pods", "default") == []
    running.apply(WEB.rpartition("---")[2])  # its port is free again
    running.restore(deployed)
    assert {pod["metadata"]["name"] for pod in running.list("pods", "default")} == names
    for name in names:  # they start again
        running.wait(f"pod/{name}", "condition=Ready")
    running.advance(minutes=1)
    assert {pod["metadata"]["name"] for pod in running.list("pods", "default")} == names
    running.delete("deployment/web")
    running.restore(empty)


def test_errors(running: Cluster) -> None:
    with pytest.raises(ClusterRequestFailed, match=r"there is no POST /transom/states/99/restore"):
        running.restore("99")
    with pytest.raises(ClusterRequestFailed, match="advanceSeconds must be a number"):
        running.advance(seconds=-1)
    with Cluster(nodes=False) as real, pytest.raises(ClusterRequestFailed, match="real time"):
        real.advance(minutes=5)
