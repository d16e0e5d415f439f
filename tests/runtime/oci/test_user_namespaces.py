"""Pods with their own user namespaces: root in a container has no privileges on this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.runtime import behaviour
from tests.runtime.behaviour import RuntimeHarness
from tests.runtime.oci.conftest import StartHarness, bench_starter

from transom.machines import mounting
from transom.runtime.api import IdRange, LinuxContainer, LinuxSandbox, Mount, RuntimeFailure
from transom.runtime.native import snapshots
from transom.runtime.native.core import stages_mounts
from transom.runtime.native.records import NativeContainer

SHELL = ("sh", "-c")


@pytest.fixture
def users(tmp_path: Path) -> StartHarness:
    return bench_starter("oci", tmp_path)


async def test_root_is_an_unprivileged_user_of_the_machine(users: StartHarness) -> None:
    async with users() as b:
        sandbox = await b.sandbox()
        look = (
            "id -u; cat /proc/self/uid_map; touch /x; stat -c '%u %a' / /bin/busybox /x /tmp; "
            "grep CapEff /proc/self/status"
        )
        made = await b.run((*SHELL, f"{look}; sleep 1000"), sandbox)
        await b.until(lambda: any("CapEff" in line for line in b.printed(made)))
        printed = b.printed(made)
        pid = b.runtime._core.containers[made].pid
        first = b.runtime._core.sandboxes[sandbox].plan.first_id
        assert printed[:2] == ["0", f"         0 {first:>10}      65536"]
        assert printed[2:6] == ["0 755", "0 755", "0 644", "0 1777"]
        assert os.stat(f"/proc/{pid}").st_uid == first >= 1 << 26
        folder = b.runtime._core.containers[made].folder
        assert (folder / "upper/x").stat().st_uid == first
        other = await b.sandbox("uid-2")
        assert b.runtime._core.sandboxes[other].plan.first_id != first


async def test_volumes_keep_their_owners(users: StartHarness) -> None:
    async with users() as b:
        path, _ = b.volume("data")
        b.host.files.write(f"{path}/mine", b"here\n", 0o600)
        b.host.files.chown(f"{path}/mine", 1000, 50)
        b.host.files.mkdir("/volumes/memory", 0o777)
        b.host.files.mount_tmpfs("/volumes/memory", 1 << 20)
        sandbox = await b.sandbox()
        mounts = (
            Mount("/data", path),
            Mount("/memory", "/volumes/memory"),
            Mount("/data/in/memory", "/volumes/memory"),
            Mount("/sub", f"{path}/sub", volume_path=path, read_only=True),
        )
        look = (
            "stat -c '%u %g' /data/mine; cat /data/mine; echo x > /data/new; echo x > "
            "/memory/new; ls /data/in/memory; "
            "echo hi > /etc/hosts; cat /etc/hosts; echo x > /sub/x; id -u"
        )
        made = await b.run(
            (*SHELL, look), sandbox, mounts=mounts, linux=LinuxContainer(run_as_user=0)
        )
        await b.ended(made)
        assert b.printed(made) == ["1000 50", "here", "new", "hi", "0"]
        assert b.printed(made, "stderr") == ["sh: can't create /sub/x: Read-only file system"]
        for name in (f"{path}/new", "/volumes/memory/new"):
            assert (b.host.files.stat(name).uid, b.host.files.stat(name).gid) == (0, 0)
        own = await b.output(
            (*SHELL, "id -u; id -g; touch /data/own; stat -c '%u %g' /data/own"),
            sandbox,
            mounts=mounts[:1],
            linux=LinuxContainer(run_as_user=1000, run_as_group=2000),
        )
        assert own == ["1000", "2000", "1000 2000"]
        assert (b.host.files.stat(f"{path}/own").uid, b.host.files.stat(f"{path}/own").gid) == (
            1000,
            2000,
        )
        b.host.files.unmount("/volumes/memory")
        assert mounting.mount_points(str(stages_mounts(b.folder / "native"))) == []
        await b.runtime.remove_sandbox(sandbox)
        assert list(stages_mounts(b.folder / "native").iterdir()) == []


async def test_streams_shared_memory_and_network(users: StartHarness) -> None:
    async with users() as b:
        sandbox = await b.sandbox()
        look = (
            "echo out > /dev/stdout; echo err > /dev/stderr; echo x > /dev/shm/x; ping -c1 "
            "127.0.0.1 >/dev/null && echo pong"
        )
        made = await b.run((*SHELL, look), sandbox)
        await b.ended(made)
        assert (b.printed(made), b.printed(made, "stderr")) == (["out", "pong"], ["err"])
        again = await b.run((*SHELL, "cat /dev/shm/x; stat -c %u /dev/shm/x; sleep 1000"), sandbox)
        await b.until(lambda: b.printed(again) == ["x", "0"])
        printed = await b.runtime.exec_sync(again, (*SHELL, "echo in > /dev/stdout; id -u"))
        assert printed.stdout == b"in\n0\n"
        process, received = await b.exec(again, ("sh",), stdin=True, tty=True)
        process.write(b"tty; exit 3\n")
        assert await process.wait() == 3
        assert any(b"/dev/pts/0" in data for _, data in received)


@pytest.mark.parametrize(
    "shared", ["host_network", "host_pid", "host_ipc", "host_users", "privileged"]
)
async def test_containers_that_share_host_namespaces_have_the_users_of_the_node(
    users: StartHarness, shared: str
) -> None:
    async with users() as b:
        sandbox = await b.sandbox(linux=LinuxSandbox(**{shared: True}))
        fields = (
            {"privileged": True}
            if shared == "privileged"
            else {"pid_namespace": "node"}
            if shared == "host_pid"
            else {}
        )
        printed = await b.output(
            ("readlink", "/proc/self/ns/user"), sandbox, linux=LinuxContainer(**fields)
        )  # type: ignore[arg-type]
        assert printed == [os.readlink("/proc/self/ns/user")]


DEMANDED = LinuxSandbox(user_namespace=IdRange(65536, 65536))


async def test_a_pod_that_demands_a_namespace_has_it_on_every_node(tmp_path: Path) -> None:
    if why := behaviour.unavailable("oci"):
        pytest.skip(why)
    async with behaviour.oci(tmp_path, user_namespaces=False) as b:
        look = ("readlink", "/proc/self/ns/user")
        assert await b.output(look) == [host_users()]
        own = await b.sandbox(linux=DEMANDED)
        assert await b.output(look, own) != [host_users()]
        # Containers that would get the users of the node elsewhere, too.
        privileged = LinuxContainer(privileged=True)
        mapped = (*SHELL, "cat /proc/self/uid_map; id -u")
        [mapping, user] = await b.output(mapped, own, linux=privileged)
        assert int(mapping.split()[1]) > 0 and user == "0"
        with pytest.raises(RuntimeFailure, match="cannot set uid to unmapped user"):
            await b.run(("true",), own, linux=LinuxContainer(run_as_user=70000))


async def test_a_machine_that_cannot(users: StartHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unable(*arguments: Any) -> str:
        return "no such thing"

    monkeypatch.setattr(snapshots, "maps_users", unable)

    async with users() as b:
        with pytest.raises(RuntimeFailure, match="doesn't support idmap mounts on this host"):
            await b.sandbox("uid-2", linux=DEMANDED)
        assert (
            "no user namespaces, root in a container is this machine's: no such thing"
            in b.runtime.capabilities()
        )
        assert await b.output(("readlink", "/proc/self/ns/user")) == [
            os.readlink("/proc/self/ns/user")
        ]


@pytest.mark.parametrize(("requested", "level"), [(None, "INFO"), (True, "WARNING")])
def test_a_node_that_asks_for_what_its_machine_cannot_is_warned_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    requested: bool | None,
    level: str,
) -> None:
    if why := behaviour.unavailable("oci"):
        pytest.skip(why)

    async def unable(*arguments: Any) -> str:
        return "no such thing"

    monkeypatch.setattr(snapshots, "maps_users", unable)

    async def main() -> None:
        async with behaviour.oci(tmp_path, user_namespaces=requested):
            pass

    with caplog.at_level("INFO", logger="transom.runtime"):
        uvloop.run(main())
    found = [
        record.levelname
        for record in caplog.records
        if "no user namespaces: no such thing" in record.getMessage()
    ]
    assert found == [level]


async def test_sysctls_that_only_the_machines_users_may_have(users: StartHarness) -> None:
    async with users() as b:
        sandbox = await b.sandbox(
            linux=LinuxSandbox(sysctls={"net.ipv4.ping_group_range": "0 2147483647"})
        )
        look = "cat /proc/sys/net/ipv4/ping_group_range; readlink /proc/self/ns/user"
        printed = await b.output((*SHELL, look), sandbox)
        assert printed == ["0\t2147483647", host_users()]


async def test_a_container_cannot_make_devices_or_change_what_is_not_its_own(
    users: StartHarness,
) -> None:
    async with users() as b:
        path, _ = b.volume("data")
        sandbox = await b.sandbox()
        own = await b.sandbox("uid-2")
        first = await b.run(("sleep", "1000"), own)
        pid = b.runtime._core.containers[first].pid
        attack = (
            f"mknod /data/disk b 254 0; mount -t tmpfs none /tmp; kill -9 {pid}; cat "
            f"/proc/{pid}/environ; "
            "echo 1 > /proc/sys/kernel/shm_rmid_forced; chown 0 /sys/kernel"
        )
        made = await b.run((*SHELL, attack), sandbox, mounts=(Mount("/data", path),))
        assert (await b.ended(made)).exit_code != 0
        assert b.host.files.listdir(path) == []
        assert b.state(first).state == "running"


def host_users() -> str:
    return os.readlink("/proc/self/ns/user")


LOOK = ("readlink", "/proc/self/ns/user")


async def test_a_node_without_user_namespaces(tmp_path: Path) -> None:
    async with bench_starter("oci-host-users", tmp_path)() as b:
        assert await b.output(LOOK) == [host_users()]
        assert not any("user namespaces" in text for text in b.runtime.capabilities())


@pytest.mark.parametrize(
    "fields",
    [
        {"linux": LinuxContainer(privileged=True)},
        {"linux": LinuxContainer(run_as_user=65536)},
        {"linux": LinuxContainer(run_as_group=100000)},
        {"linux": LinuxContainer(supplemental_groups=(1 << 20,))},
        {"devices": ("/dev/disk:/dev/disk:rw",)},
        {"mounts": (Mount("/data", "/volumes/data", propagation="hostToContainer"),)},
        {"mounts": (Mount("/data", "/volumes/foreign"),)},
        {"mounts": (Mount("/data", "/volumes/unmappable"),)},
        {"mounts": (Mount("/data", "/volumes"),)},  # which has another file system in it
        {
            "mounts": (
                Mount("/data", "/volumes/unmappable/inner", volume_path="/volumes/unmappable"),
            )
        },
        {"image": "foreign-files"},
        {"image": "foreign-group"},
        {"image": "foreign-name"},
        {"image": "foreign-number"},
    ],
)
async def test_containers_that_cannot_have_one_share_the_pod_with_those_that_can(
    users: StartHarness, tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with users() as b:
        b.volume("data")
        path, _ = b.volume("foreign")
        b.host.files.chown(path, 70000, 0)
        path, _ = b.volume("unmappable")
        # no idmapped mounts, as NFS
        mounting.mount_filesystem("none", b.host.files.real(path), "ramfs")
        b.host.files.mkdir(f"{path}/inner", 0o777)
        # Mounted, because a container can create the node of a device but cannot mount it.
        os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 200))
        b.host.files.write("/dev/disk", b"")
        disk = b.host.files.real("/dev/disk")
        mounting.mount_filesystem(str(tmp_path / "disk"), disk, "", mounting.BIND)
        try:
            _foreign_images(b, tmp_path)
            sandbox = await b.sandbox()
            shared = (Mount("/shared", b.volume("shared")[0]),)
            write = (
                "umask 077; echo a > /shared/a; echo s > /dev/shm/s; readlink "
                "/proc/self/ns/user; sleep 1000"
            )
            inside = await b.run((*SHELL, write), sandbox, mounts=shared)
            await b.until(lambda: bool(b.printed(inside)))
            assert b.printed(inside) != [host_users()]
            fields["mounts"] = (*fields.get("mounts", ()), *shared)
            look = (
                "readlink /proc/self/ns/user; stat -c '%u %g' /shared/a /dev/shm/s; readlink "
                "/proc/self/ns/net; sleep 1000"
            )
            outside = await b.run((*SHELL, look), sandbox, **fields)
            await b.until(lambda: len(b.printed(outside)) == 4)
            net = await b.runtime.exec_sync(inside, ("readlink", "/proc/self/ns/net"))
            assert b.printed(outside) == [host_users(), "0 0", "0 0", net.stdout.decode().strip()]
            core = b.runtime._core
            kept = [
                NativeContainer.load(core.containers[name].folder, core.sandboxes)
                for name in (inside, outside)
            ]
            assert [record is not None and record.own_users for record in kept] == [True, False], (
                "as after a restart"
            )
            printed = await b.runtime.exec_sync(outside, LOOK)
            assert printed.stdout.decode().strip() == host_users()
            await b.runtime.remove_sandbox(sandbox)
        finally:
            mounting.unmount_filesystem(disk)
            mounting.unmount_filesystem(b.host.files.real("/volumes/unmappable"))


def _foreign_images(b: RuntimeHarness, folder: Path) -> None:
    """Images with ids that a user namespace does not have."""
    files, group, names = (folder / name for name in ("files", "group", "names"))
    for layer in (files, group, names):
        (layer / "etc/deep").mkdir(parents=True)
    (files / "etc/deep/file").write_text("x")
    os.chown(files / "etc/deep/file", 65536, 0)
    os.chown(group / "etc/deep", 0, 1 << 20)
    (names / "etc/passwd").write_text("far:x:70000:0::/:/bin/sh\n")
    assert b.add_image is not None
    b.add_image("foreign-files", [files])
    b.add_image("foreign-group", [group])
    b.add_image("foreign-name", [names], User="far")
    b.add_image("foreign-number", User="70000:0")


async def test_programs_that_change_users(users: StartHarness, tmp_path: Path) -> None:
    """What entry points of images do: give a volume away, become its owner, and serve on a port
    below 1024.
    """

    async with users() as b:
        path, _ = b.volume("data")
        start = (
            "mkdir /var/lib && touch /var/lib/x && chown -R 999:999 /data /var/lib && chgrp "
            "65534 /etc/group && "
            "stat -c '%u %g' /data /var/lib/x /etc/group && echo 'db:x:999:999::/:/bin/sh' "
            ">> /etc/passwd && "
            "su db -c 'id -u; touch /data/db' && ping -c1 127.0.0.1 > /dev/null && "
            "(timeout 5 nc -l -p 80 < /dev/null & until nc 127.0.0.1 80 < /dev/null; do "
            "sleep 0.05; done; echo served)"
        )
        printed = await b.output((*SHELL, start), mounts=(Mount("/data", path),))
        assert printed == ["999 999", "999 999", "0 65534", "999", "served"]
        assert b.host.files.stat(f"{path}/db").uid == 999


async def test_setuid_programs(users: StartHarness, tmp_path: Path) -> None:
    program = tmp_path / "setuid/bin/busybox-setuid"
    program.parent.mkdir(parents=True)
    program.write_bytes(Path("/bin/busybox").read_bytes())
    program.chmod(0o4755)

    async with users() as b:
        assert b.add_image is not None
        b.add_image("setuid", [tmp_path / "setuid"])
        look = (
            "for p in busybox busybox-setuid; do $p ping -c1 127.0.0.1 > /dev/null 2>&1; echo "
            "$?; done"
        )
        printed = await b.output(
            (*SHELL, look), image="setuid", linux=LinuxContainer(run_as_user=33)
        )
        assert printed == ["1", "0"], "only root may open a raw socket"
