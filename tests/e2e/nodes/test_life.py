"""Pods from their creation to their end, as kubectl shows them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def pod(name: str, body: str, labels: str = "{}") -> str:
    lines = "".join(f"  {line}\n" for line in body.strip().splitlines())
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {labels}}}\nspec:\n"
        f"  nodeSelector: {{kubernetes.io/os: linux}}\n{lines}"
    )


def container(found: Any, name: str = "c") -> Any:
    return next(s for s in found["status"]["containerStatuses"] if s["name"] == name)


def conditions(found: Any) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found["status"].get("conditions") or ()}


def phase(wanted: str) -> Any:
    return lambda found: found["status"].get("phase") == wanted


def test_what_a_container_is_given(ns: Space) -> None:
    ns(
        "create",
        "configmap",
        "settings",
        "--from-literal=colour=blue",
        "--from-literal=file.txt=line",
    )
    ns("create", "secret", "generic", "hidden", "--from-literal=password=s3cret")
    ns.apply(
        pod(
            "given",
            """
restartPolicy: Never
initContainers:
- name: prepare
  image: busybox:1.32
  command: [sh, -c, 'echo prepared > /prep/f']
  volumeMounts: [{name: work, mountPath: /prep}]
containers:
- name: c
  image: busybox:1.32
  command: [sh, -c]
  args:
  - |
    echo $colour $S_password $CPU $MEM $COMBINED $KUBERNETES_SERVICE_PORT
    [ "$IP" = "$(hostname -i)" ] && echo address
    cat /prep/f; cat /given/settings/file.txt; echo; cat /given/password; echo; cat /given/labels; echo
    ls /var/run/secrets/kubernetes.io/serviceaccount
    cut -c1-3 /given/token
    echo the end > /dev/termination-log
  envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: hidden}, prefix: S_}]
  env:
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}
  - {name: MEM, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
  - {name: COMBINED, value: '$(NODE)/$(colour)'}
  resources: {requests: {memory: 64Mi}, limits: {cpu: 500m}}
  volumeMounts: [{name: work, mountPath: /prep}, {name: all, mountPath: /given}]
volumes:
- {name: work, emptyDir: {}}
- name: all
  projected:
    sources:
    - configMap: {name: settings, items: [{key: file.txt, path: settings/file.txt}]}
    - secret: {name: hidden}
    - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}
    - serviceAccountToken: {path: token, audience: somebody, expirationSeconds: 600}
""",
            "{role: x}",
        )
    )
    found = ns.until(phase("Succeeded"), "pod/given")
    assert ns("logs", "given", "--container=c").splitlines() == [
        "blue s3cret 500 64 linux-1/blue 443",
        "address",
        "prepared",
        "line",
        "s3cret",
        'role="x"',
        "ca.crt",
        "namespace",
        "token",
        "eyJ",
    ]
    assert container(found)["state"]["terminated"]["message"] == "the end\n"
    assert (
        found["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    )
    described = ns("describe", "pod", "given")
    for text in (
        "Successfully assigned",
        "Created container prepare",
        "Started container c",
        "settings  ConfigMap",
        "Burstable",
        "TokenExpirationSeconds:  600",
    ):
        assert text in described, described


def test_crashes_back_off(ns: Space) -> None:
    ns.apply(
        pod(
            "crash",
            (
                "containers: [{name: c, image: 'busybox:1.32', command: [sh, -c, 'echo failing; "
                "exit 3']}]"
            ),
        )
    )
    found = ns.until(
        lambda p: (
            (container(p)["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff"
            if p["status"].get("containerStatuses")
            else False
        ),
        "pod/crash",
    )
    entry = container(found)
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    assert entry["state"]["waiting"]["message"].startswith(
        "back-off 10s restarting failed container=c pod=crash_"
    )
    assert "CrashLoopBackOff" in ns("get", "pods")
    assert "Back-off restarting failed container" in ns("describe", "pod", "crash")


def test_probes(ns: Space) -> None:
    ns("create", "service", "clusterip", "web", "--tcp=80:80")
    ns.apply(
        pod(
            "web",
            """
terminationGracePeriodSeconds: 1
containers:
- name: c
  image: nginx:1.19
  readinessProbe: {httpGet: {path: /ready.html, port: 80}, periodSeconds: 1}
  livenessProbe: {exec: {command: [sh, -c, '! test -e /tmp/ill']}, periodSeconds: 1, failureThreshold: 1}
  startupProbe: {tcpSocket: {port: 80}, periodSeconds: 1}
  lifecycle: {postStart: {exec: {command: [sh, -c, 'echo hooked > /tmp/hook']}}}
