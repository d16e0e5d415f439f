"""GET /logs/?query=...: the logs of a node's services, from journalctl on Linux and Get-WinEvent on
Windows, or from files below the log directory.

The node's own programs read the logs; this module checks the query and builds their command lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from transom.http.messages import Answer, HttpResponse
from transom.kit.clock import parse_rfc3339
from transom.kit.goquote import go_quote
from transom.kit.regexp import RegexpError, compile_regexp
from transom.kubelet.base import KubeletContext
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.hostlogs import ROOT, serve_host_logs
from transom.machinery.field import FieldError, invalid, required, too_many
from transom.machinery.releases import Release
from transom.machinery.releases.features import FeatureSet
from transom.machines.smallfiles import read_small_file

_MAX_LINES: Final = 100_000
_MAX_SERVICES: Final = 4
_MAX_NAME: Final = 256
_MAX_FILE: Final = 16 << 20
_SECONDS: Final = 30.0
_LAST_SECOND: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
_UNSAFE: Final = re.compile(r"[^a-zA-Z\-_.:0-9@]+")
_PLAIN = (b"Content-Type", b"text/plain;charset=UTF-8")
_OPTIONS: Final = ("sinceTime", "untilTime", "tailLines", "boot", "pattern")

Query = Mapping[str, Sequence[str]]


class NodeLogQuery(NamedTuple):
    services: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    lines: int | None = None
    boot: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        return self[2:] != (None, None, None, None, "")


def answers_queries(env: KubeletContext) -> bool:
    config = env.config
    enabled = FeatureSet(Release(*config.release), config.feature_gates).enabled
    return config.enable_system_log_query and enabled("NodeLogQuery")


async def serve_node_logs(env: KubeletContext, path: str, query: Query) -> Answer:
    """Raises HttpFailure."""
    log_query, errors = parse_log_query(query)
    if errors:
        raise HttpFailure(400, _aggregate(errors) + "\n")
    if log_query is None:
        return serve_host_logs(env.host.files, env.os, path)
    if path.strip("/"):
        raise HttpFailure(406, "path not allowed in query mode\n")
    if errors := _check_query(env, log_query):
        raise HttpFailure(406, _aggregate(errors) + "\n")
    if log_query.services:
        return HttpResponse(200, [_PLAIN], await _service_logs(env, log_query))
    return serve_host_logs(env.host.files, env.os, log_query.files[0].replace("\\", "/").strip("/"))


def parse_log_query(query: Query) -> tuple[NodeLogQuery | None, list[FieldError]]:
    """None without a query."""
    errors: list[FieldError] = []
    queries = list(query.get("query", ()))
    files = tuple(q for q in queries if "/" in q or "\\" in q)
    services = tuple(q for q in queries if q not in files and q.strip())
    if "query" in query and not files and not services:
        errors.append(invalid("query", queries, "may not be empty"))
    first = {name: (query.get(name) or [""])[0] for name in _OPTIONS}
    times = {name: _time(name, first[name], errors) for name in ("sinceTime", "untilTime")}
    numbers = {name: _number(name, first[name], errors) for name in ("boot", "tailLines")}
    if errors:
        return None, errors
    found = NodeLogQuery(
        services,
        files,
        times["sinceTime"],
        times["untilTime"],
        numbers["tailLines"],
        numbers["boot"],
        first["pattern"],
    )
    return (None if found == NodeLogQuery() else found), errors


def _time(name: str, text: str, errors: list[FieldError]) -> float | None:
    if not text:
        return None
    try:
        return parse_rfc3339(text)
    except ValueError:
        errors.append(invalid(name, text, "invalid time format"))
    return None


def _number(name: str, text: str, errors: list[FieldError]) -> int | None:
    if not text:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    problem = f"strconv.Atoi: parsing {go_quote(text)}: invalid syntax"
    errors.append(invalid(name, text, problem))
    return None


def _check_query(env: KubeletContext, log_query: NodeLogQuery) -> list[FieldError]:
    errors = [
        invalid("query", name, problem)
        for name in log_query.services
        if (problem := _name_problem(name))
    ]
    if len(log_query.services) > _MAX_SERVICES:
        errors.append(too_many("query", len(log_query.services), _MAX_SERVICES))
    errors += _check_target(env, log_query)
    if (
        log_query.since is not None
        and log_query.until is not None
        and log_query.since > log_query.until
    ):
        shown = _utc(log_query.until).strftime("%Y-%m-%dT%H:%M:%SZ")
        errors.append(invalid("untilTime", shown, "must be after `sinceTime`"))
    if log_query.boot is not None and env.os.name == "windows":
        errors.append(invalid("boot", log_query.boot, "not supported on Windows"))
    if log_query.boot is not None and log_query.boot > 0:
        errors.append(invalid("boot", log_query.boot, "must be less than 1"))
    if log_query.lines is not None and not 0 <= log_query.lines <= _MAX_LINES:
        text = f"must be between 0 and {_MAX_LINES}, inclusive"
        errors.append(invalid("tailLines", log_query.lines, text))
    try:
        compile_regexp(log_query.pattern)
    except RegexpError as problem:
        errors.append(invalid("pattern", log_query.pattern, str(problem)))
    return errors


def _name_problem(name: str) -> str:
    if len(name) > _MAX_NAME:
        return f"length must be less than {_MAX_NAME}"
    return "input contains unsupported characters" if _UNSAFE.search(name) else ""


def _check_target(env: KubeletContext, log_query: NodeLogQuery) -> list[FieldError]:
    files, services = list(log_query.files), list(log_query.services)
    if not files and not services:
        return [required("query", "cannot be empty with options")]
    if files and services:
        shown = f"[{' '.join(files)}], [{' '.join(services)}]"
        return [invalid("query", shown, "cannot specify a file and service")]
    if len(files) > 1:
        return [invalid("query", files, "cannot specify more than one file")]
    if files and log_query.has_options:
        return [invalid("query", files, "cannot specify file with options")]
    if files:
        where = env.os.host_path(f"{ROOT}/{files[0].strip('/')}")
        try:
            env.host.files.below(env.os.host_path(ROOT)).stat(where)
        except OSError as problem:
            return [invalid("query", files, env.os.file_error("statat", files[0], problem))]
    return []


def _aggregate(errors: Sequence[FieldError]) -> str:
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


# ---- the logs ----


async def _service_logs(env: KubeletContext, log_query: NodeLogQuery) -> bytes:
    native = [name for name in log_query.services if await _is_native(env, name)]
    in_files = [name for name in log_query.services if name not in native]
    out = b""
    if native:
        out += await _run(env, _command(env, log_query, native))
    if in_files and log_query.has_options:
        names = " ".join(in_files)
        text = f"\noptions present and query resolved to log files for [{names}]\ntry without "
        return out + (text + "specifying options\n").encode()
    for name in in_files:
        out += _file_log(env, name)
    return out


async def _is_native(env: KubeletContext, service: str) -> bool:
    if env.os.name == "windows":
        command = f"Get-WinEvent -ListProvider {service}"
        return (await _status(env, _powershell(command)))[0] == 0
    code, units = await _status(env, ("journalctl", "--field", "_SYSTEMD_UNIT"))
    return code == 0 and f"{service}.service".encode() in units


async def _status(env: KubeletContext, argv: Sequence[str]) -> tuple[int, bytes]:
    if env.run_program is None:
        return 1, b""
    try:
        done = await env.run_program(argv, _SECONDS)
    except (OSError, TimeoutError):
        return 1, b""
    return done.code, done.stdout


async def _run(env: KubeletContext, argv: Sequence[str]) -> bytes:
    if env.run_program is None:
        return b"\nerror: journal output not available\n"
    try:
        return (await env.run_program(argv, _SECONDS)).stdout
    except (OSError, TimeoutError):
        return b"\nerror: journal output not available\n"


def _powershell(command: str) -> tuple[str, ...]:
    """PowerShell joins the words after -Command, so none of them needs quotes."""
    options = ("powershell.exe", "-NonInteractive", "-ExecutionPolicy", "Bypass", "-Command")
    return (*options, *command.split(" "))


def _command(
    env: KubeletContext, log_query: NodeLogQuery, services: Sequence[str]
) -> Sequence[str]:
    if env.os.name == "windows":
        return _powershell(_win_event(log_query, services))
    argv = ["journalctl", "--utc", "--no-pager", "--output=short-precise"]
    if log_query.since is not None:
        argv.append(f"--since={_stamp(log_query.since)}")
    if log_query.until is not None:
        argv.append(f"--until={_stamp(log_query.until)}")
    if log_query.lines is not None:
        argv += ["--pager-end", f"--lines={log_query.lines}"]
    argv += [f"--unit={name}" for name in services]
    if log_query.pattern:
        argv.append(f"--grep={log_query.pattern}")
    if log_query.boot is not None:
        argv += ["--boot", str(log_query.boot)]
    return argv


def _win_event(log_query: NodeLogQuery, services: Sequence[str]) -> str:
    """Kubernetes passes the values in environment variables; here they are quoted."""
    command = "Get-WinEvent -FilterHashtable @{LogName='Application'"
    if log_query.since is not None:
        command += f"; StartTime='{_stamp(log_query.since)}'"
    if log_query.until is not None:
        command += f"; EndTime='{_stamp(log_query.until)}'"
    command += "; ProviderName=" + ",".join(f"'{name}'" for name in services) + "}"
    if log_query.lines is not None:
        command += f" -MaxEvents {log_query.lines}"
    command += " | Sort-Object TimeCreated"
    if log_query.pattern:
        quoted = log_query.pattern.replace("'", "''")
        command += f" | Where-Object Message -Match '{quoted}'"
    return command + " | Format-Table -AutoSize -Wrap"


def _utc(seconds: float) -> datetime:
    # The fraction of the last second of the year 9999 is rounded up.
    return datetime.fromtimestamp(min(seconds, _LAST_SECOND), UTC)


def _stamp(seconds: float) -> str:
    at = _utc(seconds)
    return f"{at.year}-{at.month}-{at.day} {at.hour}:{at.minute}:{at.second}"


def _file_log(env: KubeletContext, service: str) -> bytes:
    root = env.os.host_path(ROOT)
    files = env.host.files.below(root)
    for name in (service, f"{service}.log", f"{service}/{service}.log"):
        where = env.os.host_path(f"{ROOT}/{name}")
        try:
            if files.stat(where).kind != "directory":
                return read_small_file(files, where, _MAX_FILE)
        except FileNotFoundError:
            continue
        except OSError as problem:
            return f"\nerror getting log for {service}: {problem.strerror}\n".encode()
    return f"\nlog not found for {service}\n".encode()
