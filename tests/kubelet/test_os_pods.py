"""Security contexts and resources on both systems."""

from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, pod

from transom.kubelet.failures import ContainerFailure
from transom.kubelet.security import effective_security_context, needs_host_users
from transom.runtime.api import Image, LinuxContainer, WindowsContainer, WindowsResources

WHERE = f'(pod: "web_ns({UID})", container: c)'


def image(uid: int | None = None, username: str = "") -> Image:
    return Image("sha256:1", ("app:1",), (), 1, uid, username)


def linux(
    container: dict[str, Any] | None = None, user: Image | None = None, **spec: Any
) -> LinuxContainer:
    options: LinuxContainer = Machine().config(pod(container, **spec), image=user or image()).linux
    return options


def windows(
    container: dict[str, Any] | None = None,
    user: Image | None = None,
    settings: dict[str, Any] | None = None,
    **spec: Any,
) -> WindowsContainer:
    config = Machine("windows", **(settings or {})).config(
        pod(container, **spec), image=user or image()
    )
    assert config.linux is None
    options: WindowsContainer = config.windows
    return options


def resources(
    cpu: str = "", memory: str = "", cpu_request: str = "", memory_request: str = ""
) -> dict[str, Any]:
    limits = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    requests = {k: v for k, v in (("cpu", cpu_request), ("memory", memory_request)) if v}
    return {"resources": {"limits": limits, "requests": requests}}


@pytest.mark.parametrize(
    ("container", "shares", "quota", "memory", "oom"),
    [
        ({}, 2, 0, 0, 1000),
        (resources("500m", "1Gi", "500m", "1Gi"), 512, 50000, 1 << 30, -997),
        (resources(cpu_request="100m"), 102, 0, 0, 999),
        (resources(cpu_request="1m"), 2, 0, 0, 999),
        (
            resources("1m"),
            2,
            1000,
            0,
            999,
        ),  # the request defaults to the limit, both to what the kernel allows
        (resources(memory_request="4Gi"), 2, 0, 0, 500),
        (resources(memory_request="8Gi"), 2, 0, 0, 3),
    ],
)
def test_linux_resources(
    container: dict[str, Any], shares: int, quota: int, memory: int, oom: int
) -> None:
    found = linux(container).resources
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit, found.oom_score_adj) == (
        shares,
        quota,
        memory,
        oom,
    )
    assert found.cpu_period == 100000


def test_critical_pods_are_killed_last_and_huge_pages_are_limited() -> None:
    assert linux(priority=2_000_000_000).resources.oom_score_adj == -997
    found = linux({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}).resources
    assert found.hugepages == {"2MB": 4 << 20, "1GB": 0}


@pytest.mark.parametrize(
    ("context", "user", "message"),
    [
        ({"runAsUser": 0}, image(), f"container's runAsUser breaks non-root policy {WHERE}"),
        ({}, image(uid=0), f"container has runAsNonRoot and image will run as root {WHERE}"),
        ({}, image(uid=None), f"container has runAsNonRoot and image will run as root {WHERE}"),
        (
            {},
            image(username="app"),
            (
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify "
                f"user is non-root {WHERE}"
            ),
        ),
    ],
)
def test_not_as_root(context: dict[str, Any], user: Image, message: str) -> None:
    with pytest.raises(ContainerFailure) as caught:
        linux({"securityContext": {"runAsNonRoot": True, **context}}, user)
    assert (caught.value.reason, str(caught.value)) == ("CreateContainerConfigError", message)
    assert linux({"securityContext": context}, user)


def test_the_user_of_a_container() -> None:
    nonroot = {"runAsNonRoot": True}
    assert linux(None, image(uid=1000), securityContext=nonroot).run_as_user == 1000
    unknown = image()._replace(user_unknown=True)
    assert linux(None, unknown, securityContext=nonroot).run_as_user == 65532
    assert linux(None, unknown).run_as_user is None
    with pytest.raises(ContainerFailure, match="breaks non-root policy"):
        linux(None, unknown, securityContext={**nonroot, "runAsUser": 0})
    found = linux(
        {"securityContext": {"runAsUser": 7}},
        image(username="app"),
        securityContext={
            "runAsUser": 5,
            "runAsGroup": 6,
            "fsGroup": 8,
            "supplementalGroups": [9],
            "runAsNonRoot": True,
        },
    )
    assert (found.run_as_user, found.run_as_user_name, found.run_as_group) == (7, "", 6)
    assert found.supplemental_groups == (8, 9)


