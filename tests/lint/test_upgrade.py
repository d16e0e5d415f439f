"""The rehearsal of an upgrade: what breaks, what changes and what starts to work."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.lint.config import LintConfig
from transom.lint.output.upgrade import render_upgrade, upgrade_document
from transom.lint.sources import read_sources
from transom.lint.upgrade import UpgradeReport, rehearse_upgrade
from transom.lint.upgrade_checks import UPGRADE_RECORDS
from transom.windows.records import Release
from transom.windows.target_nodes import target_nodes_from_options

DEPLOYMENT = r"""
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/os: windows}
      containers:
      - name: web
        image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-IMAGE
        volumeMounts: [{name: d, mountPath: 'D:'}]
      volumes:
      - {name: d, hostPath: {path: 'HOSTPATH'}}
"""


def rehearse(
    tmp_path: Path, text: str, runtime: str = "docker", after: Release = (1, 36)
) -> UpgradeReport:
    (tmp_path / "a.yaml").write_text(text)
    return rehearse_upgrade(
        read_sources([str(tmp_path)]),
        target_nodes_from_options((1, 20), 17763, runtime, mixed=True),  # type: ignore[arg-type]
        target_nodes_from_options(after, 20348, "containerd", mixed=True),
        LintConfig(),
    )


def broken(report: UpgradeReport) -> set[str]:
    return {item.record.id for item in report.of("breaks")}


@pytest.mark.parametrize(
    ("manifest", "record", "remedy"),
    [
        ("{apiVersion: extensions/v1beta1, kind: Ingress}", "WIN-UPG-001", "networking.k8s.io/v1"),
        ("{apiVersion: batch/v1beta1, kind: CronJob}", "WIN-UPG-001", "batch/v1 CronJob"),
        (
            "{apiVersion: flowcontrol.apiserver.k8s.io/v1beta1, kind: FlowSchema}",
            "WIN-UPG-001",
            "Use flowcontrol.apiserver.k8s.io/v1 FlowSchema.",
        ),
        (
            "{apiVersion: node.k8s.io/v1beta1, kind: RuntimeClass}",
            "WIN-UPG-001",
            "Use node.k8s.io/v1 RuntimeClass.",
        ),
        ("{apiVersion: policy/v1beta1, kind: PodSecurityPolicy}", "WIN-UPG-002", "pod-security"),
    ],
)
def test_removed_apis_break(tmp_path: Path, manifest: str, record: str, remedy: str) -> None:
    report = rehearse(tmp_path, manifest)
    [item] = report.of("breaks")
    assert item.record.id == record and remedy in item.remedy


def test_apis_that_are_served_do_not_break(tmp_path: Path) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n"
    text += "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}\n"
    assert rehearse(tmp_path, text).items == []


@pytest.mark.parametrize(
    ("path", "record", "outcome"),
    [
        (r"\\.\pipe\docker_engine", "WIN-UPG-003", "breaks"),
        (r"\\.\pipe\csi-proxy-filesystem-v1", "WIN-UPG-004", "changes"),
    ],
)
def test_pipes_of_the_old_nodes(tmp_path: Path, path: str, record: str, outcome: str) -> None:
    report = rehearse(tmp_path, DEPLOYMENT.replace("HOSTPATH", path))
    assert (record, outcome) in {(item.record.id, item.outcome) for item in report.items}


def test_images_and_drives_of_the_old_nodes(tmp_path: Path) -> None:
    text = DEPLOYMENT.replace("HOSTPATH", "C:\\\\data")
    old = rehearse(tmp_path, text.replace("IMAGE", "ltsc2019"))
    assert broken(old) == {"WIN-OS-006"}
    assert "WIN-UPG-005" in {item.record.id for item in old.of("changes")}
    [image] = [item for item in old.items if item.record.id == "WIN-OS-006"]
    assert image.place.endswith("a.yaml:11") and image.obj == "Deployment web"
    assert broken(rehearse(tmp_path, text.replace("IMAGE", "ltsc2022"))) == set()


def test_selectors_of_the_old_build(tmp_path: Path) -> None:
    label = "node.kubernetes.io/windows-build"
    pod = DEPLOYMENT.replace("os: windows}", f"os: windows, {label}: 10.0.17763}}")
    assert "WIN-UPG-009" in broken(rehearse(tmp_path, pod))
    assert "WIN-UPG-009" not in broken(rehearse(tmp_path, pod.replace("17763", "20348")))
    runtime_class = (
        "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: old}, handler: docker, "
        f"scheduling: {{nodeSelector: {{{label}: 10.0.17763}}}}}}"
    )
    [item] = [
        item
        for item in rehearse(tmp_path, runtime_class).of("breaks")
        if item.record.id == "WIN-UPG-009"
    ]
    assert (item.obj, item.path) == ("RuntimeClass old", "scheduling.nodeSelector")


def test_what_changes_on_nodes(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    nodes = {(outcome, limit.id) for outcome, limit in report.nodes}
    assert {("changes", "WIN-UPG-006"), ("changes", "WIN-UPG-008")} <= nodes
    assert ("works", "WIN-NODE-003") in nodes
    same = rehearse(tmp_path, "{apiVersion: v1, kind: ConfigMap}", "containerd")
    assert "WIN-UPG-008" not in {limit.id for _, limit in same.nodes}


def test_both_reports_name_every_record(tmp_path: Path) -> None:
    report = rehearse(tmp_path, DEPLOYMENT.replace("IMAGE", "ltsc2019"))
    text, document = render_upgrade(report), upgrade_document(report)
    for item in document["items"]:
        assert item["id"] in text
    assert text.startswith("From Kubernetes 1.20, build 17763")


def test_records_are_complete() -> None:
    for record in UPGRADE_RECORDS.values():
        assert record.statement.endswith(".") and record.remedy.endswith(".")


ISOLATION = """
apiVersion: v1
kind: Pod
metadata:
  name: isolated
  annotations: {experimental.windows.kubernetes.io/isolation-type: hyperv}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  os: {name: windows}
  containers: [{name: c, image: "mcr.microsoft.com/windows/servercore:ltsc2022"}]
