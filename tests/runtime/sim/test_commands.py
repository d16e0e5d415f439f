from __future__ import annotations

import asyncio
import errno
import socket

import pytest
from tests.runtime.sim import harness

from transom.kit import dnswire as wire
from transom.network.api import DnsConfig
from transom.runtime.api import LinuxContainer, RuntimeFailure
from transom.runtime.sim.engine import Flavour


async def test_log_lines() -> None:
    r = harness.make()
    main = await r.container("say", "one\ntwo\nthr")
    context = r.programs[0].context
    recorded: list[str] = []
    end = r.runtime.watch_log(main, lambda: recorded.append(r.log()))
    context.out(b"ee\n")
    context.err(b"x" * 20000 + b"\n")
    assert len(recorded) == 2
    end()
    context.out(b"open end")
    assert len(recorded) == 2
    context.exit(3)
    stamp = "2020-01-02T03:04:07.000000000Z"
    assert r.log().splitlines() == [
        f"{stamp} stdout F one",
        f"{stamp} stdout F two",
        f"{stamp} stdout F three",
        f"{stamp} stderr P {'x' * 16384}",
        f"{stamp} stderr F {'x' * 3616}",
        f"{stamp} stdout P open end",
    ]


async def test_containerd_leaves_the_last_line_open_too() -> None:
    r = harness.make(flavour="containerd")
    await r.container("say", "open end")
    r.programs[0].context.exit(0)
    assert r.log().endswith(" stdout P open end\n")


async def test_a_log_that_was_moved_is_opened_again() -> None:
    r = harness.make()
    main = await r.container("say", "before\n")
    path = r.state(main).log_path
    r.host.files.rename(path, path + ".1")
    r.programs[0].context.out(b"between\n")
    r.runtime.reopen_log(main)
    r.programs[0].context.out(b"after\n")
    assert r.log().endswith(" stdout F after\n")
    assert r.host.files.read(path + ".1").count(b"\n") == 2


async def test_exec() -> None:
    r = harness.make()
    main = await r.container("ignore")
    process, printed = await r.exec(main, "cat", stdin=True)
    process.write(b"a\nb")
    process.end_input()
    assert await r.do(process.wait()) == 0
    assert printed == [("stdout", b"> a\n"), ("stdout", b"> b")]
    result = await r.runtime.exec_sync(main, ["exit", "7"])
    assert (result.exit_code, r.programs[-1].context.pid) == (7, 3)
    assert r.runtime.container_stats()[0].processes == 1


async def test_a_slow_client_holds_up_output() -> None:
    r = harness.make()
    main = await r.container("ignore")
    process, printed = await r.exec(main, "ignore")
    context = r.programs[-1].context
    process.hold(True)
    context.out(b"1")
    drained = asyncio.ensure_future(context.drain())
    await r.clock.run_for(1)
    assert (printed, drained.done()) == ([], False)
    context.exit(0)
    waited = asyncio.ensure_future(process.wait())
    await r.clock.run_for(1)
    assert not waited.done()
    process.hold(False)
    await r.clock.run_for(1)
    assert (printed, drained.done(), waited.result()) == ([("stdout", b"1")], True, 0)


async def test_a_client_that_disconnects_ends_its_command_and_not_the_container() -> None:
    r = harness.make()
    main = await r.container("ignore")
    process, _ = await r.exec(main, "ignore")
    process.close()
    assert r.programs[-1].killed
    other, _ = await r.exec(main, "ignore")
    attached = await r.runtime.attach(main, lambda stream, data: None)
    attached.close()
    assert r.state(main).state == "running"
    await r.do(r.runtime.stop_container(main, 0))
    assert r.programs[-1].killed
    assert await other.wait() == 137


@pytest.mark.parametrize(
    ("os", "flavour", "text"),
    [
        (
            "linux",
            "docker",
            "OCI runtime exec failed: exec failed: container_linux.go:370: starting "
            "container process caused: "
            'exec: "missing": executable file not found in $PATH: unknown\r\n',
        ),
        (
            "windows",
            "docker",
            "container ID encountered an error during hcsshim::System::CreateProcess: "
            "failure in a Windows "
            "system call: The system cannot find the file specified. (0x2)\r\n",
        ),
        (
            "linux",
            "containerd",
            "OCI runtime exec failed: exec failed: container_linux.go:370: starting "
            "container process "
            'caused: exec: "missing": executable file not found in $PATH: unknown',
        ),
    ],
)
async def test_exec_of_nothing(os: str, flavour: Flavour, text: str) -> None:
    r = harness.make(os, flavour)  # type: ignore[arg-type]
    main = await r.container(
        "ignore",
        image="mcr.microsoft.com/windows/nanoserver:1809" if os == "windows" else "busybox",
    )
    if flavour == "docker":
        result = await r.runtime.exec_sync(main, ["missing"])
        assert (result.stdout.decode(), result.exit_code) == (text.replace("ID", main), 126)
    else:
        with pytest.raises(
            RuntimeFailure, match='failed to exec in container: failed to start exec "'
        ) as raised:
            await r.runtime.exec_sync(main, ["missing"])
        assert raised.value.description.endswith(f'": {text}')


