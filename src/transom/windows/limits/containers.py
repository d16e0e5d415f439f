"""Limits of what runs in a container: commands, probes, environment, termination messages."""

from __future__ import annotations

from typing import Final

from transom.windows.records import Field, Limit

_SHELL: Final = r"^(/(usr/)?(local/)?bin/)?(ba|da|a|z|k)?sh$"
_HANDLERS: Final = (
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop",
)
_LINUX_PATH: Final = r"^/(bin|sbin|usr|etc|dev|proc|sys|lib|lib64|root|home|boot)(/|$)"

LIMITS: Final = (
    Limit(
        id="WIN-CTR-001",
        title="Termination messages are lost with Docker",
        statement="A termination message is a single file mounted into the container, which Docker on Windows cannot do: "
        "the status of the ended container has no message.",
        effect="ignored",
        remedy="Use `terminationMessagePolicy: FallbackToLogsOnError`, which takes the end of the log, or containerd.",
        checklist=("FEAT-03", "API-30"),
        runtimes=("docker",),
        fields=(Field("spec.containers[*].terminationMessagePath", "not", "/dev/termination-log"),),
        severity="warning",
        section="V1.Container",
        note="The default path /dev/termination-log is accepted; the message stays empty all the same.",
        topics=("termination message", "terminationMessagePath", "terminationMessagePolicy"),
    ),
    Limit(
        id="WIN-CTR-002",
        title="Windows containers have no sh",
        statement="Base images of Windows have cmd and, but for Nano Server, powershell. A command that starts sh or bash "
        "finds no such file.",
        effect="fails",
        remedy='Use ["cmd", "/c", ...] or ["powershell", "-Command", ...].',
        checklist=("API-02", "API-08"),
        fields=(
            Field("spec.containers[*].command[0]", "matches", _SHELL),
            Field("spec.containers[*].command[0]", "matches", r"^/(usr/|s?bin/|opt/|docker-entrypoint)"),
        ),
        severity="error",
        reason="CrashLoopBackOff",
        message="The system cannot find the file specified.",
        section="API",
        topics=("shell", "bash", "entrypoint"),
    ),
    Limit(
        id="WIN-CTR-003",
        title="Probes and hooks that run sh fail",
        statement="Commands of probes and hooks run inside the container, where Windows has no sh, cat, test or kill.",
        effect="fails",
        remedy="Use httpGet or tcpSocket, or a command of Windows.",
        checklist=("API-02", "API-08"),
        fields=(
            *(Field(f"spec.containers[*].{handler}.exec.command[0]", "matches", _SHELL) for handler in _HANDLERS),
            *(
                Field(f"spec.containers[*].{handler}.exec.command[0]", "matches",
                      r"^(/(usr/)?s?bin/.+|cat|test|grep|kill|pgrep|wget|ls|true|false|pidof)$")
                for handler in _HANDLERS
            ),
        ),
        severity="error",
        reason="Unhealthy",
        message="The system cannot find the file specified.",
        section="API",
        topics=("probe", "hook", "livenessProbe", "readinessProbe", "preStop"),
    ),
    Limit(
        id="WIN-CTR-004",
        title="Linux paths in a Windows command",
        statement="A path that a program in the container interprets needs the form Windows knows; /etc, /dev and their "
        "like do not exist.",
        effect="degraded",
        remedy="Write C:\\... paths; note that double quotes in YAML take \\\\ for one backslash.",
        checklist=("API-07", "API-08", "LNET-02"),
        fields=(
            Field("spec.containers[*].args[*]", "matches", _LINUX_PATH),
            Field("spec.containers[*].workingDir", "matches", _LINUX_PATH),
        ),
        severity="warning",
        section="API",
        topics=("path", "backslash"),
    ),
    Limit(
        id="WIN-CTR-005",
        title="Names of environment variables differ by more than case",
        statement="Windows does not tell PATH from Path: of two variables whose names differ in case only, one is lost.",
        effect="degraded",
        remedy="Use one spelling.",
        check="env-case",
        severity="warning",
        section="API",
        topics=("environment", "env"),
    ),
    Limit(
        id="WIN-CTR-006",
        title="Process exit codes are Windows' own",
        statement="0 is success and everything else failure, but particular codes differ: 3221225786 is a console program "
        "that was told to stop, and there is no 137 or 143.",
        effect="degraded",
        remedy="Do not compare exit codes with 128 + signal.",
        checklist=("API-13",),
        section="API",
        topics=("exit code",),
    ),
    Limit(
        id="WIN-CTR-007",
        title="Windows sends no POSIX signals",
        statement="Console programs get ctrl-c, ctrl-break or a shutdown event, services a stop control, windows WM_CLOSE; "
        "there is no SIGTERM, SIGHUP or SIGUSR1.",
        effect="degraded",
        remedy="Handle CTRL_SHUTDOWN_EVENT in a console control handler, or stop gracefully in a preStop hook.",
        checklist=("API-09", "API-10", "API-11"),
        section="API",
        topics=("signal", "SIGTERM"),
    ),
)
