import asyncio
from base64 import b64encode
from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, mount, pod

from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes import nested
from transom.machines.smallfiles import MOST_NAMES

BOTH = pytest.mark.parametrize("system", ["linux", "windows"])


def volume(machine: Machine, plugin: str, name: str, *rest: str) -> str:
    return machine.env.os.join(
        machine.env.config.root_dir, "pods", UID, "volumes", f"kubernetes.io~{plugin}", name, *rest
    )


def with_volumes(*volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    mounts = [mount(v["name"], f"/m/{v['name']}") for v in volumes]
    return pod({"volumeMounts": mounts}, volumes=volumes, **spec)


def secret(name: str = "tok", **more: Any) -> dict[str, Any]:
    return {"name": "s", "secret": {"secretName": name, "defaultMode": 0o644, **more}}


def config_map(**more: Any) -> dict[str, Any]:
    return {"name": "c", "configMap": {"name": "conf", "defaultMode": 0o644, **more}}


def store(machine: Machine) -> None:
    machine.api.put(
        "secrets",
        "tok",
        {
            "type": "kubernetes.io/service-account-token",
            "data": {"token": b64encode(b"T").decode(), "ca.crt": b64encode(b"CA").decode()},
        },
    )
    machine.api.put(
        "configmaps",
        "conf",
        {"data": {"a": "1", "b": "2"}, "binaryData": {"bin": b64encode(b"\xff").decode()}},
    )


@BOTH
def test_files_behind_a_link(system: str) -> None:
    machine = Machine(system)
    store(machine)
    machine.run(machine.volumes.mount(with_volumes(secret(), config_map())))
    assert machine.files.read(volume(machine, "secret", "s", "ca.crt")) == b"CA"
    assert machine.files.read(volume(machine, "configmap", "c", "bin")) == b"\xff"
    names = machine.files.listdir(volume(machine, "secret", "s"))
    (stamp,) = [name for name in names if name.startswith("..2020_01_02_03_04_05.")]
    assert len(stamp) == len("..2020_01_02_03_04_05.123456789")
    assert sorted(names) == sorted(["..data", stamp, "ca.crt", "token"])
    assert machine.files.readlink(volume(machine, "secret", "s", "..data")) == stamp
    assert machine.files.readlink(volume(machine, "secret", "s", "token")) == machine.env.os.join(
        "..data", "token"
    )
    assert machine.volumes.of(UID)["s"].read_only


@BOTH
def test_an_update_arrives_with_the_next_look(system: str) -> None:
    machine = Machine(system)
    store(machine)
    wanted = with_volumes(config_map())
    machine.run(machine.volumes.mount(wanted))
    before = machine.files.readlink(volume(machine, "configmap", "c", "..data"))
    machine.api.put("configmaps", "conf", {"data": {"a": "new", "z": "9"}})
    machine.clock.advance(60)
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "configmap", "c", "a")) == b"new"
    after = machine.files.readlink(volume(machine, "configmap", "c", "..data"))
    assert sorted(machine.files.listdir(volume(machine, "configmap", "c"))) == sorted(
        ["..data", after, "a", "z"]
    )
    assert after != before
    machine.clock.advance(60)
    machine.run(machine.volumes.mount(wanted))
    # nothing new, nothing written
    assert machine.files.readlink(volume(machine, "configmap", "c", "..data")) == after


def test_an_annotated_pod_is_looked_at_in_earnest() -> None:
    machine = Machine()
    store(machine)
    wanted = with_volumes(config_map())
    machine.run(machine.volumes.mount(wanted))
    machine.api.put("configmaps", "conf", {"data": {"a": "new"}})
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "configmap", "c", "a")) != b"new"
    machine.run(
        machine.volumes.mount(
            {**wanted, "metadata": {**wanted["metadata"], "annotations": {"look": "again"}}}
        )
    )
    assert machine.files.read(volume(machine, "configmap", "c", "a")) == b"new"