@pytest.mark.parametrize(
    ("flavour", "text", "left"),
    [
        ("docker", "context deadline exceeded", True),
        (
            "containerd",
            "failed to exec in container: timeout 2s exceeded: context deadline exceeded",
            False,
        ),
    ],
)
async def test_a_probe_that_takes_too_long(flavour: Flavour, text: str, left: bool) -> None:
    r = harness.make(flavour=flavour)
    main = await r.container("ignore")
    with pytest.raises(RuntimeFailure) as raised:
        await r.do(r.runtime.exec_sync(main, ["ignore"], 2), 3)
    assert (raised.value.code, raised.value.description) == ("DeadlineExceeded", text)
    assert r.programs[-1].killed is not left


async def test_a_terminal_echoes_edits_and_interrupts() -> None:
    r = harness.make()
    main = await r.container("ignore")
    process, printed = await r.exec(main, "cat", stdin=True, tty=True)
    process.resize(120, 40)
    context = r.programs[-1].context
    assert context.tty_size == (120, 40)
    process.write(b"ab\x7fc\r")
    process.write(b"\x03")
    process.write(b"\x04")
    assert await r.do(process.wait()) == 0
    assert r.programs[-1].received == ["SIGWINCH", "SIGINT"]
    assert b"".join(data for _, data in printed) == b"ab\b \bc\r\n^C> ac\r\n"
    assert {stream for stream, _ in printed} == {"stdout"}


async def test_attached_clients_share_a_container() -> None:
    r = harness.make()
    main = await r.container("cat", stdin=True, stdin_once=True)
    printed: list[bytes] = []
    first, second = [
        await r.runtime.attach(main, lambda _, data: printed.append(data), stdin=True)
        for _ in range(2)
    ]
    first.write(b"x\n")
    await r.clock.run_for(1)
    assert printed == [b"> x\n", b"> x\n"]
    first.close()  # the standard input is for one client only
    assert await r.do(second.wait()) == 0
    assert r.log().endswith(" stdout F > x\n")
    assert (r.state(main).state, r.state(main).reason) == ("exited", "Completed")


@pytest.mark.parametrize("flavour", ["docker", "containerd"])
async def test_a_container_outlives_clients_of_its_input(flavour: Flavour) -> None:
    r = harness.make(flavour=flavour)
    main = await r.container("cat", stdin=True)
    printed: list[bytes] = []
    first, second = [
        await r.runtime.attach(main, lambda _, data: printed.append(data), stdin=True)
        for _ in range(2)
    ]
    first.end_input()
    assert await r.do(first.wait()) == 0
    second.write(b"x\n")
    await r.clock.run_for(1)
    assert (printed, r.state(main).state) == ([b"> x\n"], "running")


async def test_ports() -> None:
    r = harness.make()
    sandbox = await r.sandbox()
    await r.container("serve", "80", sandbox=sandbox)
    await r.container("serve", "81", "127.0.0.1", sandbox=sandbox)
    assert (await r.dataplane.connect("10.244.1.2", 80)).recv(9) == b"hello"
    with pytest.raises(ConnectionRefusedError):
        await r.dataplane.connect("10.244.1.2", 81)
    assert (await r.runtime.port_forward(sandbox, 81)).recv(9) == b"hello"
    context = r.programs[0].context
    for host in ("localhost", "127.0.0.1", "10.244.1.2", "web"):
        assert (await context.network.connect(host, 80)).recv(9) == b"hello"
    with pytest.raises(OSError, match="Address already in use"):
        context.network.listen(81, lambda connection: None)
    with pytest.raises(RuntimeFailure) as raised:
        await r.runtime.port_forward(sandbox, 82)
    assert raised.value.description.endswith(
        "E connect(5, AF=2 127.0.0.1:82, 16): Connection refused\n"
    )
    (stats,) = r.runtime.sandbox_stats("uid-1")
    assert stats.interfaces[0].name == "eth0"
    assert stats.interfaces[0].rx_bytes > 0
    context.exit(0)
    with pytest.raises(ConnectionRefusedError):
        await r.dataplane.connect("10.244.1.2", 80)


