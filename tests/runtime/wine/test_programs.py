"""Windows programs in containers: what they receive, what they print, how they end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.runtime.wine import probe
from tests.runtime.wine.conftest import PROBE, Box, Image, Make

from transom.network.api import DnsConfig
from transom.runtime.api import (
    ContainerConfig,
    LinuxSandbox,
    Mount,
    RuntimeFailure,
    SandboxConfig,
    WindowsContainer,
    WindowsResources,
)
from transom.runtime.native.platform import CannotStart
from transom.runtime.wine.helpers import HELPERS, Helpers
from transom.runtime.wine.platform import WinePlatform

_MIB = 1 << 20


def test_cmd_reports_its_build_and_receives_its_arguments(box: Make) -> None:
    code, out, _ = (
        box("cmd", "/c", "ver & echo one  two & echo %A%", env=(("a", "x y"),))
        .create()
        .start()
        .result()
    )
    assert (code, out.split("\r\n")[1:]) == (
        0,
        ["Microsoft Windows 10.0.17763", "one  two ", "x y", ""],
    )


@pytest.mark.parametrize(
    "requested, recorded",
    [("0", 0), ("300", 300), ("3000000000", -1294967296), ("3221225786", -1073741510)],
)
def test_all_32_bits_of_an_exit_code(box: Make, requested: str, recorded: int) -> None:
    assert box(PROBE, "exit", requested).create().start().result()[0] == recorded


def test_a_crash_ends_with_its_exception_and_without_a_debugger(box: Make) -> None:
    code, out, _ = box(PROBE, "crash").create().start().result()
    assert (code & 0xFFFFFFFF, out) == (0xC0000005, "")


def test_what_go_programs_need(box: Make) -> None:
    assert box(PROBE, "random").create().start().result()[0] == 0


def test_arguments_arrive_as_they_were(box: Make) -> None:
    words = [
        "plain",
        "with space",
        "",
        'quo"te',
        "back\\slash",
        "end\\",
        "end space\\",
        'a\\"b',
        "tab\there",
        "ü €",
        "%OS%",
    ]
    _, out, _ = box(PROBE, "args", *words).create().start().result()
    assert out.splitlines() == words


def test_shell_form_of_an_image_is_a_command_line_already(box: Make) -> None:
    image = {
        "Cmd": ['cmd /S /C echo "a  b" %OS%'],
        "ArgsEscaped": True,
        "Env": ["X=1"],
        "WorkingDir": "c:\\APP",
    }
    assert box(image=image).create().start().result()[1] == '"a  b" Windows_NT\r\n'
    assert (
        box("cmd", "/c", "echo %X%& cd", image=image).create().start().result()[1]
        == "1\r\nc:\\APP\r\n"
    )


def test_a_program_that_is_not_there(box: Make, cache: Path) -> None:
    made = box("nothing.exe", "x").create()
    with pytest.raises(CannotStart) as failed:
        made.start()
    assert str(failed.value) == (
        f'rpc error: code = Unknown desc = failed to start containerd task "{made.id}": '
        f"hcs::System::CreateProcess {made.id}: "
        "The system cannot find the file specified.: unknown"
    )
    docker = box("nothing.exe", platform=WinePlatform(cache, engine="docker")).create()
    with pytest.raises(CannotStart) as failed:
        docker.start()
    assert (failed.value.exit_code, failed.value.message) == (
        127,
        f"container {docker.id} encountered an error during hcsshim::System::CreateProcess: "
        "failure in a Windows system "
        "call: The system cannot find the file specified. (0x2)",
    )
    # beside it
    assert box("probe", "exit", "7", working_dir="C:/App").create().start().result()[0] == 7
    with pytest.raises(CannotStart, match="The directory name is invalid"):
        box("cmd", "/c", "ver", working_dir="C:\\app\\probe.exe").create().start()


@pytest.mark.parametrize(
    "how, printed, code",
    [
        ("end", ["event 6", "bye"], 42),
        ("return", ["event 6"], 0xC000013A),
        ("none", [], 0xC000013A),
    ],
)
@pytest.mark.parametrize(
    "command", [(PROBE, "wait"), ("cmd", "/c", PROBE, "wait")], ids=["itself", "shell"]
)
def test_all_processes_receive_shutdown(
    box: Make, command: tuple[str, ...], how: str, printed: list[str], code: int
) -> None:
    made = box(*command, how).create().start()
    assert made.line() == "ready"
    made.signal(15)
    ended, out, _ = made.result()
    assert (ended & 0xFFFFFFFF, out.splitlines()) == (code, printed)


def test_a_program_that_does_not_exit_is_killed(box: Make) -> None:
    made = box(PROBE, "wait", "stay").create().start()
    assert made.line() == "ready"
    made.signal(15)
    assert made.line() == "event 6"
    made.signal(9)
    assert made.result()[0] == -1


def test_standard_input_reaches_the_program(box: Make) -> None:
    made = (
        box("cmd", "/v:on", "/c", "set /p first= & echo got !first!")
        .create()
        .start(stdin=subprocess.PIPE)
    )
    assert made.result(b"one\r\ntwo\r\n")[1].strip().startswith("got one")


def test_a_server(box: Make) -> None:
    made = box(PROBE, "serve", "80").create().start()
    assert made.line() == "ready"
    with made.socket() as client:
        client.connect(("127.0.0.1", 80))
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_commands_in_a_container(box: Make) -> None:
    made = box(PROBE, "wait", "end", env=(("A", "b"),)).create().start()
    assert made.exec("cmd", "/c", "echo %A% %COMPUTERNAME%") == (0, "b WEB-0\r\n")
    assert made.exec(PROBE, "exit", "70000") == (70000, "")
    with pytest.raises(
        RuntimeFailure,
        match=r'failed to start exec "exec": hcs::System::CreateProcess .*cannot find the file',
    ):
        made.exec("nothing.exe")
    assert made.memory() < 36 * _MIB


@pytest.mark.parametrize(
    "command", [("cmd", "/c", "nothing"), (r"C:\Windows\System32\CMD.EXE", "/c", "nothing")]
)
def test_the_shell_finds_no_program(box: Make, command: tuple[str, ...]) -> None:
    made = box(*command, env=(("PATH", r"C:\none;;C:\Windows\System32;"),)).create().start()
    code, _, err = made.result()
    printed = (
        "'nothing' is not recognized as an internal or external command, operable program or "
        "batch file."
    )
    assert (code, " ".join(err.split())) == (1, printed)


def test_accounts(box: Make) -> None:
    script = (
        r"whoami & echo %USERPROFILE%& echo x> C:\Windows\x & echo y> C:\app\y & mkdir C:\new & "
        r"dir /b C:\app C:\windows\x"
    )
    user = WindowsContainer(run_as_user_name="ContainerUser")
    _, out, err = box("cmd", "/c", script, windows=user).create().start().result()
    assert out.splitlines()[:2] == ["user manager\\containeruser", r"C:\Users\ContainerUser"]
    assert "y" in out.splitlines() and "x" not in out.splitlines() and "denied" in err
    _, out, _ = (
        box("cmd", "/c", "echo %USERNAME%& cd %TEMP% && cd", image={"User": "web"})
        .create()
        .start()
        .result()
    )
    assert out == "web\r\nC:\\Users\\web\\AppData\\Local\\Temp\r\n"
    nobody = box("cmd", windows=WindowsContainer(run_as_user_name="nobody"))
    with pytest.raises(
        CannotStart, match=r"CreateProcess .*: The user name or password is incorrect.: unknown$"
    ):
        nobody.create()


def test_the_registry_is_that_of_the_build(box: Make) -> None:
    query = r"HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion"
    made = box(PROBE, "wait", "end").create().start()
    printed = [
        made.exec("reg", "query", query, "/v", name)[1].split()
        for name in ("ProductName", "UBR", "CurrentBuild")
    ]
    assert [" ".join(words[words.index("NT\\CurrentVersion") + 1 :]) for words in printed] == [
        "ProductName REG_SZ Windows Server 2019 Datacenter",
        "UBR REG_DWORD 0x6a1",
        "CurrentBuild REG_SZ 17763",
    ]


@pytest.mark.parametrize("number", [18363, 19041, 20348])
def test_builds(box: Make, cache: Path, number: int) -> None:
    platform = WinePlatform(cache, build=number)
    same = box("cmd", "/c", "ver", platform=platform, version=f"10.0.{number}.1")
    assert f"10.0.{number}" in same.create().start().result()[1]
    other = box("cmd", "/c", "ver", platform=platform)
    with pytest.raises(CannotStart) as failed:
        other.create()
    assert str(failed.value) == (
        "rpc error: code = Unknown desc = failed to create containerd task: "
        f"hcs::CreateComputeSystem {other.id}: "
        "The container operating system does not match the host operating system.: unknown"
    )


@pytest.mark.parametrize("limit", [24, 100])
def test_allocations_fail_at_the_limit_without_a_kill(box: Make, limit: int) -> None:
    limited = WindowsContainer(resources=WindowsResources(memory_limit=limit * _MIB))
    got = box(PROBE, "commit", windows=limited).create().start().result()[0]
    assert limit - 10 <= got <= limit + 24


def test_services(box: Make) -> None:
    made = box(PROBE, "wait", "end").create().start()
    assert made.exec("sc", "create", "probe", "binPath=", f"{PROBE} service")[0] == 0
    assert made.exec("sc", "start", "probe")[0] == 0
    while "START_PENDING" in (state := made.exec("sc", "query", "probe")[1]):  # sc does not wait
        pass
    assert "RUNNING" in state
    assert made.exec("sc", "stop", "probe")[0] == 0
    while "STOP_PENDING" in (state := made.exec("sc", "query", "probe")[1]):
        pass
    assert "STOPPED" in state


def test_volumes(box: Make, tmp_path: Path) -> None:
    volume, secret = tmp_path / "volume", tmp_path / "secret"
    (volume / "sub").mkdir(parents=True)
    (secret / "..data").mkdir(parents=True)
    (secret / "..data" / "key").write_text("value")
    (secret / "key").symlink_to("..data/key")
    mounts = (
        Mount("C:\\data\\inner", str(volume / "sub")),
        Mount("c:/DATA", str(volume)),
        Mount("C:\\windows\\System32\\secret", str(secret), read_only=True),
        Mount("D:", str(volume)),
        Mount("C:\\app\\file.txt", str(secret / "..data" / "key"), read_only=True),
    )
    script = (
        r"echo a> C:\data\one& echo b> C:\Data\inner\two& echo c> D:\three& type "
        r"C:\Windows\System32\secret\key&"
        r"type C:\app\file.txt& echo d> C:\Windows\System32\secret\four"
    )
    _, out, _ = box("cmd", "/c", script, mounts=mounts).create().start().result()
    assert out == "valuevalue"
    assert sorted(
        str(path.relative_to(volume)) for path in volume.rglob("*") if path.is_file()
    ) == ["one", "sub/two", "three"]
    assert not (secret / "four").exists()


def _answer(
    server: socket.socket, requested: list[str], known: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """There is no such name, unless it is known: by the records of its answer, which begin after
    the name.
    """
    while True:
        try:
            query, client = server.recvfrom(512)
        except OSError:
            return
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += query[at] + 1
        requested.append(".".join(labels))
        record = known.get(f"{requested[-1]} {query[at + 2]}", b"")
        answer = b"\x81\x80\0\1\0\1\0\0\0\0" if record else b"\x81\x83\0\1\0\0\0\0\0\0"
        server.sendto(query[:2] + answer + query[12 : at + 5] + record, client)


def test_names_are_looked_up_by_windows_rule(box: Make) -> None:
    dns = DnsConfig(servers=("127.0.0.1",), searches=("ns.svc.cluster.local", "svc.cluster.local"))
    made = box(PROBE, "wait", "end", dns=dns).create().start()
    requested: list[str] = []
    with made.socket(socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        threading.Thread(target=_answer, args=(server, requested), daemon=True).start()
        assert made.exec(PROBE, "lookup", "localhost")[1] == "127.0.0.1\n"
        assert made.exec(PROBE, "lookup", "WEB-0")[1] == "127.0.0.1\n"
        made.exec(PROBE, "lookup", "a.b")
        made.exec(PROBE, "lookup", "single")
        made.exec(
            "cmd", "/c", r"echo 10.9.8.7 db db.example>> C:\Windows\System32\drivers\etc\hosts"
        )
        for name in ("db", "db.example"):
            assert made.exec(PROBE, "lookup", name)[1] == "10.9.8.7\n"
    assert requested == ["a.b", "single.ns.svc.cluster.local", "single"]


def test_errors_have_windows_words(box: Make, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    mounts = (Mount(r"C:\data", str(tmp_path / "data"), read_only=True),)
    _, out, err = box("cmd", "/c", r"echo x > C:\data\x", mounts=mounts).create().start().result()
    assert (out, err.strip()) == ("", "Access is denied.")


def test_nslookup(box: Make) -> None:
    dns = DnsConfig(servers=("127.0.0.1",), searches=("ns.svc.cluster.local", "svc.cluster.local"))
    made = box(PROBE, "wait", "end", dns=dns).create().start()
    head = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4"
    known = {
        "web.ns.svc.cluster.local 1": head + bytes((10, 1, 2, 3)),
        "a.b 1": head + bytes((10, 9, 8, 7)),
    }
    server, requested = "Server:  UnKnown\r\nAddress:  127.0.0.1\r\n\r\n", list[str]()
    with made.socket(socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 53))
        threading.Thread(target=_answer, args=(listening, requested, known), daemon=True).start()
        printed = f"{server}Name:    web.ns.svc.cluster.local\r\nAddress:  10.1.2.3\r\n\r\n"
        assert made.exec("nslookup", "-type=A", "web") == (0, printed)
        assert (
            made.exec("nslookup", "-type=A", "a.b")[1]
            == f"{server}Name:    a.b\r\nAddress:  10.9.8.7\r\n\r\n"
        )
        assert made.exec("nslookup", "none.") == (0, server)
    names = [name for name in requested if not name.endswith(".arpa")]
    assert names == ["web.ns.svc.cluster.local", "a.b.ns.svc.cluster.local", "a.b", "none"]


_ANSWERS = {
    "GET /plain": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain",
    "GET /close": b"HTTP/1.0 200 OK\r\n\r\nclose",
    "GET /chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n"
    ),
    "GET /none": b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
    "GET /there": b"HTTP/1.1 302 Found\r\nLocation: plain\r\nContent-Length: 0\r\n\r\n",
    "HEAD /plain": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    "POST /form": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
}


def _serve_http(listening: socket.socket, requested: list[str]) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with client:
            requested.append(client.recv(65536).decode())
            if requested[-1].startswith("POST") and requested[-1].endswith("\r\n\r\n"):
                requested[-1] += client.recv(65536).decode()
            client.sendall(_ANSWERS.get(" ".join(requested[-1].split()[:2]), b""))


@pytest.mark.parametrize(
    "words, code, out",
    [
        ("-s http://127.0.0.1:8000/plain", 0, "plain"),
        ("-s 127.0.0.1:8000/close", 0, "close"),
        ("-s http://127.0.0.1:8000/chunks", 0, "abc0123456789"),
        ("-sI http://127.0.0.1:8000/plain", 0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("-s -w %{http_code} http://127.0.0.1:8000/none", 0, "gone404"),
        ("-sf http://127.0.0.1:8000/none", 22, ""),
        ("-s http://127.0.0.1:8000/there", 0, ""),
        ("-sL http://127.0.0.1:8000/there", 0, "plain"),
        ("-s -d a=1 --data b=2 -H X-One:1 http://127.0.0.1:8000/form", 0, "ok"),
        ("-s http://127.0.0.1:8000/silence", 52, ""),
        ("-s -w %{http_code} http://127.0.0.1:1/", 7, "000"),
        ("-s https://127.0.0.1:8000/plain", 1, ""),
        ("-s --no-such-thing http://127.0.0.1:8000/plain", 2, ""),
    ],
)
def test_curl(browser: tuple[Box, list[str]], words: str, code: int, out: str) -> None:
    made, requested = browser
    assert made.exec("curl", *words.split()) == (code, out)
    if "/form" in words:
        head, _, body = requested[-1].partition("\r\n\r\n")
        assert body == "a=1&b=2" and {
            "Host: 127.0.0.1:8000",
            "X-One:1",
            "Content-Length: 7",
        } <= set(head.split("\r\n"))


@pytest.fixture(scope="module")
def browser(
    wine: WinePlatform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Box, list[str]]]:
    """A container with a web server at its own address, and what that was asked."""
    folder, requested = tmp_path_factory.mktemp("browser"), list[str]()
    config = ContainerConfig("c", 0, "image", "sha256:0", command=(PROBE, "wait", "end"))
    made = Box(
        wine,
        folder / "box",
        config,
        Image([probe.layer(folder / "layer")], {}, "10.0.17763.1697"),
        DnsConfig(),
    )
    made.create().start()
    with made.socket() as listening:
        listening.bind(("127.0.0.1", 8000))
        listening.listen()
        threading.Thread(target=_serve_http, args=(listening, requested), daemon=True).start()
        yield made, requested
    made.remove()


def test_ipconfig_shows_the_name_servers(box: Make) -> None:
    dns = DnsConfig(servers=("10.96.0.10", "1.1.1.1"), searches=("ns.svc.cluster.local",))
    made = box(PROBE, "wait", "end", dns=dns).create().start()
    code, out = made.exec("ipconfig", "/all")
    assert code == 0 and out.startswith(
        "\r\nWindows IP Configuration\r\n\r\n   Host Name . . . . . . . . . . . . : "
    )
    for words in (
        "link add Ethernet type veth peer name other",
        "address add 10.244.3.7/24 dev Ethernet",
        "link set other up",
        "link set Ethernet up",
    ):
        subprocess.run(["nsenter", "-t", str(made.inside), "-n", "ip", *words.split()], check=True)
    key = r"HKLM\System\CurrentControlSet\Services\TCPIP\Parameters\Interfaces"
    words = made.exec("reg", "query", key, "/s", name="registry")[1].split()
    assert words[words.index("NameServer") + 2] == "10.96.0.10,1.1.1.1"
    assert words[words.index("SearchList") + 2] == "ns.svc.cluster.local"
    lines = made.exec("ipconfig", "/all", name="again")[1].split("\r\n")
    assert "Ethernet adapter vEthernet (Ethernet):" in lines
    assert "   IPv4 Address. . . . . . . . . . . : 10.244.3.7(Preferred) " in lines
    assert "   Subnet Mask . . . . . . . . . . . : 255.255.255.0" in lines
    at = lines.index("   DNS Servers . . . . . . . . . . . : 10.96.0.10")
    assert lines[at + 1].strip() == "1.1.1.1" and "127.0.0.1" not in "".join(lines)


def test_a_pipe_of_the_node(box: Make, tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "engine"))
    listening.listen()

    def serve() -> None:
        for _ in range(2):
            client, _ = listening.accept()
            client.sendall(client.recv(100).upper())
            client.close()

    threading.Thread(target=serve, daemon=True).start()
    mounts = (Mount(r"\\.\pipe\engine", str(tmp_path / "engine")),)
    made = box(PROBE, "wait", "end", mounts=mounts).create().start()
    for name in ("first", "second"):
        assert made.exec(PROBE, "pipe", r"\\.\pipe\engine", name, name=name) == (0, name.upper())
    listening.close()


def test_without_helpers_less_works_but_containers_run(
    box: Make, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as nothing:
        nothing.setattr("transom.runtime.wine.helpers.find_program", lambda name: None)
        helpers = Helpers(tmp_path, shipped=tmp_path)
    assert len(helpers.missing()) == len(HELPERS)
    made = box(
        "cmd",
        "/c",
        "echo %A%& exit 300",
        env=(("A", "b"),),
        platform=WinePlatform(cache, helpers=helpers),
    )
    assert made.create().start().result()[:2] == (300 % 256, "b\r\n")


def test_a_killed_main_process_is_a_failure(box: Make) -> None:
    made = box("cmd", "/c", "ping -t localhost").create().start()
    assert made.line() == "" and made.line().startswith("Pinging")
    [shell] = _named(made, "cmd")
    os.kill(shell, signal.SIGKILL)
    assert made.result()[0] == -1


def test_children_that_are_killed_do_not_change_the_exit_code(box: Make) -> None:
    made = box("cmd", "/c", "cmd /c ping -t localhost & exit 0").create().start()
    assert made.line() == "" and made.line().startswith("Pinging")
    _, inner = _named(made, "cmd")
    pings = [*_named(made, "ping"), *_named(made, "ping.exe")]
    os.kill(inner, signal.SIGKILL)
    for pid in pings:
        with contextlib.suppress(ProcessLookupError):  # the container may have ended by now
            os.kill(pid, signal.SIGKILL)
    assert made.result()[0] == 0


def test_a_working_directory_that_is_missing_is_made(box: Make) -> None:
    made = box("cmd", "/c", "cd", working_dir=r"C:\srv\New Folder").create().start()
    assert made.result()[:2] == (0, "C:\\srv\\New Folder\r\n")
    user = WindowsContainer(run_as_user_name="ContainerUser")
    made = (
        box("cmd", "/c", r"echo x> here.txt& cd", windows=user, image={"WorkingDir": r"C:\work"})
        .create()
        .start()
    )
    assert made.result()[:2] == (0, "C:\\work\r\n")


def test_docker_takes_directories_only_and_no_network_of_the_host(
    box: Make, cache: Path, tmp_path: Path
) -> None:
    docker = WinePlatform(cache, engine="docker")
    file = tmp_path / "file.txt"
    file.write_text("x")
    for mount, why in (
        (Mount("C:\\file.txt", str(file)), "source path must be a directory"),
        (
            Mount("C:\\data", str(tmp_path / "none")),
            f"bind source path does not exist: {tmp_path / 'none'}",
        ),
    ):
        with pytest.raises(RuntimeFailure, match=re.escape(why)):
            box("cmd", platform=docker, mounts=(mount,)).create()
    config = SandboxConfig("pod", "default", "uid", linux=LinuxSandbox(host_network=True))
    with pytest.raises(
        RuntimeFailure,
        match=r'failed to start sandbox container for pod "pod": .*: network host not found',
    ):
        docker.sandbox(config, "node")
    assert WinePlatform(cache).sandbox(config, "node").network


def test_docker_says_that_a_build_does_not_fit_in_its_own_words(box: Make, cache: Path) -> None:
    docker = WinePlatform(cache, build=20348, engine="docker")
    with pytest.raises(CannotStart) as failed:
        box("cmd", "/c", "ver", platform=docker).create()
    text = str(failed.value)
    assert "Error response from daemon: hcsshim::CreateComputeSystem" in text
    assert "The container operating system does not match the host operating system." in text


def _named(made: Box, name: str) -> list[int]:
    """Processes of the container by what Unix calls them, the oldest first.

    Process numbers start again at the lowest ones, so only the start time gives the order.
    """
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if (
                made.id in Path(f"/proc/{entry}/cgroup").read_text()
                and Path(f"/proc/{entry}/comm").read_text() == f"{name}\n"
            ):
                started = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[19]
                found.append((int(started), int(entry)))
    return [pid for _, pid in sorted(found)]
