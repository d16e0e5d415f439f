"""Limits of what runs in a container: commands, probes, environment, termination messages."""

from __future__ import annotations

from typing import Final

from transom.windows.records import RecordField, WindowsLimit

_SHELL: Final = r"^(/(usr/)?(local/)?bin/)?(ba|da|a|z|k)?sh$"
_HANDLERS: Final = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle.postStart",
    "lifecycle.preStop",
)
_LINUX_PATH: Final = r"^/(bin|sbin|usr|etc|dev|proc|sys|lib|lib64|root|home|boot)(/|$)"

LIMITS: Final = (
    WindowsLimit(
        id="WIN-CTR-001",
        title="Termination messages are lost with Docker",
        statement="The termination message is a single file mounted into the container. Docker on "
        "Windows cannot mount single files, so the status of the terminated container has no "
        "message.",
        effect="ignored",
        remedy=(
            "Use `terminationMessagePolicy: FallbackToLogsOnError`, which uses the end of the log, "
            "or use containerd."
        ),
        checklist=("FEAT-03", "API-30"),
        runtimes=("docker",),
        fields=(
            RecordField("spec.containers[*].terminationMessagePath", "not", "/dev/termination-log"),
        ),
        severity="warning",
        section="V1.Container",
        note=("The default path /dev/termination-log is accepted, but the message stays empty."),
        topics=("termination message", "terminationMessagePath", "terminationMessagePolicy"),
    ),
    WindowsLimit(
        id="WIN-CTR-002",
        title="Windows containers have no sh",
        statement="Windows base images have cmd and, except Nano Server, powershell. They have no "
        "sh or bash.",
        effect="fails",
        remedy='Use ["cmd", "/c", ...] or ["powershell", "-Command", ...].',
        checklist=("API-02", "API-08"),
        fields=(
            RecordField("spec.containers[*].command[0]", "matches", _SHELL),
            RecordField(
                "spec.containers[*].command[0]",
                "matches",
                r"^/(usr/|s?bin/|opt/|docker-entrypoint)",
            ),
        ),
        severity="error",
        reason="CrashLoopBackOff",
        message="The system cannot find the file specified.",
        section="API",
        topics=("shell", "bash", "entrypoint"),
    ),
    WindowsLimit(
        id="WIN-CTR-003",
        title="Probes and hooks that run sh fail",
        statement=(
            "Commands of probes and hooks run inside the container, where Windows has no sh, "
            "cat, test or kill."
        ),
        effect="fails",
        remedy="Use httpGet or tcpSocket, or a Windows command.",
        checklist=("API-02", "API-08"),
        fields=(
            *(
                RecordField(f"spec.containers[*].{handler}.exec.command[0]", "matches", _SHELL)
                for handler in _HANDLERS
            ),
            *(
                RecordField(
                    f"spec.containers[*].{handler}.exec.command[0]",
                    "matches",
                    r"^(/(usr/)?s?bin/.+|cat|test|grep|kill|pgrep|wget|ls|true|false|pidof)$",
                )
                for handler in _HANDLERS
            ),
        ),
        severity="error",
        reason="Unhealthy",
        message="The system cannot find the file specified.",
        section="API",
        topics=("probe", "hook", "livenessProbe", "readinessProbe", "preStop"),
    ),
    WindowsLimit(
        id="WIN-CTR-004",
        title="Linux paths in a Windows command",
        statement="Programs in the container need Windows paths; /etc, /dev and similar paths do "
        "not exist.",
        effect="degraded",
        remedy="Use C:\\... paths; in YAML double quotes, write \\\\ for one backslash.",
        checklist=("API-07", "API-08", "LNET-02"),
        fields=(
            RecordField("spec.containers[*].args[*]", "matches", _LINUX_PATH),
            RecordField("spec.containers[*].workingDir", "matches", _LINUX_PATH),
        ),
        severity="warning",
        section="API",
        topics=("path", "backslash"),
    ),
    WindowsLimit(
        id="WIN-CTR-005",
        title="Names of environment variables differ by more than case",
        statement=(
            "Windows ignores the case of variable names: of PATH and Path, only one is kept."
        ),
        effect="degraded",
        remedy="Use one spelling.",
        check="env-case",
        severity="warning",
        section="API",
        topics=("environment", "env"),
    ),
    WindowsLimit(
        id="WIN-CTR-006",
        title="Process exit codes are Windows' own",
        statement="0 means success and any other code means failure, but the codes differ: a "
        "console program that is asked to stop exits with 3221225786, and 137 and 143 do not "
        "occur.",
        effect="degraded",
        remedy="Do not compare exit codes with 128 + signal.",
        checklist=("API-13",),
        section="API",
        topics=("exit code",),
    ),
    WindowsLimit(
        id="WIN-CTR-007",
        title="Windows sends no POSIX signals",
        statement="Console programs receive ctrl-c, ctrl-break or a shutdown event, services a "
        "stop control, windows WM_CLOSE; SIGTERM, SIGHUP and SIGUSR1 do not exist.",
        effect="degraded",
        remedy=(
            "Handle CTRL_SHUTDOWN_EVENT in a console control handler, or stop gracefully in a "
            "preStop hook."
        ),
        checklist=("API-09", "API-10", "API-11"),
        section="API",
        topics=("signal", "SIGTERM"),
    ),
)