"""


@pytest.mark.windows("WIN-OS-009", "WIN-OS-110")
def test_a_field_without_effect_before_and_after_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ISOLATION)
    ids = {}
    for release in ((1, 16), (1, 20)):
        report = rehearse_upgrade(
            read_sources([str(tmp_path)]),
            target_nodes_from_options(release, 17763, "docker", mixed=True),
            target_nodes_from_options((1, 36), 20348, "containerd", mixed=True),
            LintConfig(),
        )
        ids[release] = {item.record.id for item in report.items} & {
            "WIN-OS-009",
            "WIN-OS-012",
            "WIN-OS-110",
        }
    assert ids[(1, 16)] == set()  # ignored by both
    assert ids[(1, 20)] == {"WIN-OS-012", "WIN-OS-110"}  # rejected before, ignored after


POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: n}
spec:
  nodeSelector: {kubernetes.io/os: windows}
  os: {name: windows}
  SPEC
  containers: [{name: c, image: "mcr.microsoft.com/windows/servercore:ltsc2022"}]
"""


@pytest.mark.parametrize(
    ("after", "outcome"), [((1, 23), "breaks"), ((1, 24), "changes"), ((1, 36), "changes")]
)
def test_drives_need_a_containerd_that_mounts_them(
    tmp_path: Path, after: Release, outcome: str
) -> None:
    """Of init containers, too."""
    init = "initContainers: [{name: i, image: i, volumeMounts: [{name: d, mountPath: 'F:\\'}]}]"
    found = [
        (item.outcome, item.path)
        for item in rehearse(tmp_path, POD.replace("SPEC", init), after=after).items
        if item.record.id == "WIN-UPG-005"
    ]
    assert found == [(outcome, "spec.initContainers[0].volumeMounts[0].mountPath")]


_MASTER = "node-role.kubernetes.io/master"
_TERM = f"{{matchExpressions: [{{key: {_MASTER}, operator: Exists}}]}}"
_OTHER_TERM = "{matchExpressions: [{key: zone, operator: Exists}]}"


def _affinity(*terms: str) -> str:
    required = f"requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{', '.join(terms)}]}}"
    return f"affinity: {{nodeAffinity: {{{required}}}}}"


