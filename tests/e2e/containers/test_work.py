"""Workloads over their lives: rolled out, updated, run to their end, restarted when they crash,
terminated.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.nodes.conftest import Space

from .conftest import apply, deployment, ended, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
WAIT = {"linux": ("sleep", "86400"), "windows": ("ping", "-n", "86400", "127.0.0.1")}


def test_rolling_updates(ns: Space) -> None:
    for os_name, command in WAIT.items():
        apply(
            ns,
            deployment(
                os_name,
                os_name,
                2,
                *command,
                container={"env": [{"name": "EDITION", "value": "first"}]},
            ),
        )
    for os_name in WAIT:
        ns("rollout", "status", f"deployment/{os_name}", "--timeout=30s")
        ns("set", "env", f"deployment/{os_name}", "EDITION=second")
    for os_name in WAIT:
        ns("rollout", "status", f"deployment/{os_name}", "--timeout=30s")
    assert ns("exec", "deployment/linux", "--", "sh", "-c", "echo $EDITION") == "second\n"
    assert ns("exec", "deployment/windows", "--", "cmd", "/c", "echo %EDITION%") == "second\n"


def test_jobs_and_init_containers(ns: Space) -> None:
    commands = (
        ("linux", ("sh", "-c", "echo made > /made/it"), ("cat", "/made/it")),
        ("windows", ("cmd", "/c", r"echo made>C:\made\it"), ("cmd", "/c", r"type C:\made\it")),
    )
    for os_name, say, wait in commands:
        mount = {"volumeMounts": [{"name": "made", "mountPath": "/made"}]}
        one = pod(
            os_name,
            os_name,
            *wait,
            container=mount,
            restartPolicy="Never",
            volumes=[{"name": "made", "emptyDir": {}}],
        )
        maker = {**one["spec"]["containers"][0], "name": "maker", "command": list(say)}
        one["spec"]["initContainers"] = [maker]
        template = {"metadata": {}, "spec": one["spec"]}
        apply(
            ns,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": os_name},
                "spec": {"completions": 2, "parallelism": 2, "template": template},
            },
        )
    for os_name in WAIT:
        ns("wait", "--for=condition=complete", f"job/{os_name}", "--timeout=30s")
        assert ns("logs", f"job/{os_name}", "--container=c") == "made\n"


def test_crashes(ns: Space) -> None:
    """Started again, ever later; the log of the last life, and all 32 bits of its exit code."""
    apply(
        ns,
        pod("linux", "linux", "sh", "-c", "echo oh no; exit 3"),
        pod("windows", "windows", "cmd", "/c", "echo oh no& probe exit 3221225786"),
    )
    codes = {
        "linux": (3,),
        "windows": (3221225786, 3221225786 - (1 << 32)),
    }  # STATUS_CONTROL_C_EXIT; containerd's has a sign

    def waits(found: Any) -> bool:
        status = found["status"].get("containerStatuses", [{"state": {}}])[0]
        return (
            status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
            and status["restartCount"] >= 1
        )

    for name, expected in codes.items():
        found = ns.until(waits, "pod", name)
        assert (
            found["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"]
            in expected
        )
        assert ns("logs", name, "--previous") == "oh no\n"


def test_programs_that_are_not_there(ns: Space) -> None:
    apply(
        ns, pod("linux", "linux", "/no/such/program"), pod("windows", "windows", r"C:\no\such.exe")
    )
    for name, printed in (
        ("linux", 'exec: \\"/no/such/program\\": stat /no/such/program: no such file or directory'),
        ("windows", "The system cannot find the file specified."),
    ):
        found = ns.until(
            lambda found: (
                "lastState" in str(found) and "message" in str(found["status"]["containerStatuses"])
            ),
            "pod",
            name,
        )
        assert printed.replace("\\", "") in str(found["status"]["containerStatuses"]).replace(
            "\\", ""
        )


@pytest.mark.parametrize(
    "os_name, command, last",
    [
        (
            "linux",
            (
                "sh",
                "-c",
                "trap 'echo terminating; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
            ),
            "terminating\n",
        ),
        ("windows", ("probe", "wait", "end"), "event 6\nbye\n"),  # CTRL_SHUTDOWN_EVENT
    ],
)
def test_a_termination_signal(ns: Space, os_name: str, command: tuple[str, ...], last: str) -> None:
    apply(ns, pod("polite", os_name, *command, terminationGracePeriodSeconds=20))
    ns.ready("pod/polite")
    with ns.running("logs", "--follow", "polite") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "ready\n"
        ns("delete", "pod", "polite", "--timeout=10s")
        assert following.stdout.read() == last


def test_probes_that_fail(ns: Space) -> None:
    failing = {
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", "exit 1"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        }
    }
    windows = {
        "livenessProbe": {
            "httpGet": {"port": 9, "path": "/"},
            "periodSeconds": 1,
            "failureThreshold": 1,
        }
    }
    apply(
        ns,
        pod("linux", "linux", *WAIT["linux"], container=failing),
        pod("windows", "windows", *WAIT["windows"], container=windows),
    )
    for name in WAIT:
        ns.until(
            lambda found: found["status"].get("containerStatuses", [{}])[0].get("restartCount"),
            "pod",
            name,
        )
    assert "Liveness probe failed" in ns("get", "events")


def test_ends_of_pods_that_are_not_restarted(ns: Space) -> None:
    apply(
        ns,
        pod("good", "windows", "cmd", "/c", "exit 0", restartPolicy="OnFailure"),
        pod("bad", "windows", "probe", "crash", restartPolicy="Never"),
    )
    assert ended(ns.until(ended, "pod", "good"))["reason"] == "Completed"
    assert ended(ns.until(ended, "pod", "bad"))["exitCode"] in (
        3221225477,
        3221225477 - (1 << 32),
    )  # STATUS_ACCESS_VIOLATION
