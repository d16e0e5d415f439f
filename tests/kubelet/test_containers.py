from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, mount, pod

from transom.kubelet.failures import ContainerFailure
from transom.network.api import PortMapping
from transom.runtime.api import Container, Mount

POD_DIR = f"/var/lib/kubelet/pods/{UID}"
WINDOWS_DIR = f"c:\\var\\lib\\kubelet\\pods\\{UID}"
EMPTY = {"name": "v", "emptyDir": {}}


def test_a_sandbox() -> None:
    ports = [
        {"name": "a", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"},
        {"name": "a", "containerPort": 81},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    wanted = pod({"ports": ports}, hostname="h", subdomain="sub", setHostnameAsFQDN=True)
    config = Machine().builder.sandbox_config(wanted, 2)
    assert (config.name, config.namespace, config.uid, config.attempt) == ("web", "ns", UID, 2)
    assert config.hostname == "h.sub.ns.svc.cluster.local"
    assert config.log_directory == f"/var/log/pods/ns_web_{UID}"
    assert config.ports == (PortMapping(80, 8080), PortMapping(53, 0, "UDP"))
    assert config.labels == {
        "app": "web",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "ns",
        "io.kubernetes.pod.uid": UID,
    }
    assert config.linux.cgroup_parent == f"/kubepods/besteffort/pod{UID}"
    assert config.linux.seccomp == "runtime/default"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"subdomain": "s" * 40, "setHostnameAsFQDN": True},
            "failed to construct FQDN from pod hostname and cluster domain, FQDN "
            f"web.{'s' * 40}.ns.svc.cluster.local is too long "
            "(64 characters is the max, 65 characters requested)",
        ),
    ],
)
def test_names_that_do_not_fit(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ContainerFailure) as caught:
        Machine().builder.sandbox_config(pod(**spec), 0)
    assert str(caught.value) == message


def test_a_long_name_is_cut() -> None:
    wanted = pod()
    wanted["metadata"]["name"] = "a" * 62 + "-" + "b" * 10
    assert Machine().builder.sandbox_config(wanted, 0).hostname == "a" * 62


def test_a_container() -> None:
    machine = Machine()
    config = machine.config(
        pod(
            {
                "command": ["sh", "-c", "echo $(WHO) $$(WHO) $(X)"],
                "args": ["$(WHO)"],
                "workingDir": "/w",
                "tty": True,
                "stdin": True,
                "env": [{"name": "WHO", "value": "me"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
            },
            terminationGracePeriodSeconds=30,
        )
    )
    assert config.command == ("sh", "-c", "echo me $(WHO) $(X)")
    assert config.args == ("me",)
    assert (config.image, config.image_ref, config.working_dir, config.tty, config.stdin) == (
        "app:1",
        "sha256:1",
        "/w",
        True,
        True,
    )
    assert config.log_path == "c/0.log"
    assert machine.files.stat(f"/var/log/pods/ns_web_{UID}/c").kind == "directory"
    assert config.annotations["io.kubernetes.container.restartCount"] == "0"
    assert (
        config.annotations["io.kubernetes.container.terminationMessagePath"]
        == "/dev/termination-log"
    )
    assert config.annotations["io.kubernetes.pod.terminationGracePeriod"] == "30"
    hosts, log = config.mounts
    assert hosts == Mount("/etc/hosts", f"{POD_DIR}/etc-hosts")
    assert log.container_path == "/dev/termination-log"
    assert log.host_path.rpartition("/")[0] == f"{POD_DIR}/containers/c"
    assert machine.files.stat(log.host_path).mode == 0o666


def test_an_init_container_must_end_unless_it_is_a_sidecar() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    wanted = pod(initContainers=[{"name": "migrate"}, sidecar])
    made = [Machine().config(wanted, number, kind="initContainers") for number in (0, 1)]
    assert [config.init for config in (*made, Machine().config(wanted))] == [True, False, False]


def test_the_hosts_file() -> None:
    machine = Machine()
    aliases = [{"ip": "1.2.3.4", "hostnames": ["x", "y"]}]
    machine.config(pod(hostAliases=aliases, subdomain="sub"), ips=("10.1.2.3", "fd00::3"))
    assert machine.files.read(f"{POD_DIR}/etc-hosts").decode() == (
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost "
        "ip6-localhost ip6-loopback\n"
        "fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
        "10.1.2.3\tweb.sub.ns.svc.cluster.local\tweb\nfd00::3\tweb.sub.ns.svc.cluster.local\tweb\n"
        "\n# Entries added by HostAliases.\n1.2.3.4\tx\ty\n"
    )
    machine.files.write("/etc/hosts", b"127.0.0.1 node\n")
    machine.config(pod(hostNetwork=True), ips=())
    assert (
        machine.files.read(f"{POD_DIR}/etc-hosts")
        == b"# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"
    )


def test_a_hosts_file_of_the_containers_own() -> None:
    config = Machine().config(pod({"volumeMounts": [mount("v", "/etc/hosts")]}, volumes=[EMPTY]))
    assert [m.container_path for m in config.mounts] == ["/etc/hosts"]
    assert config.mounts[0].host_path == f"{POD_DIR}/volumes/kubernetes.io~empty-dir/v"


@pytest.mark.parametrize(
    ("more", "host", "read_only", "propagation"),
    [
        ({}, "v", False, "private"),
        ({"readOnly": True, "mountPropagation": "HostToContainer"}, "v", True, "hostToContainer"),
        ({"mountPropagation": "Bidirectional"}, "v", False, "bidirectional"),
        ({"subPath": "a/b"}, "v/a/b", False, "private"),
        ({"subPathExpr": "logs/$(NAME)"}, "v/logs/n1", False, "private"),
    ],
)
def test_mounts(more: dict[str, Any], host: str, read_only: bool, propagation: str) -> None:
    machine = Machine()
    config = machine.config(
        pod(
            {
                "volumeMounts": [mount("v", "data", **more)],
                "env": [{"name": "NAME", "value": "n1"}],
            },
            volumes=[EMPTY],
        )
    )
    path = f"{POD_DIR}/volumes/kubernetes.io~empty-dir/{host}"
    volume = f"{POD_DIR}/volumes/kubernetes.io~empty-dir/v" if host != "v" else ""
    assert config.mounts[0] == Mount("/data", path, read_only, propagation, volume_path=volume)  # type: ignore[arg-type]
    assert machine.files.stat(path).mode == 0o777


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"subPath": "/a"}, "error SubPath `/a` must not be an absolute path"),
        ({"subPath": "a/../b"}, "unable to provision SubPath `a/../b`: must not contain '..'"),
        ({"subPathExpr": "$(NONE)"}, "missing value for NONE"),
        ({"subPath": "out"}, 'failed to prepare subPath for volumeMount "v" of container "c"'),
        (
            {"subPath": "out/new"},
            'failed to create subPath directory for volumeMount "v" of container "c"',
        ),
        (
            {"subPath": "file/new"},
            'failed to create subPath directory for volumeMount "v" of container "c"',
        ),
    ],
)
def test_sub_paths_that_cannot_be(more: dict[str, Any], message: str) -> None:
    machine = Machine()
    wanted = pod({"volumeMounts": [mount("v", **more)]}, volumes=[EMPTY])
    machine.run(machine.volumes.mount(wanted))
    volume = f"{POD_DIR}/volumes/kubernetes.io~empty-dir/v"
    machine.files.symlink("/etc", f"{volume}/out")
    machine.files.write(f"{volume}/file", b"")
    with pytest.raises(ContainerFailure) as caught:
        machine.config(wanted)
    assert (caught.value.reason, str(caught.value)) == ("CreateContainerConfigError", message)