def test_pods_of_a_node_share_the_answers_but_a_new_pod_sees_what_is_new() -> None:
    machine = Machine()
    store(machine)
    first, second = with_volumes(secret(), config_map()), with_volumes(secret(), config_map())
    second["metadata"] = {**second["metadata"], "uid": "other"}
    for _ in range(3):
        machine.run(machine.volumes.mount(first))
    assert machine.api.requested == ["secrets/tok", "configmaps/conf"]
    machine.api.put("configmaps", "conf", {"data": {"a": "new"}})
    machine.run(machine.volumes.mount(second))
    assert machine.api.requested[2:] == ["configmaps/conf"]
    path = machine.volumes.of("other")["c"].path
    assert machine.files.read(f"{path}/a") == b"new"
    assert machine.volumes.of("other")["s"].payload is machine.volumes.of(UID)["s"].payload


def test_immutable_objects_are_asked_for_once() -> None:
    machine = Machine()
    machine.api.put("configmaps", "conf", {"data": {"a": "1"}, "immutable": True})
    wanted = with_volumes(config_map())
    for _ in range(3):
        machine.run(machine.volumes.mount(wanted))
        machine.clock.advance(70)
    assert machine.api.requested == ["configmaps/conf"]


def test_items_modes_and_the_pods_group() -> None:
    machine = Machine()
    store(machine)
    items = [{"key": "a", "path": "deep/er/a"}, {"key": "b", "path": "b", "mode": 0o400}]
    machine.run(
        machine.volumes.mount(
            with_volumes(config_map(items=items), securityContext={"fsGroup": 2000})
        )
    )
    deep = machine.files.stat(volume(machine, "configmap", "c", "deep", "er", "a"))
    assert (deep.gid, deep.mode) == (2000, 0o644)
    assert machine.files.stat(volume(machine, "configmap", "c", "b")).mode == 0o440
    top = machine.files.stat(volume(machine, "configmap", "c"))
    assert (top.gid, top.mode & 0o2770) == (2000, 0o2770)
    assert machine.files.readlink(volume(machine, "configmap", "c", "deep")) == "..data/deep"
    assert "a" not in machine.files.listdir(volume(machine, "configmap", "c"))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (secret("y"), 'MountVolume.SetUp failed for volume "s" : secret "y" not found'),
        (
            secret(items=[{"key": "no", "path": "x"}]),
            'MountVolume.SetUp failed for volume "s" : references non-existent secret key: no',
        ),
        (
            config_map(items=[{"key": "no", "path": "x"}]),
            (
                'MountVolume.SetUp failed for volume "c" : configmap references non-existent '
                "config key: no"
            ),
        ),
        (
            {"name": "h", "hostPath": {"path": "/etc/hostname", "type": "Directory"}},
            (
                'MountVolume.SetUp failed for volume "h" : hostPath type check failed: '
                "/etc/hostname is not a directory"
            ),
        ),
        (
            {"name": "h", "hostPath": {"path": "/none", "type": "Socket"}},
            (
                'MountVolume.SetUp failed for volume "h" : hostPath type check failed: /none is '
                "not a socket file"
            ),
        ),
        (
            {"name": "h", "hostPath": {"path": "/a/../b"}},
            (
                'MountVolume.SetUp failed for volume "h" : invalid HostPath `/a/../b`: must '
                "not contain '..'"
            ),
        ),
        (
            {"name": "e", "emptyDir": {"medium": "HugePages"}},
            'MountVolume.SetUp failed for volume "e" : medium HugePages: hugePages storage '
            "requested, but there is no resource "
            "request for huge pages",
        ),
        (
            {
                "name": "p",
                "projected": {
                    "defaultMode": 0o644,
                    "sources": [
                        {"secret": {"name": "x"}},
                        {"configMap": {"name": "y"}},
                        {"serviceAccountToken": {"path": "t"}},
                    ],
                },
            },
            'MountVolume.SetUp failed for volume "p" : [secret "x" not found, configmap "y" '
            "not found, failed to fetch token: "
            'serviceaccounts "default" not found]',
        ),
        (
            {"name": "i", "csi": {"driver": "d"}},
            'MountVolume.NewMounter initialization failed for volume "i" : volume mode '
            '"Ephemeral" not supported by driver d (no '
            "CSIDriver object)",
        ),
    ],
)
def test_failures_are_reported(source: dict[str, Any], text: str) -> None:
    machine = Machine()
    store(machine)
    with pytest.raises(TimeoutError):
        machine.run(machine.volumes.mount(with_volumes(source)))
    assert machine.events.recorded == [("FailedMount", text)]