""",
            "{app: web}",
        )
    )
    ns.until(
        lambda p: p["status"].get("containerStatuses") and container(p).get("started"), "pod/web"
    )
    assert ns("exec", "web", "--", "cat", "/tmp/hook") == "hooked\n"
    endpoints = ns.until(lambda e: e.get("subsets"), "endpoints/web")
    assert (
        "addresses" not in endpoints["subsets"][0] and endpoints["subsets"][0]["notReadyAddresses"]
    )
    ns.until(
        lambda list_: any("statuscode: 404" in event["message"] for event in list_["items"]),
        "events",
    )
    ns("exec", "web", "--", "sh", "-c", "echo yes > /usr/share/nginx/html/ready.html")
    ns.until(lambda e: e["subsets"][0].get("addresses"), "endpoints/web")
    ns("exec", "web", "--", "touch", "/tmp/ill")
    found = ns.until(lambda p: container(p)["restartCount"] == 1, "pod/web")
    assert container(found)["lastState"]["terminated"]["exitCode"] == 0  # nginx ends on request
    described = ns("describe", "pod", "web")
    assert "Readiness probe failed: HTTP probe failed with statuscode: 404" in described
    assert "Container c failed liveness probe, will be restarted" in described


def test_deletion_is_graceful(ns: Space) -> None:
    ns.apply(
        pod(
            "slow",
            """
terminationGracePeriodSeconds: 20
containers:
- name: c
  image: busybox:1.32
  command: [sh, -c, 'trap "echo terminating; sleep 1; exit 0" TERM; echo up; while true; do sleep 0.1; done']
  lifecycle: {preStop: {exec: {command: [sh, -c, 'echo hook > /proc/1/fd/1']}}}
""",
        )
    )
    ns.ready("pod/slow")
    with ns.running("logs", "--follow", "slow") as following:
        assert following.stdout is not None and following.stdout.readline() == "up\n"
        began = time.monotonic()
        ns("delete", "pod", "slow", "--wait=false")
        assert ns.object("pod/slow")["metadata"]["deletionGracePeriodSeconds"] == 20
        assert "Terminating" in ns("get", "pods")
        ns("wait", "--for=delete", "pod/slow", "--timeout=15s", check=False)
        assert 1 <= time.monotonic() - began < 10
        assert following.stdout.read() == "hook\nterminating\n"
    ns.apply(
        pod(
            "deaf",
            """
terminationGracePeriodSeconds: 30
containers: [{name: c, image: 'busybox:1.32', command: [sleep, '1000']}]
""",
        )
    )
    ns.ready("pod/deaf")
    ns("delete", "pod", "deaf", "--grace-period=1")
    assert ns.done("get", "pod", "deaf").returncode == 1


def test_pods_that_cannot_run(ns: Space) -> None:
    ns.apply(pod("no-image", "containers: [{name: c, image: 'no-such-image:v1'}]"))
    ns.apply(
        pod(
            "no-map",
            (
                "containers: [{name: c, image: 'busybox:1.32', envFrom: [{configMapRef: {name: "
                "none}}]}]"
            ),
        )
    )
    ns.apply(pod("no-command", "containers: [{name: c, image: 'busybox:1.32', command: [/none]}]"))
    ns.apply(
        pod(
            "no-room",
            "containers: [{name: c, image: 'busybox:1.32', resources: {requests: {cpu: '64'}}}]",
        )
    )

    def reason(wanted: str) -> Any:
        return lambda p: p["status"].get("containerStatuses") and wanted in str(container(p))

    ns.until(reason("ErrImagePull"), "pod/no-image")
    found = ns.until(reason("CreateContainerConfigError"), "pod/no-map")
    assert container(found)["state"]["waiting"]["message"] == 'configmap "none" not found'
    found = ns.until(reason("StartError"), "pod/no-command")
    last = container(found)["lastState"]["terminated"]
    assert (
        last["exitCode"] == 128
        and 'exec: "/none": stat /none: no such file or directory' in last["message"]
    )
    found = ns.until(lambda p: p["status"].get("conditions"), "pod/no-room")
    assert "Insufficient cpu" in found["status"]["conditions"][0]["message"]


def test_conditions_follow_readiness_gates(ns: Space) -> None:
    ns.apply(
        pod(
            "gated",
            """
readinessGates: [{conditionType: example.org/fed}]
containers: [{name: c, image: 'busybox:1.32', command: [sleep, '1000']}]
terminationGracePeriodSeconds: 0
""",
        )
    )
    found = ns.until(lambda p: conditions(p).get("ContainersReady") == "True", "pod/gated")
    assert conditions(found)["Ready"] == "False"
    from kubernetes import client, config

    core = client.CoreV1Api(config.new_client_from_config(str(ns.kubectl.cluster.kubeconfig)))
    fed = {"status": {"conditions": [{"type": "example.org/fed", "status": "True"}]}}
    core.patch_namespaced_pod_status("gated", ns.name, fed)
    ns.until(lambda p: conditions(p)["Ready"] == "True", "pod/gated")
