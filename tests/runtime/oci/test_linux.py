"""What only real Linux containers can show: namespaces, limits, users, capabilities, devices,
terminals.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.behaviour import RuntimeHarness

from transom.machines import mounting
from transom.machines.cpus import format_cpuset
from transom.network.api import DnsConfig
from transom.runtime.api import LinuxContainer, LinuxResources, LinuxSandbox, Mount, RuntimeFailure
from transom.runtime.cgroup2 import cpu_weight
from transom.runtime.native import cgroups
from transom.runtime.oci import capabilities

Play = Callable[[Any], None]
SHELL = ("sh", "-c")
MIB = 1 << 20


def linux(**fields: Any) -> dict[str, LinuxContainer]:
    return {"linux": LinuxContainer(**fields)}


def text(path: str) -> str:
    return Path(path).read_text()


# ---- who it is ----


@pytest.mark.parametrize(
    ("options", "image", "expected"),
    [
        ({}, {}, "0 0 0"),
        ({"run_as_user": 1000}, {}, "1000 1000 1000 50"),
        ({"run_as_user": 1234}, {}, "1234 0 0"),
        (
            {"run_as_user": 1234, "run_as_group": 5678, "supplemental_groups": (7, 8)},
            {},
            "1234 5678 5678 7 8",
        ),
        ({"run_as_user_name": "www"}, {}, "33 33 33 50"),
        ({"run_as_user": 33}, {"User": "33:100"}, "33 100 100 50"),
        ({"run_as_user_name": "user"}, {"User": "user:www"}, "1000 33 33 50"),
    ],
)
async def test_users(
    oci: Play, options: dict[str, Any], image: dict[str, str], expected: str
) -> None:
    async with oci() as b:
        assert b.add_image is not None
        b.add_image("theirs", **image)
        printed = await b.output(
            (*SHELL, "echo $(id -u) $(id -g) $(id -G)"), image="theirs", **linux(**options)
        )
        assert printed == [expected]
        [made] = b.runtime.containers()
        assert made.user is not None
        uid, gid, *groups = map(int, expected.split())
        assert (made.user.uid, made.user.gid) == (uid, gid)
        assert set(made.user.supplemental_groups) == {gid, *groups}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one CPU")
async def test_a_container_runs_on_its_cpus(oci: Play) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    async with oci() as b:
        command = (*SHELL, "grep Cpus_allowed_list /proc/self/status")
        for chosen, shown in ((str(cpus[1]), str(cpus[1])), ("", format_cpuset(cpus))):
            resources = LinuxResources(cpuset_cpus=chosen)
            printed = await b.output(command, **linux(resources=resources))
            assert printed == [f"Cpus_allowed_list:\t{shown}"]


async def test_a_user_that_is_not_there(oci: Play) -> None:
    async with oci() as b:
        with pytest.raises(
            RuntimeFailure, match="failed to create containerd container: no users found"
        ):
            await b.create(("id",), **linux(run_as_user_name="nobodyknows"))
        assert list((b.folder / "native/node1/containers").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, capabilities.DEFAULT),
        (
            {"drop_capabilities": ("ALL",), "add_capabilities": ("NET_BIND_SERVICE",)},
            ("NET_BIND_SERVICE",),
        ),
        (
            {"add_capabilities": ("sys_time",), "drop_capabilities": ("chown",)},
            {*capabilities.DEFAULT, "SYS_TIME"} - {"CHOWN"},
        ),
        ({"privileged": True}, capabilities.NAMES),
        (
            {"add_capabilities": ("ALL",), "drop_capabilities": ("SYS_ADMIN",)},
            set(capabilities.NAMES) - {"SYS_ADMIN"},
        ),
    ],
)
async def test_capabilities(oci: Play, options: dict[str, Any], expected: Any) -> None:
    async with oci() as b:
        (line,) = await b.output(("grep", "CapEff", "/proc/self/status"), **linux(**options))
        held = int(line.split()[1], 16)
        names = {name for number, name in enumerate(capabilities.NAMES) if held >> number & 1}
        assert names == set(expected) & capabilities.held_capabilities()


async def test_an_unknown_capability(oci: Play) -> None:
    async with oci() as b:
        made = await b.create(("id",), **linux(add_capabilities=("FLY",)))
        with pytest.raises(
            RuntimeFailure,
            match='starting container process caused: unknown capability "CAP_FLY": unknown',
        ):
            await b.runtime.start_container(made)
        assert b.state(made).reason == "StartError"


async def test_system_calls(oci: Play) -> None:
    async with oci() as b:
        sandbox = await b.sandbox()
        probe = (
            *SHELL,
            (
                "unshare -m true 2>&1 || true; grep Seccomp: /proc/self/status; grep NoNewPrivs "
                "/proc/self/status"
            ),
        )
        free = await b.output(
            probe, sandbox, **linux(add_capabilities=("SYS_ADMIN",), seccomp="unconfined")
        )
        assert free == ["Seccomp:\t0", "NoNewPrivs:\t0"]
        kept = await b.output(
            probe, sandbox, **linux(seccomp="runtime/default", no_new_privileges=True)
        )
        assert kept == [
            "unshare: unshare(0x20000): Operation not permitted",
            "Seccomp:\t2",
            "NoNewPrivs:\t1",
        ]
        b.host.files.mkdir("/var/lib/kubelet/seccomp")
        profile = (
            b'{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir"], "action": '
            b'"SCMP_ACT_ERRNO"}]}'
        )
        b.host.files.write("/var/lib/kubelet/seccomp/p.json", profile)
        own = linux(seccomp="localhost//var/lib/kubelet/seccomp/p.json")
        assert await b.output((*SHELL, "mkdir /x 2>&1 || true"), sandbox, **own) == [
            "mkdir: can't create directory '/x': Operation not permitted"
        ]
        with pytest.raises(
            RuntimeFailure,
            match="failed to load seccomp profile: open /none: no such file or directory",
        ):
            await b.create(("id",), sandbox, **linux(seccomp="localhost//none"))


# ---- what it sees ----


async def test_files(oci: Play) -> None:
    async with oci() as b:
        dns = DnsConfig(
            ("10.96.0.10", "8.8.8.8"), ("ns.svc.cluster.local", "cluster.local"), ("ndots:5",)
        )
        sandbox = await b.sandbox(dns=dns)
        assert await b.output(("cat", "/etc/resolv.conf", "/etc/hostname"), sandbox) == [
            "search ns.svc.cluster.local cluster.local",
            "nameserver 10.96.0.10",
            "nameserver 8.8.8.8",
            "options ndots:5",
            "web",
        ]
        b.host.files.write("/etc-hosts", b"10.0.0.1\tweb\n")
        hosts = (Mount("/etc/hosts", "/etc-hosts"),)
        assert await b.output(("cat", "/etc/hosts"), sandbox, mounts=hosts) == ["10.0.0.1\tweb"]
        assert await b.output(
            (*SHELL, "pwd; echo x > y; ls"), sandbox, working_dir="/made/for/it"
        ) == ["/made/for/it", "y"]
        refused = await b.run((*SHELL, "touch /tmp/x"), sandbox, **linux(read_only_root=True))
        assert (await b.ended(refused)).exit_code == 1
        assert b.printed(refused, "stderr") == ["touch: /tmp/x: Read-only file system"]


async def test_the_image_is_everybodys_and_the_upper_layer_its_own(
    oci: Play, tmp_path: Path
) -> None:
    async with oci() as b:
        extra = tmp_path / "extra"
        (extra / "app").mkdir(parents=True)
        (extra / "app/file").write_text("of the image\n")
        os.mknod(extra / "home", 0o20000, 0)  # what hides the directory below
        assert b.add_image is not None
        b.add_image(
            "layered",
            [extra],
            Entrypoint=["sh", "-c"],
            Cmd=["cat /app/file; test -e /home || echo hidden"],
            WorkingDir="/app",
            Env=["A=1", "PATH=/bin"],
        )
        sandbox = await b.sandbox()
        assert await b.output((), sandbox, image="layered") == ["of the image", "hidden"]
        assert await b.output((), sandbox, image="layered", args=("pwd; echo $A $PATH",)) == [
            "/app",
            "1 /bin",
        ]
        changed = (*SHELL, "echo changed > /app/file; cat /app/file")
        assert await b.output(changed, sandbox, image="layered") == ["changed"]
        assert (extra / "app/file").read_text() == "of the image\n"


async def test_nothing_to_run(oci: Play) -> None:
    async with oci() as b:
        assert b.add_image is not None
        b.add_image("empty")
        with pytest.raises(RuntimeFailure, match="no command specified"):
            await b.create((), image="empty")


async def test_links_in_volumes_lead_nowhere_else(oci: Play, tmp_path: Path) -> None:
    async with oci() as b:
        path, _ = b.volume("data")
        (b.host.files.folder / "volumes/data/out").symlink_to("/")
        b.host.files.write("/in-the-node", b"")
        printed = await b.output(("ls", "/mnt"), mounts=(Mount("/mnt", f"{path}/out"),))
        assert "in-the-node" in printed
        made = await b.run(("sleep", "100"), mounts=(Mount("/made", "/not/there/yet"),))
        assert b.host.files.stat("/not/there/yet").kind == "directory"
        assert [m for m in mounting.mount_points(str(b.folder)) if "/mounts/" in m.point] == []
        b.host.files.write("/file", b"")
        with pytest.raises(
            RuntimeFailure, match='failed to mkdir "/file/x": mkdir /file/x: not a directory'
        ):
            await b.create(("id",), b.state(made).sandbox_id, mounts=(Mount("/x", "/file/x"),))


async def test_processes_of_a_pod(oci: Play) -> None:
    async with oci() as b:
        own = await b.sandbox("uid-1")
        assert await b.output((*SHELL, "echo $$"), own) == ["1"]
        shared = await b.sandbox("uid-2", linux=LinuxSandbox(share_processes=True))
        first = await b.run(
            (*SHELL, "sleep 1000 & sleep 1000; true"), shared, **linux(pid_namespace="pod")
        )
        printed = await b.output(("ps", "-o", "pid,args"), shared, **linux(pid_namespace="pod"))
        assert printed[1].split() == ["1", "/pause"]
        assert sum("sleep 1000" in line for line in printed) == 3
        beside = await b.output(
            ("ps", "-o", "pid,args"), own, **linux(pid_namespace="target", target_id=first)
        )
        assert sum("sleep 1000" in line for line in beside) == 3
        await b.runtime.stop_container(first, 0)
        printed = await b.output(("ps", "-o", "pid,args"), shared, **linux(pid_namespace="pod"))
        assert not any("sleep 1000" in line for line in printed), (
            "no other program ends what it has started"
        )
        node = await b.sandbox("uid-3", linux=LinuxSandbox(host_pid=True, host_ipc=True))
        (name,) = await b.output(
            ("readlink", "/proc/self/ns/pid"), node, **linux(pid_namespace="node")
        )
        assert name == os.readlink("/proc/self/ns/pid")
        (ipc,) = await b.output(
            ("readlink", "/proc/self/ns/ipc"), node, **linux(pid_namespace="node")
        )
        assert ipc == os.readlink("/proc/self/ns/ipc")


async def test_a_pod_shares_memory_and_network(oci: Play) -> None:
    async with oci() as b:
        sandbox = await b.sandbox(
            linux=LinuxSandbox(
                sysctls={"net.ipv4.ip_unprivileged_port_start": "0", "kernel.shm_rmid_forced": "1"}
            )
        )
        await b.output((*SHELL, "echo there > /dev/shm/x"), sandbox)
        printed = await b.output(
            (*SHELL, "cat /dev/shm/x; cat /proc/sys/net/ipv4/ip_unprivileged_port_start"), sandbox
        )
        assert printed == ["there", "0"]
        await b.run(
            (*SHELL, "echo 'hello from inside' > /tmp/index.html; httpd -f -p 80 -h /tmp"), sandbox
        )
        connection = None
        async with asyncio.timeout(20):
            while connection is None:
                try:
                    connection = await b.runtime.port_forward(sandbox, 80)
                except RuntimeFailure:
                    await b.until(lambda: True)
        with connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, b"GET /index.html HTTP/1.0\r\n\r\n")
            answer = b""
            while data := await loop.sock_recv(connection, 4096):
                answer += data
        assert answer.endswith(b"hello from inside\n")
        with pytest.raises(
            RuntimeFailure,
            match=r'failed to execute portforward in network namespace "/proc/\d+/ns/net": '
            r"failed to dial 81: dial tcp4 127.0.0.1:81: connect: connection refused",
        ):
            await b.runtime.port_forward(sandbox, 81)


async def test_the_network_namespace_may_be_given(oci: Play) -> None:
    async with oci() as b:
        first = await b.sandbox("uid-1")
        path = b.runtime.namespace(first)
        object.__setattr__(b.runtime._core.wiring, "sandbox", lambda sandbox_id: path)
        second = await b.sandbox("uid-2")
        assert os.stat(path).st_ino == os.stat(b.runtime.namespace(second)).st_ino
        object.__setattr__(b.runtime._core.wiring, "sandbox", lambda sandbox_id: "")
        on_node = await b.sandbox("uid-3", hostname="", linux=LinuxSandbox(host_network=True))
        assert await b.output((*SHELL, "readlink /proc/self/ns/net; hostname"), on_node) == [
            os.readlink("/proc/self/ns/net"),
            "node1",
        ]
        assert b.runtime.sandboxes("uid-3")[0].ips == ()


async def test_devices_and_privileges(oci: Play) -> None:
    async with oci() as b:
        b.host.files.make("/disk", "block", 0o660)
        sandbox = await b.sandbox()
        printed = await b.output(
            (*SHELL, "stat -c '%F' /dev/xvda; ls -a /dev | grep -c kmsg || true"),
            sandbox,
            devices=("/disk:/dev/xvda:mrw",),
        )
        assert printed == ["block special file", "0"]
        with pytest.raises(RuntimeFailure, match="not a device node"):
            await b.create(("id",), sandbox, devices=("/etc/hosts:/dev/x:r",))
        masked = linux(masked_paths=("/proc/kcore", "/proc/keys"), read_only_paths=("/proc/sys",))
        shut = (*SHELL, "wc -c < /proc/keys; echo 1 > /proc/sys/kernel/domainname 2>&1; echo $?")
        assert (await b.output(shut, sandbox, **masked))[0] == "0"
        wide = (
            *SHELL,
            "test -c /dev/kmsg && mount -t tmpfs none /mnt 2>/dev/null || mkdir /mnt && "
            "mount -t tmpfs none /mnt; "
            "touch /sys/fs/cgroup 2>/dev/null; echo done",
        )
        assert await b.output(wide, sandbox, **linux(privileged=True)) == ["done"]


async def test_mounts_are_passed_on(oci: Play) -> None:
    async with oci() as b:
        path, _ = b.volume("data")
        b.host.files.mkdir(f"{path}/sub")
        sandbox = await b.sandbox()
        mount = Mount("/data", path, propagation="hostToContainer")
        watcher = await b.run(
            (*SHELL, "echo ready; while ! test -e /data/sub/x; do sleep 0.02; done; echo seen"),
            sandbox,
            mounts=(mount,),
        )
        await b.ready(watcher)
        b.host.files.mount_tmpfs(f"{path}/sub", MIB)
        b.host.files.write(f"{path}/sub/x", b"")
        assert (await b.ended(watcher)).exit_code == 0
        b.host.files.unmount(f"{path}/sub")
        both = Mount("/data", path, propagation="bidirectional")
        maker = (*SHELL, "mount -t tmpfs none /data/sub && touch /data/sub/from-inside")
        await b.output(maker, sandbox, mounts=(both,), **linux(privileged=True))
        assert b.host.files.listdir(f"{path}/sub") == ["from-inside"]
        b.host.files.unmount(f"{path}/sub")


async def test_a_recursive_read_only_mount(oci: Play) -> None:
    script = (*SHELL, "touch /data/x 2>&1; touch /data/sub/x 2>&1 && echo written; true")
    async with oci() as b:
        path, _ = b.volume("data")
        b.host.files.mkdir(f"{path}/sub")
        b.host.files.mount_tmpfs(f"{path}/sub", MIB)
        refused = "touch: {}: Read-only file system"
        below = {False: "written", True: refused.format("/data/sub/x")}
        try:
            for recursive, shown in below.items():
                mount = Mount("/data", path, read_only=True, recursive_read_only=recursive)
                printed = await b.output(script, mounts=(mount,))
                assert printed == [refused.format("/data/x"), shown]
        finally:
            b.host.files.unmount(f"{path}/sub")


# ---- how much it gets ----


async def test_limits(oci: Play) -> None:
    async with oci() as b:
        resources = LinuxResources(
            cpu_shares=512,
            cpu_quota=50_000,
            cpu_period=100_000,
            memory_limit=64 * MIB,
            oom_score_adj=900,
        )
        sandbox = await b.sandbox(linux=LinuxSandbox(cgroup_parent="/kubepods/burstable/poduid-1"))
        made = await b.run(("sleep", "1000"), sandbox, **linux(resources=resources))
        group = f"{b.cgroup}/node1/kubepods/burstable/poduid-1"
        if cgroups.cgroup_hierarchies().version == 1:
            table = {
                f"cpu{group}/{made}/cpu.shares": "512",
                f"cpu{group}/{made}/cpu.cfs_quota_us": "50000",
                f"memory{group}/{made}/memory.limit_in_bytes": str(64 * MIB),
                f"cpu{group}/cpu.shares": "512",
            }
        else:
            table = {
                f"{group}/{made}/cpu.weight": "20",
                f"{group}/{made}/cpu.max": "50000 100000",
                f"{group}/{made}/memory.max": str(64 * MIB),
                f"{group}/cpu.weight": "20",
            }
        assert {name: text(f"/sys/fs/cgroup/{name}").strip() for name in table} == table
        pid = b.runtime._core.containers[made].pid
        assert text(f"/proc/{pid}/oom_score_adj") == "900\n"
        await b.runtime.remove_sandbox(sandbox)
        assert cgroups.cgroup_leaves(f"{b.cgroup}/node1") in (
            [],
            [f"{b.cgroup}/node1/kubepods/burstable"],
        )


async def test_limits_of_a_pod_as_a_whole(oci: Play) -> None:
    def shown() -> list[str]:
        group = f"{b.cgroup}/node1/kubepods/burstable/poduid-1"
        names = (
            (
                f"cpu{group}/cpu.shares",
                f"cpu{group}/cpu.cfs_quota_us",
                f"memory{group}/memory.limit_in_bytes",
            )
            if cgroups.cgroup_hierarchies().version == 1
            else (f"{group}/cpu.weight", f"{group}/cpu.max", f"{group}/memory.max")
        )
        return [text(f"/sys/fs/cgroup/{name}").split()[0] for name in names]

    def weight(shares: int) -> str:
        return str(shares if cgroups.cgroup_hierarchies().version == 1 else cpu_weight(shares))

    async with oci() as b:
        whole = LinuxResources(cpu_shares=512, cpu_quota=50_000, memory_limit=64 * MIB)
        parent = "/kubepods/burstable/poduid-1"
        sandbox = await b.sandbox(linux=LinuxSandbox(cgroup_parent=parent, resources=whole))
        assert shown() == [weight(512), "50000", str(64 * MIB)]
        hungry = (*SHELL, "x=0123456789abcdef; while true; do x=$x$x; done")
        made = await b.run(hungry, sandbox)  # it has no limit of its own
        ended = await b.ended(made)
        assert (ended.exit_code, ended.reason) == (137, "OOMKilled")
        larger = LinuxResources(cpu_shares=1024, memory_limit=128 * MIB)
        await b.runtime.update_sandbox_resources(sandbox, larger)
        assert shown()[0] == weight(1024) and shown()[1] in ("-1", "max")
        assert shown()[2] == str(128 * MIB)
        await b.run(("sleep", "1000"), sandbox)
        assert shown()[0] == weight(1024)  # whatever its containers request


async def test_too_much_memory(oci: Play) -> None:
    async with oci() as b:
        hungry = (*SHELL, "x=0123456789abcdef; while true; do x=$x$x; done")
        made = await b.run(hungry, **linux(resources=LinuxResources(memory_limit=16 * MIB)))
        ended = await b.ended(made)
        assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


async def test_statistics_are_measured(oci: Play) -> None:
    async with oci() as b:
        busy = (
            *SHELL,
            "dd if=/dev/zero of=/big bs=1M count=5 2>/dev/null; echo ready; sleep 1000; true",
        )
        made = await b.run(busy)
        await b.ready(made)
        b.runtime.container_stats()
        await b.until(lambda: b.runtime.container_stats()[0].writable_layer.used > 5 * MIB)
        (row,) = b.runtime.container_stats()
        assert row.processes == 2
        assert row.page_faults > 0
        assert b.host.memory().working_set > row.working_set > 0
        assert b.host.cpu_seconds() > 0
        (net,) = b.runtime.sandbox_stats()
        assert net.interfaces == ()


# ---- terminals and input ----


async def test_a_terminal(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("sh",), stdin=True, tty=True, env=(("PS1", "$ "),))
        printed: list[bytes] = []
        process = await b.runtime.attach(
            made, lambda stream, data: printed.append(data), stdin=True, tty=True
        )
        process.resize(100, 30)
        process.write(b"tty; stty size; echo $TERM\n")
        await b.until(lambda: b"xterm\r\n" in b"".join(printed))
        assert b"/dev/pts/0\r\n30 100\r\nxterm\r\n" in b"".join(printed)
        process.write(b"exit 4\n")
        async with asyncio.timeout(20):
            assert await process.wait() == 4
        assert (await b.ended(made)).exit_code == 4
        assert "30 100" in b.printed(made)


async def test_a_command_with_a_terminal(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("sleep", "1000"))
        printed: list[bytes] = []
        process = await b.runtime.exec(
            made, ("sh",), lambda stream, data: printed.append(data), stdin=True, tty=True
        )
        process.resize(120, 40)
        process.write(b"stty size; tty; sleep 100\n")
        await b.until(lambda: b"40 120\r\n/dev/pts/0\r\n" in b"".join(printed))
        # the terminal makes a signal of it, and the shell forgets what it was given before
        process.write(b"\x03")
        await b.until(lambda: b"^C\r\n/ # " in b"".join(printed))
        process.write(b"exit 9\n")
        async with asyncio.timeout(20):
            assert await process.wait() == 9
        with pytest.raises(RuntimeFailure) as missing:
            await b.runtime.exec(made, ("nothing",), lambda stream, data: None, tty=True)
        assert missing.value.description.endswith(
            "OCI runtime exec failed: exec failed: container_linux.go:370: starting "
            "container process caused: "
            'exec: "nothing": executable file not found in $PATH: unknown'
        )


async def test_a_slow_client_holds_up_the_program(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("sleep", "1000"))
        sizes: list[int] = []
        flood = (
            "until test -e /go; do sleep 0.01; done; dd if=/dev/zero bs=1k count=4096 "
            "2>/dev/null; touch /done"
        )
        process = await b.runtime.exec(
            made, (*SHELL, flood), lambda stream, data: sizes.append(len(data))
        )
        process.hold(True)
        seen = await b.runtime.exec_sync(
            made, (*SHELL, "touch /go; sleep 0.2; test -e /done || echo waiting")
        )
        assert seen.stdout == b"waiting\n"
        assert not sizes
        process.hold(False)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert sum(sizes) == 4 * MIB


async def test_input_outlives_a_client_unless_it_is_for_one(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("cat",), stdin=True)
        for word in (b"one\n", b"two\n"):
            printed: list[bytes] = []
            process = await b.runtime.attach(
                made, lambda stream, data, printed=printed: printed.append(data), stdin=True
            )
            process.write(word)
            await b.until(lambda printed=printed, word=word: word in b"".join(printed))
            process.close()
        assert b.printed(made) == ["one", "two"]
        assert b.state(made).state == "running"
        none = await b.run(("cat",), b.state(made).sandbox_id)
        assert (await b.ended(none)).exit_code == 0  # no process keeps its input open


async def test_lines(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(
            (*SHELL, "head -c 40000 /dev/zero | tr '\\0' x; echo; printf unfinished")
        )
        await b.ended(made)
        lengths = [(tag, len(text)) for _, tag, text in b.records(made)]
        assert lengths == [("P", 16384), ("P", 16384), ("F", 40000 - 2 * 16384), ("P", 10)]


async def test_the_images_own_signal(oci: Play) -> None:
    async with oci() as b:
        assert b.add_image is not None
        b.add_image("quits", StopSignal="SIGQUIT")
        polite = (
            *SHELL,
            "trap 'exit 33' QUIT; trap 'exit 1' TERM; echo ready; while true; do sleep 0.02; done",
        )
        made = await b.run(polite, image="quits")
        await b.ready(made)
        await b.runtime.stop_container(made, 20)
        assert b.state(made).exit_code == 33


async def test_killed_by_a_signal(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(("sleep", "1000"))
        os.kill(b.runtime._core.containers[made].pid, 9)
        assert (await b.ended(made)).exit_code == 137


async def test_a_full_disk(oci: Play, tmp_path: Path) -> None:
    async def scenario(b: RuntimeHarness) -> None:
        sandbox = await b.sandbox()
        made = await b.run(
            (*SHELL, "echo ready; while true; do echo line; sleep 0.01; done"), sandbox
        )
        await b.until(lambda: "line" in b.printed(made))
        fill()
        os.kill(b.runtime._core.containers[made].pid, 9)
        assert (await b.ended(made)).exit_code == 137
        cleanup_task = b.runtime._core.containers[made].cleanup_task
        assert cleanup_task is not None
        # gives back what runc had on the disk, enough for another container to be made, though not
        # to start
        await cleanup_task
        fill()
        with pytest.raises(RuntimeFailure, match=r"(?i)no space left on device"):
            await b.run(("true",), sandbox)
        with pytest.raises(RuntimeFailure, match=r"(?i)no space left on device"):
            await b.sandbox("uid-2")
        (tmp_path / "filler").unlink()
        assert await b.output(("echo", "again"), sandbox) == ["again"]
        assert len(b.runtime.containers()) == 2
        assert len(b.runtime.sandboxes()) == 1

    def fill() -> None:
        with (tmp_path / "filler").open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    mounting.mount_filesystem("tmpfs", str(tmp_path), "tmpfs", 0, "size=24m")
    try:
        async with oci() as made:
            await scenario(made)
    finally:
        mounting.unmount_filesystem(str(tmp_path))


async def test_without_overlays(oci: Play) -> None:
    async with oci() as b:
        b.runtime._overlay = None
        assert any("overlayfs" in line for line in b.runtime.capabilities())
        sandbox = await b.sandbox()
        assert await b.output((*SHELL, "echo changed > /etc/group; cat /etc/group"), sandbox) == [
            "changed"
        ]
        assert (await b.output(("cat", "/etc/group"), sandbox))[0] == "root:x:0:"