def test_it_is_tried_again_and_given_up_after_two_minutes_and_three_seconds() -> None:
    machine = Machine()
    store(machine)
    wanted = with_volumes(secret("late"), config_map())
    with pytest.raises(VolumeFailure) as caught:
        machine.run(machine.volumes.mount(wanted), seconds=124)
    assert (
        str(caught.value)
        == "unmounted volumes=[s], unattached volumes=[s c]: timed out waiting for the condition"
    )
    assert len(machine.events.recorded) == 8  # at 0, 0.5, 1.5, 3.5 ... 63.5 seconds
    machine.api.put("secrets", "late", {"data": {}})
    machine.run(machine.volumes.mount(wanted), seconds=10)
    assert set(machine.volumes.of(UID)) == {"s", "c"}


def test_optional_objects() -> None:
    machine = Machine()
    wanted = with_volumes(secret("late", optional=True))
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.listdir(volume(machine, "secret", "s"))[0].startswith("..")
    machine.api.put("secrets", "late", {"data": {"k": "eA=="}})
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "secret", "s", "k")) == b"x"


def test_a_deleted_secret_stays_in_running_pods_and_is_reported() -> None:
    machine = Machine()
    store(machine)
    wanted = with_volumes(secret())
    machine.run(machine.volumes.mount(wanted))
    machine.api.objects.clear()
    machine.clock.advance(70)
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "secret", "s", "token")) == b"T"
    assert machine.events.recorded == [
        ("FailedMount", 'MountVolume.SetUp failed for volume "s" : secret "tok" not found')
    ]


def test_what_a_pod_knows_of_itself() -> None:
    machine = Machine()
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"},
        },
    ]
    wanted = with_volumes({"name": "d", "downwardAPI": {"defaultMode": 0o644, "items": items}})
    wanted["metadata"]["labels"] = {"b": 'x"y', "a": "1"}
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "downward-api", "d", "labels")) == b'a="1"\nb="x\\"y"'
    assert machine.files.read(volume(machine, "downward-api", "d", "cpu")) == b"3900"
    changed = {**wanted, "metadata": {**wanted["metadata"], "labels": {"a": "2"}}}
    machine.run(machine.volumes.mount(changed))
    assert machine.files.read(volume(machine, "downward-api", "d", "labels")) == b'a="2"'


def token_volume(seconds: int) -> dict[str, Any]:
    return {
        "name": "p",
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {
                    "serviceAccountToken": {
                        "path": "token",
                        "audience": "vault",
                        "expirationSeconds": seconds,
                    }
                },
                {"configMap": {"name": "conf", "items": [{"key": "a", "path": "ca"}]}},
            ],
        },
    }


@pytest.mark.parametrize(
    ("seconds", "kept", "renewed"), [(3600, 2800, 2890), (7 * 86400, 86000, 86401)]
)
def test_tokens_are_renewed_in_time(seconds: int, kept: float, renewed: float) -> None:
    machine = Machine()
    store(machine)
    machine.api.put("serviceaccounts", "default", {})
    wanted = with_volumes(token_volume(seconds))
    machine.run(machine.volumes.mount(wanted))
    spec = machine.api.tokens[0]["spec"]
    assert spec == {
        "audiences": ["vault"],
        "expirationSeconds": seconds,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": UID},
    }
    machine.clock.advance(kept)
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "projected", "p", "token")) == b"token-1"
    machine.clock.advance(renewed - kept)
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(volume(machine, "projected", "p", "token")) == b"token-2"
    assert machine.files.read(volume(machine, "projected", "p", "ca")) == b"1"


def test_a_token_belongs_to_the_containers_user() -> None:
    machine = Machine()
    store(machine)
    machine.api.put("serviceaccounts", "default", {})
    machine.run(
        machine.volumes.mount(with_volumes(token_volume(3600), securityContext={"runAsUser": 1000}))
    )
    stat = machine.files.stat(volume(machine, "projected", "p", "token"))
    assert (stat.uid, stat.mode) == (1000, 0o600)


