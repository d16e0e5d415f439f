"""Volumes of pods on Windows: what can be mounted, where it is stored on the node, what fails and
with which message.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kubelet.conftest import Node

from transom.client.resources import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
)
from transom.machinery.releases import Release
from transom.machines.files import FileTree

from .windows_pods import (
    NANO,
    at,
    config,
    container,
    flavours,
    printed,
    recorded,
    run,
    running,
    state,
    summary,
    until,
    volume,
    waiting,
    warnings,
)

EMPTY = [{"name": "v", "emptyDir": {}}]
DIRECTORY = 'invalid mount config for type "bind": source path must be a directory'


async def keys(node: Node) -> None:
    await node.client.create(
        CONFIG_MAPS,
        "default",
        {"metadata": {"name": "m"}, "data": {"a.txt": "apple", "b.txt": "b"}},
    )
    await node.client.create(
        SECRETS, "default", {"metadata": {"name": "s"}, "stringData": {"word": "sesame"}}
    )


# ---- files of a container ----


@pytest.mark.windows("LSTO-01", "LSTO-02", "LSTO-05", "LSTO-12", "WIN-STO-004")
@flavours
async def test_files_of_a_container_are_its_own_layer(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create("p", containers=[container(), container(name="d")])
        pod = await running(node)
        node.host.files.write("C:\\host.txt", b"of the node")
        await run(node, pod, "cmd", "/c", "echo mine> C:\\mine.txt& mkdir C:\\k")
        assert await printed(node, pod, "type C:\\mine.txt") == "mine"
        assert (
            await printed(node, pod, "type C:\\host.txt")
            == "The system cannot find the file specified."
        )
        assert (
            await printed(node, pod, "type C:\\mine.txt", "d")
            == "The system cannot find the file specified."
        )
        assert not node.host.files.exists("C:\\mine.txt")  # nothing is projected to the node


@pytest.mark.windows("LSTO-06", "LSTO-14", "API-25", "WIN-SEC-009")
@flavours
async def test_a_read_only_root_filesystem_is_not_possible(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p", containers=[container(securityContext={"readOnlyRootFilesystem": True})]
        )
        pod = await running(node)
        assert await printed(node, pod, "echo yes> C:\\x.txt & type C:\\x.txt") == "yes"
        assert not await warnings(node)


@pytest.mark.windows("LSTO-07", "LSTO-14")
@flavours
@pytest.mark.parametrize(
    "source", [{"emptyDir": {}}, {"hostPath": {"path": "C:\\tmp", "type": "DirectoryOrCreate"}}]
)
async def test_read_only_volumes(node: Any, flavour: str, source: Any) -> None:
    async with node("windows", flavour=flavour) as node:
        await node.create(
            "p",
            volumes=[{"name": "v", **source}],
            containers=[
                container(volumeMounts=at("C:\\test-volume", readOnly=True)),
                container(name="rw", volumeMounts=at("C:\\test-volume")),
            ],
        )
        pod = await running(node)
        write = "echo windows-volume-test > C:\\test-volume\\file.txt"
        failed = await run(node, pod, "cmd", "/c", write)
        assert (failed.stderr.strip(), failed.exit_code) == (b"Access is denied.", 1)
        assert (await run(node, pod, "cmd", "/c", write, name="rw")).exit_code == 0
        assert await printed(node, pod, "type C:\\test-volume\\file.txt") == "windows-volume-test"


@pytest.mark.windows("API-07", "WIN-CTR-004")
@flavours
async def test_paths_with_either_slash(node: Any, flavour: str) -> None:
    paths = {"/a": "C:\\a", "b": "C:\\b", "C:\\c": "C:\\c", "C:/d": "C:\\d", "\\e\\f": "C:\\e\\f"}

    async with node("windows", flavour=flavour) as node:
        mounts = [mount for requested in paths for mount in at(requested)]
        await node.create("p", volumes=EMPTY, containers=[container(volumeMounts=mounts)])
        pod = await running(node)
        node.host.files.write(volume(pod, "empty-dir", "v") + "\\x", b"here")
        for seen in paths.values():
            assert await printed(node, pod, f"type {seen}\\x") == "here"


# ---- what can be mounted ----


@pytest.mark.windows("LSTO-03", "LSTO-04", "FEAT-02", "WIN-STO-002")
@flavours
async def test_single_files_are_mounted_by_containerd_only(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await keys(node)
        await node.create(
            "p",
            volumes=[{"name": "v", "configMap": {"name": "m"}}],
            containers=[container(volumeMounts=at("C:\\app\\a.txt", subPath="a.txt"))],
        )
        if flavour == "containerd":
            pod = await running(node)
            assert await printed(node, pod, "type C:\\app\\a.txt") == "apple"
            return
        text = await waiting(node, "CreateContainerError")
        pod = await node.pod("p")
        source = volume(pod, "configmap", "v") + "\\a.txt"
        assert text == (
            "Error response from daemon: invalid volume specification: "
            f"'{source}:C:\\app\\a.txt:ro': {DIRECTORY}"
        )
        assert f"Error: {text}" in await recorded(node, "Failed")


@pytest.mark.windows("LSTO-03", "WIN-STO-002")
@flavours
async def test_a_file_of_the_node(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        node.host.files.mkdir("C:\\conf")
        node.host.files.write("C:\\conf\\x.ini", b"x=1")
        await node.create(
            "p",
            volumes=[{"name": "v", "hostPath": {"path": "C:\\conf\\x.ini", "type": "File"}}],
            containers=[container(volumeMounts=at("C:\\x.ini", readOnly=True))],
        )
        if flavour == "containerd":
            assert await printed(node, await running(node), "type C:\\x.ini") == "x=1"
        else:
            assert f"'C:\\conf\\x.ini:C:\\x.ini:ro': {DIRECTORY}" in await waiting(
                node, "CreateContainerError"
            )


@pytest.mark.windows("LSTO-11", "WIN-STO-003")
@flavours
async def test_the_file_of_a_secret_by_sub_path(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        await keys(node)
        await node.create(
            "p",
            volumes=[{"name": "v", "secret": {"secretName": "s"}}],
            containers=[container(volumeMounts=at("C:\\word.txt", subPath="word"))],
        )
        if flavour == "containerd":
            assert await printed(node, await running(node), "type C:\\word.txt") == "sesame"
        else:
            assert DIRECTORY in await waiting(node, "CreateContainerError")


@pytest.mark.windows("LSTO-10", "WIN-STO-001")
@flavours
async def test_directories_by_sub_path_do_work(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        env = [{"name": "WHO", "value": "me"}]
        for name, mount, path in (
            ("p", {"subPath": "logs\\app"}, "\\logs\\app\\x"),
            ("q", {"subPathExpr": "of/$(WHO)"}, "\\of\\me\\x"),
        ):
            mounts = [{"name": "v", "mountPath": "C:\\mine", **mount}]
            made = container(env=env, volumeMounts=mounts)
            await node.create(name, volumes=EMPTY, containers=[made])
            pod = await running(node, name)
            await run(node, pod, "cmd", "/c", "echo one> C:\\mine\\x")
            top = volume(pod, "empty-dir", "v")
            assert node.host.files.read(top + path).strip() == b"one"
            await node.client.delete(PODS, "default", name)
            await node.settle(60)
            assert await node.missing(name) and not node.host.files.exists(top)


@pytest.mark.windows("LSTO-10", "WIN-STO-001")
@pytest.mark.parametrize(("minor", "stuck"), [(20, True), (36, True), (37, False)])
async def test_several_sub_paths_keep_a_pod_in_terminating_before_1_37(
    node: Any, minor: int, stuck: bool
) -> None:
    async with node("windows", flavour="containerd", release=Release(1, minor)) as node:
        mounts = [
            {"name": "v", "mountPath": f"C:\\{path}", "subPath": path} for path in ("one", "two")
        ]
        await node.create("p", volumes=EMPTY, containers=[container(volumeMounts=mounts)])
        top = volume(await running(node), "empty-dir", "v")
        await node.client.delete(PODS, "default", "p")
        await node.settle(300)
        assert await node.missing("p") is not stuck
        assert node.host.files.exists(top) is stuck
        if stuck:
            await node.stop_kubelet()  # which closes the directories
            await node.start_kubelet()
            await node.settle(60)
            assert await node.missing("p") and not node.host.files.exists(top)


@pytest.mark.windows("WIN-STO-019")
async def test_back_steps_between_backslashes_are_found_by_the_kubelet(node: Any) -> None:
    async with node("windows") as node:
        bad = {"name": "v", "hostPath": {"path": "C:\\a\\..\\b"}}
        await node.create("p", volumes=[bad], containers=[container(volumeMounts=at("C:\\x"))])
        await node.create(
            "q", volumes=EMPTY, containers=[container(volumeMounts=at("C:\\x", subPath="a\\..\\b"))]
        )
        await node.settle(5)
        text = (
            'MountVolume.SetUp failed for volume "v" : invalid HostPath `C:\\a\\..\\b`: must '
            "not contain '..'"
        )
        assert text in await recorded(node, "FailedMount")
        reports_it = await waiting(node, "CreateContainerConfigError", "q")
        assert reports_it == "unable to provision SubPath `a\\..\\b`: must not contain '..'"


@pytest.mark.windows("API-44")
@flavours
async def test_host_path(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        node.host.files.mkdir("C:\\data\\x")
        node.host.files.write("C:\\data\\x\\f", b"of the node")
        await node.create(
            "p",
            volumes=[{"name": "v", "hostPath": {"path": "/data/x", "type": "Directory"}}],
            containers=[container(volumeMounts=at("C:\\d"))],
        )
        pod = await running(node)
        assert config(node, pod).mounts[0].host_path == "c:/data/x"
        assert await printed(node, pod, "type C:\\d\\f & echo back> C:\\d\\g") == "of the node"
        assert node.host.files.read("C:\\data\\x\\g").strip() == b"back"


@pytest.mark.windows("API-44", "POD-16", "WIN-STO-017", "WIN-STO-018")
@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        (
            "/var/run/docker.sock",
            "Socket",
            "hostPath type check failed: c:/var/run/docker.sock is not a socket file",
        ),
        ("/etc/ssl", "Directory", "hostPath type check failed: c:/etc/ssl is not a directory"),
        ("/dev/sda", "BlockDevice", "hostPath type check failed: c:/dev/sda is not a block device"),
        (
            "/dev/tty",
            "CharDevice",
            "hostPath type check failed: c:/dev/tty is not a character device",
        ),
        (
            "\\\\.\\pipe\\docker_engine",
            "Socket",
            "hostPath type check failed: \\\\.\\pipe\\docker_engine is not a socket file",
        ),
    ],
)
async def test_linux_paths_do_not_exist(node: Any, path: str, kind: str, text: str) -> None:
    async with node("windows") as node:
        source = {"name": "v", "hostPath": {"path": path, "type": kind}}
        await node.create("p", volumes=[source], containers=[container(volumeMounts=at("C:\\x"))])
        await node.settle(3)
        assert (await recorded(node, "FailedMount"))[
            0
        ] == f'MountVolume.SetUp failed for volume "v" : {text}'
        assert state(await node.pod("p")) == {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.windows("API-47", "WIN-STO-005")
@flavours
@pytest.mark.parametrize("requested", ["HostToContainer", "Bidirectional"])
async def test_mount_propagation_has_no_effect(node: Any, flavour: str, requested: str) -> None:
    async with node("windows", flavour=flavour) as node:
        context = {"privileged": True} if requested == "Bidirectional" else {}
        await node.create(
            "p",
            volumes=EMPTY,
            containers=[
                container(
                    securityContext=context, volumeMounts=at("C:\\x", mountPropagation=requested)
                )
            ],
        )
        pod = await running(node)
        assert config(node, pod).mounts[0].propagation == "private" and not await warnings(node)


# ---- what lies where ----


@pytest.mark.windows("LSTO-16", "API-45", "API-46", "WIN-STO-009")
@flavours
@pytest.mark.parametrize("medium", ["", "Memory"])
async def test_an_empty_dir_is_on_disk_with_any_medium(
    node: Any, flavour: str, medium: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        limits = {"limits": {"memory": "64Mi"}}
        await node.create(
            "p",
            volumes=[{"name": "v", "emptyDir": {"medium": medium}}],
            containers=[container(image=NANO, resources=limits, volumeMounts=at("C:\\v"))],
        )
        pod = await running(node)
        before, memory = (
            node.host.disk().used,
            summary(node)["pods"][0]["memory"]["workingSetBytes"],
        )
        big = volume(pod, "empty-dir", "v") + "\\big"
        node.host.files.allocate(big, 100 << 20)  # more than the memory limit
        assert node.host.disk().used - before == 100 << 20
        [row] = summary(node)["pods"]
        assert row["memory"]["workingSetBytes"] == memory and "running" in state(
            await node.pod("p")
        )
        [shown] = row["volume"]
        assert (
            shown["usedBytes"] == 100 << 20 and shown["capacityBytes"] == node.host.disk().capacity
        )
        node.host.reboot()
        assert node.host.files.exists(volume(pod, "empty-dir", "v") + "\\big")  # a disk survives it


@pytest.mark.windows("API-45")
async def test_the_size_limit_of_an_empty_dir_evicts(node: Any) -> None:
    async with node("windows") as node:
        source = {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
        await node.create("p", volumes=[source], containers=[container(volumeMounts=at("C:\\v"))])
        pod = await running(node)
        node.host.files.write(volume(pod, "empty-dir", "v") + "\\big", b"x" * (2 << 20))
        pod = await until(node, "p", lambda pod: pod["status"]["phase"] == "Failed", 60)
        assert pod["status"]["message"] == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '


@pytest.mark.windows("FEAT-05", "WIN-RES-005")
async def test_an_empty_dir_in_huge_pages_cannot_be_mounted(node: Any) -> None:
    async with node("windows") as node:
        await node.create(
            "p",
            volumes=[{"name": "v", "emptyDir": {"medium": "HugePages"}}],
            containers=[container(volumeMounts=at("C:\\v"))],
        )
        await node.settle(3)
        assert (
            'MountVolume.SetUp failed for volume "v" : ' in (await recorded(node, "FailedMount"))[0]
        )


@pytest.mark.windows("SEC-01", "WIN-SEC-017", "API-42")
@flavours
async def test_secrets_are_written_in_clear_text_on_the_nodes_volume(
    node: Any, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    from transom.kubelet import os_windows_pods

    os_windows_pods._warn_of_clear_text.cache_clear()

    async with node("windows", flavour=flavour) as node:
        await keys(node)
        await node.create(
            "p",
            volumes=[{"name": "v", "secret": {"secretName": "s"}}],
            containers=[container(volumeMounts=at("C:\\secret", readOnly=True))],
        )
        pod = await running(node)
        assert node.host.files.read(volume(pod, "secret", "v") + "\\word") == b"sesame"
        node.host.reboot()
        assert node.host.files.read(volume(pod, "secret", "v") + "\\word") == b"sesame"
    assert "Secrets are written in clear text on the node's volume" in caplog.text


@pytest.mark.windows("WIN-STO-020", "API-43")
async def test_an_update_removes_and_recreates_the_link(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node("windows") as node:
        await keys(node)
        await node.create(
            "p",
            volumes=[{"name": "v", "configMap": {"name": "m"}}],
            containers=[container(volumeMounts=at("C:\\m"))],
        )
        pod = await running(node)
        top = volume(pod, "configmap", "v")
        gone: list[str] = []
        remove = FileTree.remove

        def watched(self: FileTree, path: str, **how: Any) -> None:
            remove(self, path, **how)
            gone.append(path)

        monkeypatch.setattr(FileTree, "remove", watched)
        before = node.host.files.readlink(top + "\\..data")
        await node.client.patch(CONFIG_MAPS, "default", "m", {"data": {"a.txt": "pear"}})
        await node.settle(130)
        assert top + "\\..data" in gone and node.host.files.readlink(top + "\\..data") != before
        assert await printed(node, pod, "type C:\\m\\a.txt") == "pear"


@pytest.mark.windows("LSTO-13", "LSTO-17", "WIN-STO-006", "WIN-STO-021", "API-06")
@flavours
async def test_modes_of_files_are_kept_as_the_read_only_attribute_alone(
    node: Any, flavour: str
) -> None:
    async with node("windows", flavour=flavour) as node:
        await keys(node)
        items = [
            {"key": "a.txt", "path": "a.txt"},
            {"key": "b.txt", "path": "b.txt", "mode": 0o400},
        ]
        await node.create(
            "p",
            volumes=[
                {"name": "v", "configMap": {"name": "m", "defaultMode": 0o600, "items": items}}
            ],
            containers=[container(volumeMounts=at("C:\\m"))],
        )
        pod = await running(node)
        top = volume(pod, "configmap", "v")
        modes = {
            name: node.host.files.stat(f"{top}\\{name}").mode & 0o777 for name in ("a.txt", "b.txt")
        }
        assert {name: bool(mode & 0o200) for name, mode in modes.items()} == {
            "a.txt": True,
            "b.txt": False,
        }
        assert {mode & 0o444 for mode in modes.values()} == {0o444}  # every user may read
        status = node.host.files.stat(top + "\\a.txt")
        assert (status.uid, status.gid) == (0, 0)


@pytest.mark.windows("LSTO-08", "LSTO-09", "LSTO-17", "WIN-STO-007")
@flavours
async def test_fs_group_and_its_policy_have_no_effect(node: Any, flavour: str) -> None:
    async with node("windows", flavour=flavour) as node:
        context = {
            "fsGroup": 2000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "supplementalGroups": [3000],
        }
        await node.create(
            "p",
            securityContext=context,
            volumes=EMPTY,
            containers=[container(volumeMounts=at("C:\\v"), image=NANO)],
        )
        pod = await running(node)
        status = node.host.files.stat(volume(pod, "empty-dir", "v"))
        assert (status.uid, status.gid) == (0, 0)
        # ContainerUser may write there
        assert await printed(node, pod, "echo mine> C:\\v\\x & type C:\\v\\x") == "mine"
        assert not await warnings(node)
