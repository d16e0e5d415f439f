"""What the documentation of current releases states, on the rules and tables that decide it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.sources import ManifestSource, SourcesRead
from transom.lint.text import SourceText
from transom.machinery.pod_security import evaluate_pod
from transom.machinery.quantity import parse_quantity
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machinery.releases.texts import in_release
from transom.machinery.validation import validation_rules
from transom.node.spec import NodeSpec
from transom.windows import match, releases
from transom.windows.limits import LIMITS
from transom.windows.match import LimitMatcher
from transom.windows.records import NodeTarget
from transom.windows.registry import RECORDS
from transom.windows.target_nodes import target_nodes_from_options

Object = dict[str, Any]


def make_pod(container: Object | None = None, context: Object | None = None, **spec: Any) -> Object:
    made = {
        "name": "c",
        "image": "i",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
        **(container or {}),
    }
    return {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {
            "containers": [made],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30,
            "securityContext": context or {},
            **spec,
        },
    }


def errors(pod: Object, minor: int = 36, **gates: bool) -> list[str]:
    release = Release(1, minor)
    rules = validation_rules("/Pod", "v1", FeatureSet(release, gates))
    return [str(error) for error in in_release(release, rules.create(pod))]


def windows_pod(**fields: Any) -> Object:
    return make_pod(os={"name": "windows"}, **fields)


@pytest.mark.windows(
    "W-API-01",
    "W-API-02",
    "W-API-03",
    "W-API-04",
    "W-API-05",
    "W-API-06",
    "W-API-07",
    "W-API-08",
    "W-API-09",
    "W-API-10",
    "W-API-11",
    "W-API-21",
    "W-POD-08",
    "W-POD-17",
)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hostPID", True),
        ("hostIPC", True),
        ("securityContext.seLinuxOptions", {"level": "s0"}),
        ("securityContext.seccompProfile", {"type": "RuntimeDefault"}),
        ("securityContext.fsGroup", 1),
        ("securityContext.fsGroupChangePolicy", "Always"),
        ("securityContext.sysctls", [{"name": "kernel.shm_rmid_forced", "value": "0"}]),
        ("shareProcessNamespace", True),
        ("securityContext.runAsUser", 1),
        ("securityContext.runAsGroup", 1),
        ("securityContext.supplementalGroups", [1]),
        ("hostUsers", False),
        ("securityContext.appArmorProfile", {"type": "RuntimeDefault"}),
        ("securityContext.supplementalGroupsPolicy", "Merge"),
        ("securityContext.seLinuxChangePolicy", "Recursive"),
    ],
)
def test_linux_fields_of_a_windows_pod_are_refused(path: str, value: Any) -> None:
    name = path.removeprefix("securityContext.")
    pod = windows_pod(context={name: value}) if name != path else windows_pod(**{name: value})
    assert f"spec.{path}: Forbidden: cannot be set for a windows pod" in "\n".join(errors(pod))
    without = make_pod(context={name: value}) if name != path else make_pod(**{name: value})
    assert "cannot be set for a windows pod" not in "\n".join(errors(without))


@pytest.mark.windows(
    "W-API-12",
    "W-API-13",
    "W-API-14",
    "W-API-15",
    "W-API-16",
    "W-API-17",
    "W-API-18",
    "W-API-19",
    "W-API-20",
    "W-API-22",
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seLinuxOptions", {"level": "s0"}),
        ("seccompProfile", {"type": "RuntimeDefault"}),
        ("capabilities", {"drop": ["ALL"]}),
        ("readOnlyRootFilesystem", False),
        ("privileged", False),
        ("allowPrivilegeEscalation", False),
        ("procMount", "Default"),
        ("runAsUser", 1),
        ("runAsGroup", 1),
        ("appArmorProfile", {"type": "RuntimeDefault"}),
    ],
)
def test_linux_fields_of_any_container_of_a_windows_pod_are_refused(name: str, value: Any) -> None:
    pod = windows_pod()
    second = {**pod["spec"]["containers"][0], "name": "d", "securityContext": {name: value}}
    pod["spec"]["containers"].append(second)
    [text] = errors(pod)
    assert text == (
        f"spec.containers[1].securityContext.{name}: Forbidden: cannot be set for a windows pod"
    )


@pytest.mark.windows("W-POD-02", "W-POD-09")
def test_values_of_the_operating_system() -> None:
    assert "Unsupported value" in "\n".join(errors(make_pod(os={"name": "darwin"})))
    linux = make_pod(os={"name": "linux"}, context={"windowsOptions": {"runAsUserName": "a"}})
    assert "windows options cannot be set for a linux pod" in "\n".join(errors(linux))


@pytest.mark.windows("W-POD-12", "W-POD-13", "WIN-POD-113")
def test_stop_signals_of_windows() -> None:
    def stop(signal: str, **spec: Any) -> list[str]:
        pod = make_pod({"lifecycle": {"stopSignal": signal}}, **spec)
        return errors(pod, 36, ContainerStopSignals=True)

    assert stop("SIGTERM", os={"name": "windows"}) == []
    [text] = stop("SIGUSR1", os={"name": "windows"})
    assert 'supported values: "SIGKILL", "SIGTERM"' in text
    assert stop("SIGTERM") != []


@pytest.mark.windows("W-POD-15", "WIN-POD-115")
def test_resources_of_a_whole_pod_are_refused_for_windows() -> None:
    requested = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert "may not be set for a windows pod" in "\n".join(errors(windows_pod(resources=requested)))
    assert errors(make_pod(resources=requested)) == []
    matcher = LimitMatcher([LIMITS["WIN-POD-115"]])
    assert [hit.path for hit in matcher.find("Pod", windows_pod(resources=requested))] == [
        "spec.resources"
    ]
    assert not match.record_holds(LIMITS["WIN-POD-115"], NodeTarget((1, 33)))


@pytest.mark.windows("W-POD-14", "WIN-POD-114")
def test_a_windows_pod_is_not_resized() -> None:
    pod = windows_pod()
    check = validation_rules("/Pod", "v1", FeatureSet(Release(1, 36))).subresources["resize"]
    [error] = check(pod, pod)
    assert str(error) == "[]: Forbidden: windows pods cannot be resized"


@pytest.mark.windows("W-HP-10", "W-HP-11", "W-HP-12")
def test_rules_of_host_process_pods() -> None:
    on, off = {"windowsOptions": {"hostProcess": True}}, {"windowsOptions": {"hostProcess": False}}
    assert errors(make_pod(context=on, hostNetwork=True)) == []
    assert "hostNetwork must be true" in "\n".join(errors(make_pod(context=on)))
    differing = make_pod({"securityContext": off}, context=on, hostNetwork=True)
    assert "must be identical if both are specified" in "\n".join(errors(differing))
    mixed = make_pod({"securityContext": on}, hostNetwork=True)
    mixed["spec"]["containers"].append({**make_pod()["spec"]["containers"][0], "name": "d"})
    assert "then all containers must be HostProcess containers" in "\n".join(errors(mixed))


@pytest.mark.windows("W-SEC-11", "W-SEC-12", "W-SEC-13", "W-SEC-14", "W-SEC-15", "W-SEC-16")
@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ("ContainerAdministrator", ""),
        ("containeruser", ""),
        ("NT AUTHORITY\\NETWORK SERVICE", ""),
        ("NT AUTHORITY\\LOCAL SERVICE", ""),
        ("example.com\\user", ""),
        ("", "cannot be an empty string"),
        ("a\x07", "cannot contain control characters"),
        (".bad\\user", "doesn't match the NetBios nor the DNS format"),
        ("-bad-domain.example\\user", "doesn't match the NetBios nor the DNS format"),
        ("d\\" + "u" * 105, "must not be longer than 104 characters"),
        ("...", "cannot contain only periods or spaces"),
        ("a=b", "cannot contain the following characters"),
    ],
)
def test_names_of_users(user: str, problem: str) -> None:
    found = "\n".join(errors(make_pod(context={"windowsOptions": {"runAsUserName": user}})))
    assert problem in found if problem else found == ""


@pytest.mark.windows("W-SEC-38")
def test_names_of_credential_specs_are_in_lower_case() -> None:
    options = {"windowsOptions": {"gmsaCredentialSpecName": "gmsa-WebApp1"}}
    assert "lowercase RFC 1123 subdomain" in "\n".join(errors(make_pod(context=options)))


def violations(spec: Object, level: str, version: tuple[int, int] = (1, 36)) -> str:
    return "; ".join(found.reason for found in evaluate_pod(level, version, {}, spec))


@pytest.mark.windows("W-SEC-19", "W-SEC-20", "W-HP-30")
def test_baseline_forbids_host_process_pods() -> None:
    pod = make_pod(context={"windowsOptions": {"hostProcess": True}}, hostNetwork=True)
    assert violations(pod["spec"], "privileged") == ""
    assert violations(pod["spec"], "baseline") == "host namespaces; hostProcess"


@pytest.mark.windows("W-SEC-21")
def test_baseline_forbids_hosts_of_probes_since_1_34() -> None:
    probe = {"livenessProbe": {"httpGet": {"host": "example.com", "port": 80}}}
    assert violations(make_pod(probe)["spec"], "baseline", (1, 33)) == ""
    assert violations(make_pod(probe)["spec"], "baseline", (1, 34)) != ""


@pytest.mark.windows(
    "W-POD-10", "W-SEC-22", "W-SEC-23", "W-SEC-24", "W-SEC-25", "W-SEC-26", "W-SEC-27"
)
def test_restricted_skips_what_windows_lacks() -> None:
    plain = make_pod(context={"runAsNonRoot": True})["spec"]
    windows = windows_pod(context={"runAsNonRoot": True})["spec"]
    assert violations(windows, "restricted") == ""
    assert violations(windows_pod()["spec"], "restricted") == "runAsNonRoot != true"
    unlike = violations(plain, "restricted")
    assert unlike == "allowPrivilegeEscalation != false; unrestricted capabilities; seccompProfile"
    assert violations(windows, "restricted", (1, 24)) == unlike


_STAGES = {
    "HyperVContainer": "alpha-19 deprecated-20 -37",
    "WinDSR": "alpha-32 beta+33 stable+37",
    "WinOverlay": "alpha-19 beta+33 stable+37",
    "WindowsCPUAndMemoryAffinity": "-31 alpha-37",
    "WindowsEndpointSliceProxying": "-18 alpha-20 beta+21 stable+37",
    "WindowsGMSA": "alpha-15 beta+17 stable+37",
    "WindowsGracefulNodeShutdown": "-31 alpha-33 beta+37",
    "WindowsHostNetwork": "-25 alpha+32 deprecated-37",
    "WindowsHostProcessContainers": "-21 alpha-22 beta+25 stable+37",
    "WindowsRunAsUserName": "-15 alpha-16 beta+17 stable+37",
    "IdentifyPodOS": "-22 alpha-23 beta+24 stable+37",
    "NodeLogQuery": "-26 alpha-29 beta-35 stable+37",
    "GracefulNodeShutdown": "-19 alpha-20 beta+37",
    "GracefulNodeShutdownBasedOnPodPriority": "-22 alpha-23 beta+37",
    "ContainerStopSignals": "-32 alpha-37",
    "InPlacePodVerticalScaling": "-26 alpha-32 beta+34 stable+37",
    "PodLevelResources": "-31 alpha-33 beta+37",
    "PodLevelResourceManagers": "-35 alpha-36 beta-37",
    "NodeOutOfServiceVolumeDetach": "-23 alpha-25 beta+27 stable+37",
    "RuntimeClassInImageCriApi": "-28 alpha-31 -32 alpha-37",
    "PodsAPI": "-35 alpha-36 beta+37",
    "EmptyDirVolumeMode": "-36 alpha-37",
    "VolumeBindMountOptions": "-36 alpha-37",
}


@pytest.mark.windows(
    "W-GATE-01",
    "W-GATE-02",
    "W-GATE-03",
    "W-GATE-04",
    "W-GATE-05",
    "W-GATE-06",
    "W-GATE-07",
    "W-GATE-08",
    "W-GATE-09",
    "W-GATE-10",
    "W-GATE-11",
    "W-GATE-13",
    "W-GATE-14",
    "W-GATE-15",
    "W-GATE-16",
    "W-GATE-17",
    "W-GATE-18",
    "W-GATE-19",
    "W-GATE-21",
    "W-GATE-22",
    "W-GATE-23",
    "W-GATE-24",
    "W-GATE-25",
)
@pytest.mark.parametrize("name", _STAGES)
def test_stages_of_gates(name: str) -> None:
    """Steps are a stage, whether it is on, and the last release where it holds."""
    expected, minor = {}, 14
    for step in _STAGES[name].split():
        stage, on, last = step.partition("+") if "+" in step else step.partition("-")
        for at in range(minor, int(last) + 1):
            expected[at] = (stage, on == "+")
        minor = int(last) + 1
    gate = releases.GATES[name]
    assert {at: (gate.stage((1, at)), gate.default((1, at))) for at in range(14, 38)} == expected


@pytest.mark.windows("W-GATE-12", "W-GATE-20")
def test_gates_that_turned_on_late() -> None:
    def on_since(name: str) -> int:
        return next(minor for minor in range(14, 38) if releases.GATES[name].default((1, minor)))

    assert on_since("IPv6DualStack") == 21
    disks = {"AWS": 23, "AzureDisk": 23, "AzureFile": 24, "GCE": 23, "vSphere": 25}
    assert {name: on_since(f"CSIMigration{name}") for name in disks} == disks


@pytest.mark.windows("W-OS-01", "W-OS-02", "W-OS-03", "W-OS-04", "W-OS-05", "W-OS-06")
@pytest.mark.parametrize(
    ("record", "release", "build", "holds"),
    [
        ("WIN-OS-102", (1, 34), 17763, False),
        ("WIN-OS-102", (1, 35), 17763, True),
        ("WIN-OS-102", (1, 35), 20348, False),
        ("WIN-OS-103", (1, 35), 19042, True),
        ("WIN-OS-103", (1, 35), 26100, False),
    ],
)
def test_older_systems_are_out_since_1_35(
    record: str, release: tuple[int, int], build: int, holds: bool
) -> None:
    assert match.record_holds(LIMITS[record], NodeTarget(release, build)) is holds
    assert releases.supports_build(release, build) is not holds


@pytest.mark.windows("WIN-OS-110", "WIN-NET-115", "WIN-RES-201", "WIN-STO-119", "WIN-STO-120")
@pytest.mark.windows("W-OS-10", "W-NET-15", "W-STO-19", "W-STO-20")
@pytest.mark.windows("W-STO-03", "W-STO-04", "W-STO-05", "W-STO-06", "W-STO-07", "W-STO-09")
@pytest.mark.windows(
    "WIN-STO-103", "WIN-STO-104", "WIN-STO-105", "WIN-STO-106", "WIN-STO-107", "WIN-STO-109"
)
@pytest.mark.parametrize(
    ("record", "since", "pod"),
    [
        (
            "WIN-OS-110",
            21,
            {
                "metadata": {
                    "annotations": {"experimental.windows.kubernetes.io/isolation-type": "hyperv"}
                }
            },
        ),
        ("WIN-NET-115", 14, make_pod({"ports": [{"containerPort": 1, "protocol": "SCTP"}]})),
        ("WIN-RES-201", 34, make_pod(resourceClaims=[{"name": "a"}])),
        ("WIN-STO-103", 27, make_pod(volumes=[{"awsElasticBlockStore": {"volumeID": "v"}}])),
        ("WIN-STO-104", 27, make_pod(volumes=[{"azureDisk": {"diskName": "d"}}])),
        ("WIN-STO-105", 28, make_pod(volumes=[{"gcePersistentDisk": {"pdName": "d"}}])),
        ("WIN-STO-106", 30, make_pod(volumes=[{"azureFile": {"shareName": "s"}}])),
        ("WIN-STO-107", 30, make_pod(volumes=[{"vsphereVolume": {"volumePath": "p"}}])),
        ("WIN-STO-109", 23, make_pod(volumes=[{"flexVolume": {"driver": "d"}}])),
        ("WIN-STO-119", 37, make_pod(volumes=[{"emptyDir": {"mode": 511}}])),
        ("WIN-STO-120", 37, make_pod({"volumeMounts": [{"bindMountOptions": ["noexec"]}]})),
    ],
)
def test_manifests_show_limits_of_later_releases(record: str, since: int, pod: Object) -> None:
    limit = LIMITS[record]
    assert [hit.limit.id for hit in LimitMatcher([limit]).find("Pod", pod)] == [record]
    on = frozenset(limit.needs)
    assert match.record_holds(limit, NodeTarget((1, since), features=on))
    assert since == 14 or not match.record_holds(limit, NodeTarget((1, since - 1), features=on))


@pytest.mark.windows("W-OS-19", "W-OS-22", "W-OS-20")
def test_runtimes_of_later_releases() -> None:
    assert "docker" in releases.release_facts((1, 23)).runtimes()
    assert releases.release_facts((1, 24)).runtimes() == {"containerd": "1.4.0"}
    assert releases.release_facts((1, 26)).runtimes() == {"containerd": "1.6.0"}


@pytest.mark.windows("W-OS-11", "SUP-OS-111")
def test_hardware_of_a_windows_node() -> None:
    node = NodeSpec("w", os="windows")
    assert node.cpus >= 4
    assert parse_quantity(node.memory) >= parse_quantity("8Gi")
    assert parse_quantity(node.disk) >= parse_quantity("50Gi")


@pytest.mark.windows("W-NET-07", "WIN-NET-107", "W-NET-08", "WIN-NET-108")
@pytest.mark.parametrize("build", [17763, 20348, 26100])
def test_updates_for_overlay_networks_are_for_windows_server_2019(build: int) -> None:
    old = NodeTarget((1, 34), build, network="overlay", revision=1)
    for id in ("WIN-NET-107", "WIN-NET-108"):
        assert match.record_holds(LIMITS[id], old) is (build == 17763)
    bridge = old._replace(network="l2bridge")
    assert not match.record_holds(LIMITS["WIN-NET-107"], bridge)


@pytest.mark.windows("W-OS-36", "WIN-OS-136")
@pytest.mark.parametrize(
    ("build", "revision", "holds"),
    [(17763, 1697, True), (17763, 1817, False), (19042, 500, True), (20348, 1, False)],
)
def test_builds_where_managed_accounts_need_an_update(
    build: int, revision: int, holds: bool
) -> None:
    node = NodeTarget((1, 34), build, runtime="containerd", revision=revision)
    assert match.record_holds(LIMITS["WIN-OS-136"], node) is holds


@pytest.mark.windows("W-API-23", "WIN-API-123")
def test_run_as_user_keeps_a_pod_from_starting_until_1_30() -> None:
    held = [
        minor
        for minor in range(14, 38)
        if match.record_holds(LIMITS["WIN-API-123"], NodeTarget((1, minor)))
    ]
    assert held == list(range(21, 31))


@pytest.mark.windows("W-STO-02", "SUP-STO-102")
@pytest.mark.parametrize(
    "source",
    [{"azureFile": {"secretName": "s", "shareName": "n"}}, {"vsphereVolume": {"volumePath": "p"}}],
)
def test_in_tree_plugins_that_are_left(source: Object) -> None:
    volume = {"name": "v", **source}
    assert errors(make_pod(volumes=[volume]), 29) == []
    held = [
        minor
        for minor in range(14, 38)
        if match.record_holds(RECORDS["SUP-STO-102"], NodeTarget((1, minor)))
    ]
    assert held == [28, 29]


@pytest.mark.windows("W-STO-16", "WIN-STO-116", "W-HP-23", "WIN-HP-123")
@pytest.mark.parametrize(
    ("record", "pod", "found"),
    [
        ("WIN-STO-116", make_pod({"volumeMounts": [{"name": "v", "mountPath": "C:\\"}]}), True),
        (
            "WIN-STO-116",
            make_pod({"volumeMounts": [{"name": "v", "mountPath": "C:\\data"}]}),
            False,
        ),
        (
            "WIN-HP-123",
            make_pod(context={"runAsNonRoot": True, "windowsOptions": {"hostProcess": True}}),
            True,
        ),
        ("WIN-HP-123", make_pod(context={"windowsOptions": {"hostProcess": True}}), False),
        ("WIN-HP-123", make_pod(context={"runAsNonRoot": True}), False),
    ],
)
def test_lint_flags_what_the_api_accepts(record: str, pod: Object, found: bool) -> None:
    pod = copy.deepcopy(pod)
    pod["spec"] |= {"nodeSelector": {"kubernetes.io/os": "windows"}}
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})
    nodes = target_nodes_from_options((1, 36), 20348, "containerd")
    report = lint_sources(
        SourcesRead([ManifestSource("a.json", SourceText(text), "here")]), nodes, LintConfig()
    )
    assert (record in {finding.id for finding in report.findings}) is found