def test_a_token_for_a_user_id_fails_on_windows() -> None:
    machine = Machine("windows", version="v1.30.14")
    store(machine)
    machine.api.put("serviceaccounts", "default", {})
    with pytest.raises(TimeoutError):
        machine.run(
            machine.volumes.mount(
                with_volumes(token_volume(3600), securityContext={"runAsUser": 1000})
            )
        )
    ((_, text),) = machine.events.recorded
    assert text.startswith(
        'MountVolume.SetUp failed for volume "p" : chown c:\\var\\lib\\kubelet\\pods\\'
    )
    assert text.endswith("\\token: not supported by windows")


def test_since_1_31_windows_keeps_the_owner_of_a_token() -> None:
    machine = Machine("windows", version="v1.31.0")
    store(machine)
    machine.api.put("serviceaccounts", "default", {})
    machine.run(
        machine.volumes.mount(with_volumes(token_volume(3600), securityContext={"runAsUser": 1000}))
    )
    assert machine.events.recorded == []
    assert machine.files.read(volume(machine, "projected", "p", "token"))


@pytest.mark.parametrize("medium", ["", "Memory"])
@BOTH
def test_an_empty_directory_outlives_containers_and_kubelets(system: str, medium: str) -> None:
    machine = Machine(system)
    wanted = with_volumes({"name": "e", "emptyDir": {"medium": medium} if medium else {}})
    machine.run(machine.volumes.mount(wanted))
    file = volume(machine, "empty-dir", "e", "file")
    if system == "linux":
        assert machine.files.stat(volume(machine, "empty-dir", "e", "")).mode == (
            0o1777 if medium else 0o777
        )
    before = machine.env.host.disk().used
    machine.files.write(file, b"x" * 100_000)
    on_disk = machine.env.host.disk().used - before >= 100_000
    assert on_disk == (medium == "" or system == "windows")
    machine.start()
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.read(file)
    assert machine.volumes.pods() == [UID]
    machine.run(machine.volumes.unmount(UID))
    assert not machine.volumes.mounted(UID) and machine.volumes.pods() == []
    assert not machine.files.exists(file)
    machine.run(machine.volumes.unmount(UID))


def test_a_secret_is_in_memory_on_linux_and_in_clear_text_on_the_disk_of_windows() -> None:
    for system, on_disk in (("linux", False), ("windows", True)):
        machine = Machine(system)
        machine.api.put("secrets", "tok", {"data": {"k": b64encode(b"x" * 50_000).decode()}})
        before = machine.env.host.disk().used
        machine.run(machine.volumes.mount(with_volumes(secret())))
        assert (machine.env.host.disk().used - before >= 50_000) == on_disk


def test_volumes_survive_a_kubelet_and_are_not_written_again() -> None:
    machine = Machine()
    store(machine)
    wanted = with_volumes(secret(), config_map())
    machine.run(machine.volumes.mount(wanted))
    before = machine.files.readlink(volume(machine, "secret", "s", "..data"))
    machine.start()
    assert machine.volumes.mounted(UID)
    machine.run(machine.volumes.mount(wanted))
    assert machine.files.readlink(volume(machine, "secret", "s", "..data")) == before
    machine.run(machine.volumes.unmount(UID))
    assert machine.volumes.pods() == []


@pytest.mark.parametrize(
    ("kind", "made"), [("DirectoryOrCreate", "directory"), ("FileOrCreate", "file")]
)
@BOTH
def test_host_paths_that_are_made(system: str, kind: str, made: str) -> None:
    machine = Machine(system)
    machine.run(
        machine.volumes.mount(
            with_volumes({"name": "h", "hostPath": {"path": "/srv-x", "type": kind}})
        )
    )
    path = "/srv-x" if system == "linux" else "c:/srv-x"
    assert machine.volumes.of(UID)["h"].path == path
    assert machine.files.stat(path).kind == made


