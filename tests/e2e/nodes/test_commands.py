"""Commands in containers: exec, attach, run, cp and debug, with pipes and at a terminal."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .terminal import Size, session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

LINUX = '--overrides={"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}'


def at_terminal(
    space: Space, *args: str, steps: list[tuple[str, str | Size | None]], size: Size = (24, 80)
) -> tuple[str, int]:
    return session(space.command(*args), space.kubectl.cluster.env, steps, size)


def test_exec(home: Space) -> None:
    done = home.done("exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.endswith("err\ncommand terminated with exit code 7\n")
    assert (
        home("exec", "--stdin", "shell", "--", "wc", "-c", stdin="x" * 100_000).strip() == "100000"
    )
    assert home("exec", "talker", "--container=once", "--", "hostname") == "talker\n"
    assert home("exec", "deployment/web", "--", "cat", "/etc/hostname").startswith("web-")
    missing = home.done("exec", "shell", "--", "no-such-command")
    assert missing.returncode == 1
    assert 'exec: "no-such-command": executable file not found in $PATH' in missing.stderr
    assert (
        "container none is not valid"
        in home.done("exec", "shell", "--container=none", "--", "true").stderr
    )


def test_exec_at_a_terminal(home: Space) -> None:
    shown, code = at_terminal(
        home,
        "exec",
        "-it",
        "shell",
        "--",
        "sh",
        size=(31, 97),
        steps=[
            ("# ", "stty size\n"),
            ("31 97", (40, 100)),
            ("# ", "sleep 0.2; stty size\n"),
            ("40 100", "exit 5\n"),
        ],
    )
    assert code == 5
    assert shown.endswith("command terminated with exit code 5\r\n")


def test_attach(home: Space) -> None:
    word = secrets.token_hex(4)
    with home.running("attach", "--stdin", "echo", stdin=-1) as attached:
        assert attached.stdin is not None and attached.stdout is not None
        attached.stdin.write(word + "\n")
        assert any(line == word + "\n" for line in attached.stdout)
        attached.stdin.close()
        assert attached.wait(10) == 0
    assert word in home("logs", "echo")
    shown, _ = at_terminal(
        home,
        "attach",
        "-it",
        "shell",
        steps=[
            ("try pressing enter.", "\n"),
            ("# ", f"echo {word[:4]}''{word[4:]}\n"),
            (word, None),
        ],
    )
    assert word in shown
    # A container outlives those who typed there.
    pods = home.object("pods", "echo", "shell")["items"]
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0, 0]


def test_run_and_remove(home: Space) -> None:
    name = f"once-{secrets.token_hex(2)}"
    run = ("run", name, "--image=busybox:1.32", "--restart=Never", "--rm", LINUX)
    done = home.done(*run, "--stdin", "--", "sh", "-c", "tr a-z A-Z; exit 3", stdin="quiet\n")
    assert "QUIET\n" in done.stdout and f'pod "{name}" deleted' in done.stdout
    assert done.returncode == 3
    shown, code = at_terminal(
        home,
        *run,
        "-it",
        "--",
        "sh",
        steps=[
            ("try pressing enter.", "\n"),
            ("# ", "echo hel''lo; exit 4\n"),
        ],
    )
    assert "\r\nhello\r\n" in shown and code == 4
    assert (
        home.done("get", "pod", name).stderr
        == f'Error from server (NotFound): pods "{name}" not found\n'
    )


def test_files_are_copied_both_ways(home: Space, tmp_path: Path) -> None:
    there = f"/tmp/{secrets.token_hex(4)}"
    (tmp_path / "from/sub").mkdir(parents=True)
    (tmp_path / "from/one").write_text("one\n")
    (tmp_path / "from/sub/big").write_bytes(secrets.token_bytes(300_000))
    home("cp", str(tmp_path / "from"), f"shell:{there}")
    assert home("exec", "shell", "--", "cat", f"{there}/one") == "one\n"
    home("cp", f"shell:{there}", str(tmp_path / "back"))
    assert (tmp_path / "back/one").read_text() == "one\n"
    assert (tmp_path / "back/sub/big").read_bytes() == (tmp_path / "from/sub/big").read_bytes()
    home("cp", f"{home.name}/shell:{there}/one", str(tmp_path / "alone"))
    assert (tmp_path / "alone").read_text() == "one\n"
    home("cp", str(tmp_path / "alone"), f"shell:{there}/two", "--container=sh")
    assert home("exec", "shell", "--", "ls", there) == "one\nsub\ntwo\n"


def test_debug(home: Space) -> None:
    debug = ("alpha", "debug") if home.is_old else ("debug",)
    name = f"dbg-{secrets.token_hex(2)}"
    done = home.done(
        *debug,
        "--stdin",
        "echo",
        "--image=busybox:1.32",
        f"--container={name}",
        "--target=cat",
        "--",
        "sh",
        "-c",
        "cat; hostname; exit 4",
        stdin="typed\n",
    )
    pod = home.until(
        lambda pod: any(
            s["name"] == name and "running" in s["state"]
            for s in pod["status"]["ephemeralContainerStatuses"]
        ),
        "pod/echo",
    )
    assert done.stdout.endswith("typed\n") and pod["status"]["phase"] == "Running"
    home(
        *debug,
        "echo",
        "--image=busybox:1.32",
        f"--copy-to={name}",
        "--container=extra",
        "--",
        "sleep",
        "1000",
    )
    home.ready(f"pod/{name}")
    assert [c["name"] for c in home.object(f"pod/{name}")["spec"]["containers"]] == ["cat", "extra"]
    home("delete", "pod", name, "--now")
    done = home.done(
        *debug, "--stdin", "node/linux-1", "--image=busybox:1.32", "--", "cat", "/host/etc/hostname"
    )
    assert "linux-1\n" in done.stdout.splitlines(keepends=True)


def test_the_python_client_runs_commands(mixed_cluster: Any, standing: str) -> None:
    from kubernetes import client, config, stream

    core = client.CoreV1Api(config.new_client_from_config(str(mixed_cluster.kubeconfig)))
    printed = stream.stream(
        core.connect_get_namespaced_pod_exec,
        "shell",
        standing,
        command=["echo", "hi"],
        stderr=True,
        stdin=False,
        stdout=True,
        tty=False,
    )
    assert printed == "hi\n"
    session = stream.stream(
        core.connect_get_namespaced_pod_exec,
        "shell",
        standing,
        command=["sh"],
        stderr=True,
        stdin=True,
        stdout=True,
        tty=False,
        _preload_content=False,
    )
    session.write_stdin("echo problem >&2; exit 6\n")
    session.run_forever(timeout=10)
    assert (session.read_stderr(), session.returncode) == ("problem\n", 6)
    forward = stream.portforward(
        core.connect_get_namespaced_pod_portforward, _web(core, standing), standing, ports="80"
    )
    connection = forward.socket(80)
    connection.setblocking(True)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
    answer = b""
    while data := connection.recv(65536):
        answer += data
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"Welcome to nginx!" in answer
    assert forward.error(80) is None


def _web(core: Any, namespace: str) -> str:
    return str(core.list_namespaced_pod(namespace, label_selector="app=web").items[0].metadata.name)