async def test_low_ports_are_roots() -> None:
    r = harness.make()
    await r.container("ignore", linux=LinuxContainer(run_as_user=1000))
    with pytest.raises(PermissionError):
        r.programs[0].context.network.listen(80, lambda connection: None)
    r.programs[0].context.network.listen(8080, lambda connection: None)


async def test_port_forward_on_windows_needs_wincat() -> None:
    image = "mcr.microsoft.com/windows/nanoserver:1809"
    r = harness.make("windows")
    sandbox = await r.sandbox()
    await r.container("serve", "80", image=image, sandbox=sandbox)
    assert (await r.runtime.port_forward(sandbox, 80)).recv(9) == b"hello"
    with pytest.raises(
        RuntimeFailure,
        match=r"because dial tcp 127.0.0.1:81: connectex: No connection could be made",
    ):
        await r.runtime.port_forward(sandbox, 81)
    old = harness.make("windows", sandbox_image="mcr.microsoft.com/k8s/core/pause:1.1.0")
    sandbox = await old.sandbox()
    with pytest.raises(RuntimeFailure) as raised:
        await old.runtime.port_forward(sandbox, 80)
    assert raised.value.description == (
        f"container {sandbox} encountered an error during hcsshim::System::CreateProcess: "
        "failure in a Windows system call: The system cannot find the file specified. (0x2): "
    )


SEARCHES = DnsConfig(("10.96.0.10",), ("ns.svc.cluster.local", "svc.cluster.local"), ("ndots:5",))


async def test_names_are_found_in_the_hosts_file_then_by_dns() -> None:
    async def lookup(name: str, dns: DnsConfig) -> list[str]:
        return ["10.96.0.7"] if name == "db.ns.svc.cluster.local" else []

    r = harness.make(lookup=lookup)
    await r.container("ignore", sandbox=await r.sandbox(dns=SEARCHES))
    context = r.programs[0].context
    assert context.files.read("/etc/resolv.conf") == (
        b"nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local\noptions ndots:5\n"
    )
    context.files.append("/etc/hosts", b"1.2.3.4\tbackend other # not this\n")
    assert await context.network.resolve("Other") == ["1.2.3.4"]
    assert await context.network.resolve("db") == ["10.96.0.7"]
    with pytest.raises(OSError, match="Name or service not known"):
        await context.network.resolve("this")


async def test_names_are_asked_for_over_the_network_of_the_pod() -> None:
    requested: list[tuple[str, int, str, str]] = []

    async def ask(address: str, port: int, payload: bytes, source: str = "") -> bytes:
        message = wire.parse_dns_message(payload)
        assert message.question is not None
        name = message.question.name
        requested.append((address, port, source, wire.name_text(name)))
        found = [wire.DnsRecord(name, wire.A, 5, b"\x0a\x60\0\7")] if len(requested) == 2 else []
        reply = wire.PackedMessage(name, wire.NOERROR if found else wire.NXDOMAIN, found)
        return reply.message(message.id, name + b"\0\1\0\1", message.flags, 512)

    r = harness.make()
    r.dataplane.ask = ask
    await r.container("ignore", sandbox=await r.sandbox(dns=SEARCHES))
    context = r.programs[0].context
    assert await context.network.resolve("db.other") == ["10.96.0.7"]
    own = context.network.ips[0]
    assert requested == [
        ("10.96.0.10", 53, own, "db.other.ns.svc.cluster.local"),
        ("10.96.0.10", 53, own, "db.other.svc.cluster.local"),
    ]


async def test_without_a_listener_the_network_decides_on_the_loopback_too() -> None:
    """Host ports and node ports are there."""

    requested: list[tuple[str, int, str]] = []

    async def connect(address: str, port: int, source: str = "") -> socket.socket:
        requested.append((address, port, source))
        raise ConnectionRefusedError(errno.ECONNREFUSED, "")

    r = harness.make()
    r.dataplane.connect = connect
    await r.container("ignore")
    context = r.programs[0].context
    with pytest.raises(ConnectionRefusedError):
        await context.network.connect("127.0.0.1", 54321)
    assert requested == [("127.0.0.1", 54321, context.network.ips[0])]
    context.network.listen(54321, socket.socket.close)
    (await context.network.connect("127.0.0.1", 54321)).close()
    assert len(requested) == 1