def test_named_pipes() -> None:
    machine = Machine("windows")
    pipe = "\\\\.\\pipe\\docker_engine"
    wanted = pod(
        {"volumeMounts": [mount("h", pipe)]}, volumes=[{"name": "h", "hostPath": {"path": pipe}}]
    )
    (found,) = machine.config(wanted).mounts
    assert (found.host_path, found.container_path) == (pipe, pipe)


def test_places_for_mounts_within_a_volume() -> None:
    machine = Machine()
    store(machine)
    wanted = pod(
        {"volumeMounts": [mount("c", "/etc/app"), mount("s", "/etc/app/sub/secret")]},
        volumes=[config_map(), secret()],
    )
    machine.run(machine.volumes.mount(wanted))
    assert (
        machine.files.stat(volume(machine, "configmap", "c", "sub", "secret")).kind == "directory"
    )


def test_the_mounts_of_a_pod_are_sorted_once_for_all_volumes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    store(machine)
    sorted_specs = []
    original = nested.container_mounts

    def counted(spec: Any) -> Any:
        sorted_specs.append(spec)
        return original(spec)

    monkeypatch.setattr(nested, "container_mounts", counted)
    volumes = [{**config_map(), "name": f"c{i}"} for i in range(50)]
    machine.run(machine.volumes.mount(with_volumes(*volumes)))
    assert len(sorted_specs) == 1


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("/a", ["a", "a-b", "a/0", "a/b", "b/c", "x"]),
        ("/a/a", ["0", "b"]),
        ("/a/b/c", []),
        ("/b", []),
        ("/", []),
    ],
)
def test_paths_nested_in_a_mount_point(point: str, expected: list[str]) -> None:
    paths = ["/a", "/a-b", "/a/a", "/a/a-b", "/a/a/0", "/a/a/b", "/a/a/b/c", "/a/b/c", "/a/x", "/b"]
    assert nested.nested_paths(point, paths) == expected


def test_all_volumes_in_memory_are_unmounted_however_many_there_are() -> None:
    machine = Machine()
    store(machine)
    volumes = [{**secret(), "name": f"s{i}"} for i in range(MOST_NAMES + 5)]
    asyncio.run(machine.volumes.mount(with_volumes(*volumes)))
    asyncio.run(machine.volumes.unmount(UID))
    assert not machine.files.exists(volume(machine, "secret", "s0"))


@BOTH
@pytest.mark.parametrize("planted", ["..data", "version", "file"])
def test_links_in_a_volume_lead_to_no_removal_elsewhere(system: str, planted: str) -> None:
    """CVE-2017-1002102: a pod replaces a part of its ConfigMap volume by a link to a directory of
    the node, and the next update of the volume must not remove what is there.
    """
    machine = Machine(system)
    store(machine)
    files, join = machine.files, machine.env.os.join
    top = machine.env.config.root_dir
    files.mkdir(join(top, "precious"))
    files.write(join(top, "precious", "file"), b"of the node")
    wanted = with_volumes(config_map())
    machine.run(machine.volumes.mount(wanted))
    directory = volume(machine, "configmap", "c")
    up = join(*[".."] * 5)  # pods/UID/volumes/plugin/name
    stamp = files.readlink(join(directory, "..data"))
    name = {"..data": "..data", "version": stamp, "file": "a"}[planted]
    files.remove(join(directory, name), recursive=True)
    files.symlink(join(up, "precious"), join(directory, name))
    assert files.exists(join(directory, name, "file"))
    files.write(join(directory, "file"), b"")  # a stale file, for the update to remove
    machine.api.put("configmaps", "conf", {"data": {"a": "changed"}})
    machine.clock.advance(60)
    machine.run(machine.volumes.mount(wanted))
    assert files.read(join(directory, "..data", "a")) == b"changed"
    assert files.read(join(top, "precious", "file")) == b"of the node"
    assert files.listdir(join(top, "precious")) == ["file"]


def test_unused_volumes_are_left_alone() -> None:
    machine = Machine()
    machine.run(machine.volumes.mount(pod(volumes=[secret("none")])))
    assert machine.volumes.of(UID) == {} and machine.api.requested == []
