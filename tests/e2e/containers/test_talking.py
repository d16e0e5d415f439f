"""Programs that answer: over services from one system to the other, to commands, at terminals,
through forwarded ports.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from tests.e2e.nodes.conftest import Space
from tests.e2e.nodes.terminal import session

from .conftest import apply, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
LINUX, WINDOWS = ("linux", "--container=web", "--"), ("windows", "--container=web", "--")


def test_services_from_one_system_to_the_other(home: Space) -> None:
    """By name, with packets of the kernel between them."""
    answer = home("exec", *LINUX, "wget", "-q", "-O", "-", "http://windows/hello")
    assert answer == "hello from windows, a web server on Windows 10.0.17763\n"
    assert home("exec", *WINDOWS, "winweb", "get", "http://linux/hello") == "hello from linux\n"
    assert (
        home("exec", *WINDOWS, "winweb", "get", "http://linux.home.svc.cluster.local/hello")
        == "hello from linux\n"
    )
    page = home("exec", *LINUX, "wget", "-q", "-O", "-", "http://windows/")
    assert "http://linux/hello:</p>\n<pre>hello from linux\n" in page  # there and back
    failed = home.done("exec", *WINDOWS, "winweb", "get", "http://unknown/")
    assert failed.returncode == 1 and "cannot resolve its name" in failed.stderr


@pytest.mark.parametrize(
    "origin, target, verdict",
    [
        ("pod/home/linux", "svc/home/windows", "delivered"),
        ("pod/home/windows", "svc/home/linux", "delivered"),
        ("pod/home/linux", "pod/home/windows:4321", "refused"),
        ("pod/home/windows", "pod/home/linux:4321", "refused"),
        ("node/windows-1", "node/linux-1:4321", "refused"),
        ("node/windows-1", "node/linux-1:10250", "delivered"),
        ("pod/home/linux", "external:443", "delivered"),
        ("pod/home/windows", "external:444", "refused"),
    ],
)
def test_a_trace_knows_the_listening_sockets_of_real_programs(
    home: Space, origin: str, target: str, verdict: str
) -> None:
    """The kernel says which sockets listen, those of programs in containers included."""
    cluster = home.kubectl.cluster
    done = cluster.transom(
        "trace", origin, target, "--name", cluster.name, "--output=json", check=False
    )
    assert json.loads(done.stdout)["verdict"] == verdict, done.stdout


def test_what_windows_programs_see(home: Space) -> None:
    assert "Microsoft Windows 10.0.17763" in home("exec", *WINDOWS, "cmd", "/c", "ver")
    variables = dict(
        line.split("=", 1)
        for line in home("exec", *WINDOWS, "cmd", "/c", "set").splitlines()
        if "=" in line
    )
    assert variables["GREETING"] == 'a "b" c'
    assert (
        variables["COMPUTERNAME"] == "WINDOWS" and variables["USERNAME"] == "ContainerAdministrator"
    )
    assert variables["LINUX_SERVICE_HOST"].startswith("10.96.")
    assert home("exec", *WINDOWS, "probe", "args", "a b", 'c"d', "", "e\\").splitlines() == [
        "a b",
        'c"d',
        "",
        "e\\",
    ]


@pytest.mark.parametrize(
    "inside",
    [
        (*LINUX, "sh", "-c", "echo out; echo err >&2; exit 42"),
        (*WINDOWS, "cmd", "/c", "echo out& echo err 1>&2& exit 42"),
    ],
    ids=["linux", "windows"],
)
def test_exit_codes_and_streams(home: Space, inside: tuple[str, ...]) -> None:
    done = home.done("exec", *inside)
    assert (done.returncode, done.stdout) == (42, "out\n")
    assert "err" in done.stderr


def test_exit_codes_of_32_bits(home: Space) -> None:
    """kubectl takes codes up to 255 from a command, and says which it got."""
    assert (
        'invalid exit code value "3000"'
        in home.done("exec", *WINDOWS, "cmd", "/c", "exit 3000").stderr
    )


def test_standard_input(home: Space) -> None:
    text = "".join(f"line {number}\n" for number in range(2000))
    assert home("exec", "--stdin", *LINUX, "cat", stdin=text) == text
    assert home("exec", "--stdin", *WINDOWS, "probe", "repeat", stdin=text) == text


def test_terminals(home: Space) -> None:
    env = home.kubectl.cluster.env
    steps = [("# ", "stty size\n"), ("31 97", "exit 5\n")]
    shown, code = session(home.command("exec", "-it", *LINUX, "sh"), env, steps, (31, 97))
    assert code == 5, shown
    shown, code = session(
        home.command("exec", "-it", *WINDOWS, "cmd"),
        env,
        [(">", "ver\r"), ("10.0.17763", "exit 6\r")],
    )
    assert code == 6, shown


def test_commands_that_are_not_there(home: Space) -> None:
    assert (
        'exec: "nothing": executable file not found in $PATH'
        in home.done("exec", *LINUX, "nothing").stderr
    )
    assert (
        "The system cannot find the file specified."
        in home.done("exec", *WINDOWS, "nothing").stderr
    )


@pytest.mark.parametrize(
    "os_name, command", [("linux", ("cat",)), ("windows", ("probe", "repeat"))]
)
def test_attach(ns: Space, os_name: str, command: tuple[str, ...]) -> None:
    apply(
        ns,
        pod(
            "talk",
            os_name,
            *command,
            container={"stdin": True, "stdinOnce": True},
            restartPolicy="Never",
        ),
    )
    ns.ready("pod/talk")
    assert ns("attach", "--stdin", "talk", stdin="over and out\n") == "over and out\n"
    ns.until(lambda found: found["status"]["phase"] == "Succeeded", "pod/talk")


@pytest.mark.parametrize("name", ["linux", "windows"])
def test_copies(home: Space, tmp_path: Path, name: str) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    files = {
        "a b": bytes(range(256)) * 1000,
        "d/f": b"",
        "d/ü": b"1",
        "l" * 120: b"2",
        f"{'m' * 90}/{'n' * 90}": b"3",
    }
    for path, content in files.items():
        (there / path).parent.mkdir(parents=True, exist_ok=True)
        (there / path).write_bytes(content)
    home("cp", str(there), f"{name}:/copied", "--container=web")
    home("cp", f"{name}:/copied", str(back), "--container=web")
    assert {
        str(p.relative_to(back)): p.read_bytes() for p in back.rglob("*") if p.is_file()
    } == files


@pytest.mark.parametrize("name", ["linux", "windows"])
def test_forwarded_ports(home: Space, name: str) -> None:
    with home.running("port-forward", f"pod/{name}", ":8080") as forwarding:
        assert forwarding.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
        assert found
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/hello", timeout=20) as answer:
            assert answer.read().decode().startswith(f"hello from {name}")


def test_logs_that_go_on(home: Space) -> None:
    assert home("logs", "linux", "--container=web").startswith("serving\n")
    with home.running("logs", "--follow", "windows", "--container=web") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "listening on port 8080\n"
        home("exec", *LINUX, "wget", "-q", "-O", "-", "http://windows/hello?seen=in-the-log")
        line = ""
        while "seen=in-the-log" not in line:
            line = following.stdout.readline()
            assert line, "the log has ended"
    last = home("logs", "windows", "--container=web", "--tail=1", "--timestamps")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z GET /", last)