def test_linux_security_options() -> None:
    wanted = pod(
        {
            "securityContext": {
                "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "procMount": "Unmasked",
                "allowPrivilegeEscalation": False,
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
            }
        },
        shareProcessNamespace=True,
    )
    wanted["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/c"] = (
        "runtime/default"
    )
    found = Machine().config(wanted).linux
    assert (found.add_capabilities, found.drop_capabilities) == (("NET_ADMIN",), ("ALL",))
    assert found.read_only_root and found.no_new_privileges and not found.masked_paths
    assert found.seccomp == "localhost//var/lib/kubelet/seccomp/p.json"
    assert (found.apparmor, found.pid_namespace) == ("runtime/default", "pod")
    plain = linux()
    assert len(plain.masked_paths) == 9 and len(plain.read_only_paths) == 6 and plain.seccomp == ""


def test_the_two_fields_of_gmsa_belong_together() -> None:
    options = {"gmsaCredentialSpecName": "p", "gmsaCredentialSpec": "{p}", "runAsUserName": "U"}
    own = {"securityContext": {"windowsOptions": {"gmsaCredentialSpecName": "c"}}}
    wanted = pod(own, securityContext={"windowsOptions": options})
    assert effective_security_context(wanted, wanted["spec"]["containers"][0])[
        "windowsOptions"
    ] == {
        "gmsaCredentialSpecName": "c",
        "runAsUserName": "U",
    }


@pytest.mark.parametrize(
    ("container", "settings", "expected"),
    [
        ({}, {}, WindowsResources()),
        (resources("500m", "1Gi"), {}, WindowsResources(cpu_maximum=1250, memory_limit=1 << 30)),
        (resources(cpu_request="500m", memory_request="1Gi"), {}, WindowsResources()),
        (resources("8"), {}, WindowsResources(cpu_maximum=10000)),
        (resources("1m"), {}, WindowsResources(cpu_maximum=2)),
        ({}, {"version": "v1.14.10"}, WindowsResources(cpu_shares=5000)),
        (
            resources("4"),
            {"version": "v1.14.10"},
            WindowsResources(cpu_shares=5000, cpu_maximum=10000),
        ),
    ],
)
def test_windows_resources(
    container: dict[str, Any], settings: dict[str, Any], expected: WindowsResources
) -> None:
    assert windows(container, settings=settings).resources == expected


def test_hyperv_isolation_by_the_annotation() -> None:
    wanted = pod(resources("1500m"))
    wanted["metadata"]["annotations"]["experimental.windows.kubernetes.io/isolation-type"] = (
        "hyperv"
    )
    gates = {"HyperVContainer": True}
    found = (
        Machine("windows", version="v1.16.15", feature_gates=gates).config(wanted).windows.resources
    )
    assert (found.cpu_count, found.cpu_maximum) == (2, 7500)
    assert Machine("windows").config(wanted).windows.resources.cpu_count == 0
    assert (
        Machine("windows", version="v1.21.0", feature_gates=gates)
        .config(wanted)
        .windows.resources.cpu_count
        == 0
    )


def test_the_container_beats_the_pod_beats_the_image() -> None:
    of_pod = {"windowsOptions": {"runAsUserName": "PodUser", "gmsaCredentialSpec": "{}"}}
    own = {"securityContext": {"windowsOptions": {"runAsUserName": "Own"}}}
    assert (
        windows(own, image(username="ContainerUser"), securityContext=of_pod).run_as_user_name
        == "Own"
    )
    found = windows(None, image(username="ContainerUser"), securityContext=of_pod)
    assert (found.run_as_user_name, found.credential_spec) == ("PodUser", "{}")
    assert windows(None, image(username="ContainerUser")).run_as_user_name == "ContainerUser"


ROOT = "which will be regarded as root identity and will break non-root policy"


