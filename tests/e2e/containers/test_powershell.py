"""PowerShell in real Windows containers: the documented web server, commands, terminals, and a
server that outlives Transom.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.nodes.conftest import Space
from tests.e2e.nodes.terminal import session

from .conftest import apply, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
MANIFEST = Path(__file__).parents[1] / "windows" / "manifests" / "win-webserver.yaml"
SERVERCORE = {"image": "mcr.microsoft.com/windows/servercore:ltsc2019"}
TITLE = "<H1>Windows Container Web Server</H1>"
POWERSHELL = ("--", "powershell", "-NoProfile", "-NonInteractive", "-Command")


def test_the_documented_web_server(ns: Space) -> None:
    ns("apply", "--filename", str(MANIFEST))
    apply(ns, pod("client", "linux", "sleep", "3600"))
    ns("rollout", "status", "--timeout=60s", "deployment/win-webserver")
    ns.ready("pod/client")
    first, second = ns("get", "pods", "--selector=app=win-webserver", "--output=name").split()
    for server in (first, second):  # without a readiness probe a pod is ready before it listens
        ns.until(lambda _, server=server: "Listening" in ns("logs", server), server)
    for visit in (1, 2):
        address = ns.object(first)["status"]["podIP"]
        page = ns("exec", "client", "--", "wget", "-q", "-O", "-", f"http://{address}/")
        assert page == f"<html><body>{TITLE}<p>IP {address} callerCount {visit} </body></html>"
    assert TITLE in ns("exec", "client", "--", "wget", "-q", "-O", "-", "http://win-webserver/")
    page = ns(
        "exec",
        second,
        *POWERSHELL,
        "(Invoke-WebRequest -UseBasicParsing http://win-webserver).Content",
    )
    assert TITLE in page
    assert (
        ns("logs", first).replace("\r\n", "\n").startswith("Listening at http://*:80/\n\n> http://")
    )


@pytest.fixture
def shell(ns: Space) -> Space:
    apply(
        ns, pod("ps", "windows", "powershell", "-Command", "Start-Sleep 3600", container=SERVERCORE)
    )
    ns.ready("pod/ps")
    return ns


def test_commands_in_a_container(shell: Space) -> None:
    done = shell.done(
        "exec", "ps", *POWERSHELL, "cmd /c 'exit 7'; $LASTEXITCODE; Write-Error bad; exit 42"
    )
    assert (done.returncode, done.stdout) == (42, "7\n") and "bad" in done.stderr
    done = shell.done(
        "exec", "--stdin", "ps", "--", "powershell", "-Command", "-", stdin="hostname\nexit 3\n"
    )
    assert (done.returncode, done.stdout) == (3, "PS\n")


def test_a_person_at_the_prompt(shell: Space) -> None:
    steps = [
        ("PS C:\\>", "cd C:\\Windows; 6 * 7\r"),
        ("42", ""),
        ("PS C:\\Windows>", "Start-Sleep 600\r"),
        ("600", "\x03"),
        ("PS C:\\Windows>", "cmd\r"),
        ("C:\\Windows>", "exit 5\r"),
        ("PS C:\\Windows>", "exit $LASTEXITCODE\r"),
    ]
    shown, code = session(
        shell.command("exec", "-it", "ps", "--", "powershell"), shell.kubectl.cluster.env, steps
    )
    assert code == 5, shown
    assert "stand-in" in shown


def test_documented_pods_of_other_users(ns: Space) -> None:
    """They stay by `ping -t localhost`."""
    ns("apply", "--filename", str(MANIFEST.with_name("run-as-username.yaml")))
    ns.ready("pods", "--all")
    users = {
        "run-as-username-pod-demo": "ContainerUser",
        "run-as-username-container-demo": "ContainerAdministrator",
    }
    for name, user in users.items():
        assert ns("exec", name, *POWERSHELL, "echo $env:USERNAME") == f"{user}\n"
        assert "Pinging localhost [127.0.0.1]" in ns("logs", name)