@pytest.mark.parametrize(
    ("spec", "record", "outcome"),
    [
        (_affinity(_TERM), "WIN-UPG-007", "breaks"),
        (_affinity(_TERM, _OTHER_TERM), "WIN-UPG-007", ""),
        (f"tolerations: [{{key: {_MASTER}}}]", "WIN-UPG-007", "changes"),
        (
            f"tolerations: [{{key: {_MASTER}}}, {{key: node-role.kubernetes.io/control-plane}}]",
            "WIN-UPG-007",
            "",
        ),
        ("tolerations: [{operator: Exists}]", "WIN-UPG-007", ""),
        (
            "volumes: [{name: t, secret: {secretName: default-token-x7k2p}}]",
            "WIN-UPG-011",
            "breaks",
        ),
        ("volumes: [{name: t, secret: {secretName: my-token-value}}]", "WIN-UPG-011", ""),
        (
            "initContainers: [{name: i, image: i, args: ['--proxy-mode=userspace']}]",
            "WIN-UPG-013",
            "breaks",
        ),
        (
            "initContainers: [{name: i, image: i, args: ['--proxy-mode=kernelspace']}]",
            "WIN-UPG-013",
            "",
        ),
    ],
)
def test_pods_that_a_changed_default_concerns(
    tmp_path: Path, spec: str, record: str, outcome: str
) -> None:
    report = rehearse(tmp_path, POD.replace("SPEC", spec))
    found = [item.outcome for item in report.items if item.record.id == record]
    assert found == ([outcome] if outcome else [])


_CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy}
data:
  config.conf: |
    kind: KubeProxyConfiguration
    mode: MODE
"""


@pytest.mark.parametrize(
    ("text", "after", "record"),
    [
        (
            "{apiVersion: storage.k8s.io/v1, kind: StorageClass, "
            "provisioner: kubernetes.io/azure-disk}",
            (1, 27),
            "WIN-UPG-010",
        ),
        (
            "{apiVersion: v1, kind: PersistentVolume, spec: {azureFile: {shareName: s}}}",
            (1, 30),
            "WIN-UPG-010",
        ),
        (_CONFIG.replace("MODE", "userspace"), (1, 26), "WIN-UPG-013"),
        (
            "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, handler: docker}",
            (1, 24),
            "WIN-UPG-014",
        ),
    ],
)
def test_objects_that_a_release_breaks(
    tmp_path: Path, text: str, after: Release, record: str
) -> None:
    assert record in broken(rehearse(tmp_path, text, after=after))
    if record != "WIN-UPG-014":  # which the runtime decides
        earlier = (1, after[1] - 1)
        assert record not in broken(rehearse(tmp_path, text, after=earlier))
    assert record not in broken(rehearse(tmp_path, _CONFIG.replace("MODE", "kernelspace")))


@pytest.mark.parametrize(
    ("level", "spec", "broken_since"),
    [
        ("restricted", "securityContext: {}", 23),
        ("restricted", "securityContext: {runAsNonRoot: true}", 0),
        ("baseline", "securityContext: {}", 0),
        ("baseline", "hostNetwork: true", 23),
        ("privileged", "hostNetwork: true", 0),
    ],
)
def test_pods_that_their_namespace_forbids(
    tmp_path: Path, level: str, spec: str, broken_since: int
) -> None:
    label = f"pod-security.kubernetes.io/enforce: {level}"
    namespace = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: n, labels: {{{label}}}}}}}"
    text = f"{namespace}\n---\n{POD.replace('SPEC', spec)}"
    after = broken(rehearse(tmp_path, text))
    assert ("WIN-UPG-015" in after) is bool(broken_since)
    assert "WIN-UPG-015" not in broken(rehearse(tmp_path, text, after=(1, 22)))
    elsewhere = text.replace("name: n, labels", "name: m, labels")
    assert "WIN-UPG-015" not in broken(rehearse(tmp_path, elsewhere))


def test_updates_of_other_builds_are_no_change(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    ids = {limit.id for _, limit in report.nodes}
    assert not ids & {"WIN-OS-136", "WIN-NET-107", "WIN-API-123"}
    assert "WIN-UPG-012" in ids