def test_a_volume_that_is_not_there() -> None:
    with pytest.raises(
        ContainerFailure, match=r'^cannot find volume "v" to mount into container "c"$'
    ):
        Machine().config(pod({"volumeMounts": [mount("v")]}))


@pytest.mark.parametrize(
    ("requested", "recorded"),
    [
        ("/data", "c:/data"),
        ("data", "c:\\data"),
        ("C:\\data", "C:\\data"),
        ("C:/data", "C:/data"),
        ("\\\\.\\pipe\\docker_engine", "\\\\.\\pipe\\docker_engine"),
        ("\\data", "c:\\data"),
    ],
)
def test_mount_paths_of_windows(requested: str, recorded: str) -> None:
    config = Machine("windows").config(
        pod({"volumeMounts": [mount("v", requested)]}, volumes=[EMPTY])
    )
    assert config.mounts[0].container_path == recorded
    assert config.mounts[0].host_path == f"{WINDOWS_DIR}\\volumes\\kubernetes.io~empty-dir\\v"


@pytest.mark.parametrize(
    ("runtime", "version", "paths"),
    [
        ("docker", "v1.20.15", []),
        ("containerd", "v1.20.15", ["c:/dev/termination-log"]),
        (
            "containerd",
            "v1.21.0",
            ["C:\\Windows\\System32\\drivers\\etc\\hosts", "c:/dev/termination-log"],
        ),
    ],
)
def test_single_files_on_windows(runtime: str, version: str, paths: list[str]) -> None:
    machine = Machine("windows", runtime=runtime, version=version)
    config = machine.config(pod({"terminationMessagePath": "/dev/termination-log"}))
    assert [m.container_path for m in config.mounts] == paths
    assert all(m.host_path.startswith(WINDOWS_DIR + "\\") for m in config.mounts)
    assert config.log_path == "c\\0.log"


def test_propagation_is_ignored_on_windows() -> None:
    wanted = pod({"volumeMounts": [mount("v", mountPropagation="Bidirectional")]}, volumes=[EMPTY])
    assert Machine("windows").config(wanted).mounts[0].propagation == "private"


def test_an_ephemeral_container_looks_at_another() -> None:
    machine = Machine()
    wanted = pod({"targetContainerName": "app"})
    with pytest.raises(ContainerFailure, match=r"^unable to find target container app$"):
        machine.config(wanted)
    machine.runtime.known = [Container("id1", "s", "app", 0, "running", "", "", {}, {}, 0.0)]
    linux = machine.config(wanted).linux
    assert (linux.pid_namespace, linux.target_id) == ("target", "id1")


def test_a_runtime_class() -> None:
    machine = Machine()
    assert machine.run(machine.builder.runtime_handler(pod())) == ""
    with pytest.raises(ContainerFailure, match=r'^runtimeclass.node.k8s.io "gone" not found$'):
        machine.run(machine.builder.runtime_handler(pod(runtimeClassName="gone")))
    machine.api.put("runtimeclasses", "hv", {"handler": "runhcs-wcow-hypervisor"}, namespace="")
    assert (
        machine.run(machine.builder.runtime_handler(pod(runtimeClassName="hv")))
        == "runhcs-wcow-hypervisor"
    )