@pytest.mark.parametrize(
    ("requested", "of_image", "version", "message"),
    [
        (
            "ContainerAdministrator",
            "ContainerUser",
            "v1.20.15",
            f"container's runAsUser (ContainerUser) {ROOT} {WHERE}",
        ),
        (
            None,
            "ContainerAdministrator",
            "v1.20.15",
            f"container's runAsUser (ContainerAdministrator) {ROOT} {WHERE}",
        ),
        ("CONTAINERADMINISTRATOR", "", "v1.20.15", ""),
        (
            "CONTAINERADMINISTRATOR",
            "",
            "v1.22.0",
            f"container's runAsUserName (CONTAINERADMINISTRATOR) {ROOT} {WHERE}",
        ),
        (None, "ContainerUser", "v1.20.15", ""),
        (None, "", "v1.20.15", ""),
        (
            None,
            "ContainerUser",
            "v1.14.10",
            (
                "container has runAsNonRoot and image has non-numeric user (ContainerUser), "
                "cannot verify user is non-root"
            ),
        ),
    ],
)
def test_not_as_administrator(
    requested: str | None, of_image: str, version: str, message: str
) -> None:
    context: dict[str, Any] = {"runAsNonRoot": True}
    if requested:
        context["windowsOptions"] = {"runAsUserName": requested}
    found = ""
    try:
        windows({"securityContext": context}, image(username=of_image), {"version": version})
    except ContainerFailure as problem:
        found = str(problem)
    assert found == message


def test_user_ids_are_refused_until_1_19_and_ignored_since() -> None:
    context = {
        "securityContext": {"runAsUser": 1000, "privileged": True, "readOnlyRootFilesystem": True}
    }
    with pytest.raises(
        ContainerFailure, match=r"^run as uid \(1000\) is not supported on Windows$"
    ):
        windows(context, settings={"version": "v1.14.10"})
    assert windows(context)
    wanted = pod(
        securityContext={
            "runAsUser": 5,
            "runAsGroup": 5,
            "fsGroup": 5,
            "supplementalGroups": [6],
            "seLinuxOptions": {"level": "s0"},
        }
    )
    sandbox = Machine("windows").builder.sandbox_config(wanted, 0).linux
    assert (
        sandbox.run_as_user,
        sandbox.run_as_group,
        sandbox.selinux,
        sandbox.supplemental_groups,
    ) == (None, None, None, (6,))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        (
            {
                "containers": [
                    {"name": "c", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
                ]
            },
            False,
        ),
        (
            {
                "containers": [
                    {"name": "c", "securityContext": {"capabilities": {"add": ["sys_time"]}}}
                ]
            },
            True,
        ),
        (
            {
                "initContainers": [
                    {"name": "i", "securityContext": {"capabilities": {"add": ["ALL"]}}}
                ]
            },
            True,
        ),
        (
            {
                "containers": [
                    {"name": "c", "securityContext": {"capabilities": {"add": ["MKNOD"]}}}
                ]
            },
            True,
        ),
        (
            {
                "containers": [
                    {"name": "c", "securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}}
                ]
            },
            True,
        ),
        (
            {
                "containers": [
                    {"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}]}
                ]
            },
            True,
        ),
        ({"securityContext": {"runAsUser": 65535}}, False),
        ({"securityContext": {"runAsUser": 1000650000}}, True),
        ({"securityContext": {"fsGroup": 65536}}, True),
        ({"containers": [{"name": "c", "securityContext": {"runAsGroup": 65536}}]}, True),
    ],
)
def test_pods_that_need_users_of_the_node(spec: dict[str, Any], expected: bool) -> None:
    assert needs_host_users({"containers": [{"name": "c"}], **spec}) is expected


@pytest.mark.parametrize(
    ("own", "quota", "memory"),
    [
        ({}, 50_000, 200 << 20),
        ({"cpu": "100m"}, 10_000, 200 << 20),
        ({"memory": "1Gi"}, 50_000, 1 << 30),
    ],
)
def test_limits_of_the_pod_apply_where_a_container_sets_none(
    own: dict[str, str], quota: int, memory: int
) -> None:
    limits = {"limits": {"cpu": "500m", "memory": "200Mi"}}
    wanted = pod({"resources": {"limits": own}}, resources=limits)
    found = Machine().config(wanted).linux.resources
    assert (found.cpu_quota, found.memory_limit) == (quota, memory)


@pytest.mark.parametrize(("enforced", "expected"), [(True, (25_000, 50_000)), (False, (0, 0))])
def test_the_quota_of_a_container_follows_the_configuration(
    enforced: bool, expected: tuple[int, int]
) -> None:
    machine = Machine(cpu_cfs_quota=enforced, cpu_cfs_quota_period=0.05)
    found = machine.config(pod(resources("500m"))).linux.resources
    assert (found.cpu_quota, found.cpu_period) == expected
