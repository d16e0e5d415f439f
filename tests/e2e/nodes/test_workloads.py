"""Workloads on nodes: Jobs and CronJobs that complete, a DaemonSet on both systems, persistent
storage, drained nodes.
"""

from __future__ import annotations

import json
import secrets
import time

import pytest

from .conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_jobs_complete(ns: Space) -> None:
    ns.apply("""
apiVersion: batch/v1
kind: Job
metadata: {name: pi}
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      restartPolicy: Never
      containers: [{name: pi, image: perl, command: [perl, -Mbignum=bpi, -wle, 'print bpi(2000)']}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 0
  template:
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      restartPolicy: Never
      containers: [{name: c, image: 'busybox:1.32', command: [sh, -c, 'exit 9']}]
""")
    ns("wait", "--for=condition=Complete", "job/pi", "--timeout=30s")
    assert ns.object("job/pi")["status"]["succeeded"] == 2
    assert ns("logs", "job/pi").startswith("3.14159265358979")
    ns("wait", "--for=condition=Failed", "job/fails", "--timeout=30s")
    assert ns.object("job/fails")["status"]["conditions"][0]["reason"] == "BackoffLimitExceeded"


def test_a_cron_job_by_hand(home: Space) -> None:
    name = f"daily-{secrets.token_hex(2)}"
    home(
        "create",
        "cronjob",
        name,
        "--image=busybox:1.32",
        "--schedule=0 0 1 1 *",
        "--",
        "echo",
        "done",
    )
    pinned = {
        "spec": {
            "jobTemplate": {
                "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}
            }
        }
    }
    home("patch", "cronjob", name, f"--patch={json.dumps(pinned)}")
    # kubectl 1.20 cannot read the batch/v1 that it finds first.
    home("create", "job", name, f"--from=cronjob{'.v1beta1.batch' if home.is_old else ''}/{name}")
    home("wait", "--for=condition=Complete", f"job/{name}", "--timeout=30s")
    assert home("logs", f"job/{name}") == "done\n"
    home("delete", "cronjob", name)


def test_a_daemon_on_every_node_of_both_systems(ns: Space) -> None:
    ns.apply("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 0
      containers: [{name: pause, image: 'k8s.gcr.io/pause:3.4.1'}]
""")
    ns("rollout", "status", "daemonset/everywhere", "--timeout=60s")
    nodes = sorted(pod["spec"]["nodeName"] for pod in ns.object("pods")["items"])
    assert nodes == ["control-plane", "linux-1", "windows-1", "windows-2"]


def test_storage_outlives_pods(ns: Space) -> None:
    folder, volume = f"/mnt/{ns.name}", f"pv-{ns.name}"
    ns.apply(f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {volume}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: {ns.name}
  hostPath: {{path: {folder}, type: DirectoryOrCreate}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      nodeSelector: {{kubernetes.io/os: linux}}
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: busybox:1.32
        command: [sh, -c, 'hostname >> /data/x; exec sleep 1000']
        volumeMounts: [{{name: data, mountPath: /data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec: {{storageClassName: {ns.name}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}
""")
    try:
        ns("rollout", "status", "statefulset/db", "--timeout=60s")
        uid = ns.object("pod/db-0")["metadata"]["uid"]
        ns("delete", "pod", "db-0")
        ns.until(lambda list_: any(p["metadata"]["uid"] != uid for p in list_["items"]), "pods")
        ns.ready("pod/db-0")
        assert ns("exec", "db-0", "--", "cat", "/data/x") == "db-0\ndb-0\n"
        assert ns.object("pvc/data-db-0")["spec"]["volumeName"] == volume
        # What is on the node's own disk can be seen by others there.
        assert ns(
            "debug",
            "node/linux-1",
            "--image=busybox:1.32",
            "--stdin",
            "--",
            "cat",
            f"/host{folder}/x",
            check=False,
        ).endswith("db-0\ndb-0\n")
    finally:
        ns("delete", "statefulset/db", "pvc/data-db-0", "--wait=false")
        ns("delete", "persistentvolume", volume, "--wait=false")


def test_files_follow_their_config_map(ns: Space) -> None:
    ns("create", "configmap", "settings", "--from-literal=key=old")
    ns.apply("""
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  nodeSelector: {kubernetes.io/os: linux}
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, configMap: {name: settings}}]
  containers: [{name: c, image: 'busybox:1.32', command: [sleep, '1000'], volumeMounts: [{name: v, mountPath: /v}]}]
""")
    ns.ready("pod/reader")
    assert ns("exec", "reader", "--", "cat", "/v/key") == "old"
    assert ns("exec", "reader", "--", "readlink", "/v/key") == "..data/key\n"


def test_a_drained_node(ns: Space) -> None:
    """The control plane's node, so that no other test is disturbed."""
    ns.apply("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: moving}
spec:
  selector: {matchLabels: {app: moving}}
  template:
    metadata: {labels: {app: moving}}
    spec:
      tolerations: [{key: node-role.kubernetes.io/master, operator: Exists}]
      terminationGracePeriodSeconds: 0
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [control-plane]}]}
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]
      containers: [{name: c, image: 'k8s.gcr.io/pause:3.4.1'}]
""")
    ns("rollout", "status", "deployment/moving", "--timeout=60s")
    assert [pod["spec"]["nodeName"] for pod in ns.object("pods")["items"]] == ["control-plane"]
    try:
        drained = ns(
            "drain", "control-plane", "--ignore-daemonsets", "--pod-selector=app=moving", "--force"
        )
        assert "evicted" in drained
        assert "SchedulingDisabled" in ns("get", "node", "control-plane")
        ns("rollout", "status", "deployment/moving", "--timeout=60s")
        assert [
            pod["spec"]["nodeName"]
            for pod in ns.object("pods")["items"]
            if not pod["metadata"].get("deletionTimestamp")
        ] == ["linux-1"]
    finally:
        ns("uncordon", "control-plane")


def test_what_is_reported_about_nodes(home: Space) -> None:
    linux, windows = home("describe", "node", "linux-1"), home("describe", "node", "windows-1")
    assert "kubelet has sufficient memory available" in linux and "KubeletReady" in windows
    assert (
        "Operating System:           windows" in windows
        and "OS Image:                   Windows Server 2019" in windows
    )
    assert "shell" in linux and "Allocated resources:" in linux
    wide = home("get", "nodes", "--output=wide")
    assert wide.count(" Ready ") == 4 and "docker://" in wide and "containerd://" in wide


def test_top(home: Space) -> None:
    end = time.monotonic() + 30  # what nodes measure is collected every 15 s
    while home.done("top", "pods").returncode != 0 and time.monotonic() < end:
        time.sleep(0.5)
    pods = home("top", "pods", "--containers", "--selector=app=talk").splitlines()
    assert {line.split()[1] for line in pods[1:]} == {"count", "once"}
    nodes = home("top", "nodes").splitlines()
    assert nodes[0].split()[0] == "NAME" and len(nodes) == 5
