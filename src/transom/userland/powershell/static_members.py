"""Static members of .NET types that scripts use, by type and name."""

from __future__ import annotations

import base64
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transom.kit.uuids import random_uuid
from transom.machines.windows.registry import ExpandString
from transom.machines.windows.variables import MACHINE, expand_registry_value, user_key
from transom.userland.powershell import (
    dotnet_objects,
    dotnet_statics,
    machine_statics,
    statics,
)
from transom.userland.powershell.casts import is_castable, parse_date_time
from transom.userland.powershell.file_times import TIME_METHODS
from transom.userland.powershell.members import console_write, console_write_line, local_date
from transom.userland.powershell.new_object import create_powershell_object
from transom.userland.powershell.operators import format_operator, matches_wildcard
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    VariableLink,
    to_items,
    to_number,
    to_text,
    version_object,
)
from transom.userland.process import Exit


# Static members, by type and name. `arguments` is None for a property.
def _now(evaluator: PowerShellSession, a: list[Any] | None) -> DateTime:
    return local_date(evaluator, evaluator.process.context.clock.time())


async def _sleep(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    await evaluator.process.sleep(float(to_number(a[0])) / 1000 if a else 0)


async def _read_line(evaluator: PowerShellSession, a: list[Any] | None) -> str | None:
    line = await evaluator.process.stdin.readline()
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n") if line else None


async def _addresses(evaluator: PowerShellSession, a: list[Any] | None) -> list[Any]:
    try:
        found = await evaluator.process.context.network.resolve(to_text((a or [""])[0]))
    except socket.gaierror:
        raise PowerShellError(
            'Exception calling "GetHostAddresses" with "1" argument(s): "No such host is known"'
        ) from None
    return [dotnet_objects.address_object(address) for address in found]


def _constant(value: str) -> Callable[[PowerShellSession, list[Any] | None], str]:
    return lambda evaluator, a: value


def _variables_key(evaluator: PowerShellSession, a: list[Any], position: int) -> str:
    """The registry key of the machine's or the user's variables; "" for those of the process."""
    target = to_text(a[position]).lower() if len(a) > position else "process"
    if target in ("machine", "2"):
        return MACHINE
    if target in ("user", "1"):
        return user_key(evaluator.process.context.windows.account.sid)
    return ""


def _environment_variable(evaluator: PowerShellSession, a: list[Any] | None) -> str | None:
    given = a or [""]
    name, key = to_text(given[0]), _variables_key(evaluator, given, 1)
    if not key:
        return evaluator.env.get(name)
    found = evaluator.process.context.windows.system.registry.get(key, name)
    return None if found is None else expand_registry_value(found, evaluator.env)


def _environment_variables(evaluator: PowerShellSession, a: list[Any] | None) -> Hashtable:
    key = _variables_key(evaluator, a or [], 0)
    if not key:
        return Hashtable(evaluator.env)
    values = evaluator.process.context.windows.system.registry.values(key) or {}
    return Hashtable(
        {name: expand_registry_value(value, evaluator.env) for name, value in values.items()}
    )


def _expand_variables(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    return expand_registry_value(ExpandString(to_text((a or [""])[0])), evaluator.env)


def _set_environment_variable(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    """Variables of the machine and the user are for later processes, not for this one."""
    given = [*(a or []), "", ""]
    name, value, key = to_text(given[0]), to_text(given[1]), _variables_key(evaluator, a or [], 2)
    if not key:
        evaluator.put(f"env:{name}", given[1])
        return
    windows = evaluator.process.context.windows
    if key == MACHINE and not windows.account.administrator:
        raise PowerShellError(
            'Exception calling "SetEnvironmentVariable" with "3" argument(s): "Requested registry '
            'access is not allowed."',
            "NotSpecified: (:) [], MethodInvocationException",
            "SecurityException",
        )
    registry = windows.system.registry
    if not value:
        registry.delete(key, name)
    else:
        kind = type(registry.get(key, name))
        registry.set(key, name, ExpandString(value) if kind is ExpandString else value)


def _exit(evaluator: PowerShellSession, a: list[Any] | None) -> None:
    evaluator.flush()
    raise Exit(int(to_number((a or [0])[0])) & 0xFFFFFFFF)


def _get_files(evaluator: PowerShellSession, a: list[Any] | None) -> list[str]:
    """The files of a directory, or the named pipes of the machine, optionally with a pattern."""
    arguments = [to_text(one) for one in a or [""]]
    if len(arguments) > 2:
        return list(statics.STATICS["io.directory", "getfiles"](evaluator, a))
    folder, pattern = arguments[0], arguments[1] if len(arguments) > 1 else "*"
    files = evaluator.process.files
    path = folder if folder.endswith("\\") else folder + "\\"
    try:
        names = files.listdir(path.rstrip("\\") if not path.startswith("\\\\.") else path)
    except OSError:
        missing = f"Could not find a part of the path '{folder}'."
        raise PowerShellError(
            f'Exception calling "GetFiles" with "{len(arguments)}" argument(s): "{missing}"'
        ) from None
    return [
        path + name
        for name in sorted(names)
        if matches_wildcard(name, pattern) and not files.is_directory(path + name)
    ]


def _round(evaluator: PowerShellSession, a: list[Any] | None) -> Any:
    values = a or [0]
    places = int(to_number(values[1])) if len(values) > 1 else 0
    result = round(float(to_number(values[0])), places)
    return result if places else int(result)


def _math(function: Callable[..., Any]) -> Callable[[Any, list[Any] | None], Any]:
    def call(evaluator: PowerShellSession, arguments: list[Any] | None) -> Any:
        try:
            return function(*[to_number(value) for value in arguments or []])
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


def _to_base(evaluator: PowerShellSession, a: list[Any] | None) -> str:
    given = a or [""]
    if len(given) < 2:
        return to_text(given[0])
    base = int(to_number(given[1]))
    return format(int(to_number(given[0])), {2: "b", 8: "o", 16: "x"}.get(base, "d"))


def _encoding(name: str) -> Callable[[Any, list[Any] | None], PsObject]:
    return lambda evaluator, a: PsObject("System.Text.Encoding", {"EncodingName": name}, name)


def _identity(evaluator: PowerShellSession, a: list[Any] | None) -> PsObject:
    account = evaluator.process.context.windows.account
    return PsObject(
        "System.Security.Principal.WindowsIdentity",
        {
            "Name": rf"{account.domain}\{account.name}",
            "IsSystem": account.sid == "S-1-5-18",
            "IsAuthenticated": True,
            "User": PsObject(
                "System.Security.Principal.SecurityIdentifier", {"Value": account.sid}, account.sid
            ),
            "Groups": sorted(account.sids - {account.sid}),
        },
        "System.Security.Principal.WindowsIdentity",
    )


def _parse_bool(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(text)
    return text.strip().lower() == "true"


def _try_parse(parse: Callable[[str], Any]) -> Callable[[Any, list[Any] | None], bool]:
    """`[int]::TryParse($text, [ref]$number)`: whether it is one; sets the variable."""

    def try_parse(evaluator: PowerShellSession, arguments: list[Any] | None) -> bool:
        text, *rest = arguments or [""]
        try:
            value = parse(to_text(text))
        except (ValueError, PowerShellError):
            value = None
        if rest and isinstance(rest[-1], VariableLink):
            rest[-1].set(0 if value is None and parse in (int, float) else value)
        return value is not None

    return try_parse


_STATIC: dict[tuple[str, str], Callable[[Any, list[Any] | None], Any]] = {
    ("datetime", "now"): _now,
    ("datetime", "utcnow"): lambda evaluator, a: DateTime(
        evaluator.process.context.clock.time(), 0, "Utc"
    ),
    ("datetime", "today"): lambda evaluator, a: DateTime(
        _now(evaluator, a).moment // 86400 * 86400
    ),
    ("datetime", "parse"): lambda evaluator, a: parse_date_time(to_text((a or [""])[0])),
    ("console", "writeline"): console_write_line,
    ("console", "write"): console_write,
    ("console", "readline"): _read_line,
    ("console", "error"): lambda evaluator, a: PsObject("System.IO.TextWriter", {}),
    ("console", "out"): lambda evaluator, a: PsObject("System.IO.StreamWriter", {}),
    ("threading.thread", "sleep"): _sleep,
    ("environment", "getenvironmentvariable"): _environment_variable,
    ("environment", "setenvironmentvariable"): _set_environment_variable,
    ("environment", "getenvironmentvariables"): _environment_variables,
    ("environment", "expandenvironmentvariables"): _expand_variables,
    **{
        ("environmentvariabletarget", name.lower()): _constant(name)
        for name in ("Process", "User", "Machine")
    },
    ("environment", "machinename"): lambda evaluator, a: evaluator.env.get(
        "COMPUTERNAME", evaluator.process.context.network.hostname.upper()
    ),
    ("environment", "username"): lambda evaluator, a: evaluator.process.context.credentials.user,
    ("environment", "newline"): lambda evaluator, a: evaluator.process.newline,
    ("environment", "processorcount"): lambda evaluator, a: evaluator.process.context.platform.cpus,
    ("environment", "osversion"): lambda evaluator, a: PsObject(
        "System.OperatingSystem",
        {
            "Platform": "Win32NT",
            "ServicePack": "",
            "Version": version_object(
                evaluator.process.context.platform.build.rpartition(".")[0] + ".0"
            ),
            "VersionString": f"Microsoft Windows NT {evaluator.process.context.platform.build.rpartition('.')[0]}.0",
        },
        f"Microsoft Windows NT {evaluator.process.context.platform.build.rpartition('.')[0]}.0",
    ),
    ("environment", "exit"): _exit,
    ("runtime.interopservices.runtimeinformation", "osdescription"): lambda evaluator, a: (
        f"Microsoft Windows {evaluator.process.context.platform.build.rpartition('.')[0]} "
    ),
    ("convert", "tostring"): _to_base,
    ("int64", "maxvalue"): lambda evaluator, a: 9223372036854775807,
    ("long", "maxvalue"): lambda evaluator, a: 9223372036854775807,
    ("int", "minvalue"): lambda evaluator, a: -2147483648,
    ("double", "parse"): lambda evaluator, a: float(to_number((a or [0])[0])),
    ("math", "log"): _math(math.log),
    ("math", "log10"): _math(math.log10),
    ("math", "exp"): _math(math.exp),
    ("math", "sign"): _math(lambda value: (value > 0) - (value < 0)),
    ("math", "round"): _round,
    ("math", "floor"): _math(math.floor),
    ("math", "ceiling"): _math(math.ceil),
    ("math", "abs"): _math(abs),
    ("math", "max"): _math(max),
    ("math", "min"): _math(min),
    ("math", "sqrt"): _math(math.sqrt),
    ("math", "pow"): _math(math.pow),
    ("math", "truncate"): _math(math.trunc),
    ("math", "pi"): lambda evaluator, a: math.pi,
    ("string", "join"): lambda evaluator, a: to_text((a or [""])[0]).join(
        to_text(one) for given in (a or [])[1:] for one in to_items(given)
    ),
    **{(kind, "tryparse"): _try_parse(int) for kind in ("int", "int32", "int64", "long")},
    ("double", "tryparse"): _try_parse(float),
    ("datetime", "tryparse"): _try_parse(parse_date_time),
    ("bool", "tryparse"): _try_parse(_parse_bool),
    ("string", "isnullorempty"): lambda evaluator, a: not to_text((a or [None])[0]),
    ("string", "isnullorwhitespace"): lambda evaluator, a: not to_text((a or [None])[0]).strip(),
    ("string", "format"): lambda evaluator, a: format_operator(
        to_text((a or [""])[0]), list(a or [])[1:]
    ),
    ("string", "empty"): lambda evaluator, a: "",
    ("int", "maxvalue"): lambda evaluator, a: 2147483647,
    ("int32", "maxvalue"): lambda evaluator, a: 2147483647,
    ("int", "parse"): lambda evaluator, a: int(to_number((a or [0])[0])),
    ("guid", "newguid"): lambda evaluator, a: PsObject(
        "System.Guid", {}, random_uuid(evaluator.process.context.rng)
    ),
    ("io.directory", "getfiles"): _get_files,
    ("convert", "tobase64string"): lambda evaluator, a: base64.b64encode(
        bytes(int(one) & 0xFF for one in to_items((a or [[]])[0]))
    ).decode(),
    ("convert", "frombase64string"): lambda evaluator, a: list(
        base64.b64decode(to_text((a or [""])[0]))
    ),
    ("convert", "toint32"): lambda evaluator, a: int(
        to_text((a or [0])[0]), int(to_number(a[1])) if a and len(a) > 1 else 10
    ),
    ("text.encoding", "utf8"): _encoding("utf-8"),
    ("text.encoding", "ascii"): _encoding("ascii"),
    ("text.encoding", "unicode"): _encoding("utf-16-le"),
    ("net.dns", "gethostname"): lambda evaluator, a: evaluator.process.context.network.hostname,
    ("net.dns", "gethostaddresses"): _addresses,
    ("security.principal.windowsidentity", "getcurrent"): _identity,
    ("diagnostics.stopwatch", "startnew"): lambda evaluator, a: PsObject(
        "System.Diagnostics.Stopwatch",
        {"start": evaluator.process.context.clock.monotonic(), "IsRunning": True},
    ),
    ("gc", "collect"): lambda evaluator, a: None,
}


# Namespaces below System, with more types than are simulated.
_NAMESPACES = (
    *("codedom", "collections", "componentmodel", "configuration", "data", "diagnostics"),
    *("directoryservices", "drawing", "globalization", "io", "linq", "management", "media", "net"),
    *("numerics", "reflection", "resources", "runtime", "security", "serviceprocess", "text"),
    *("threading", "timers", "transactions", "web", "windows", "xml", "microsoft"),
)


def _is_known(kind: str, tables: Sequence[Mapping[tuple[str, str], Any]]) -> bool:
    """Whether .NET has the type, as far as this simulation can tell."""
    space, dot, _ = kind.partition(".")
    if dot and space in _NAMESPACES:
        return True
    return is_castable(kind) or any(kind == known for table in tables for known, _ in table)


def static_member(
    evaluator: PowerShellSession, kind: str, name: str, arguments: list[Any] | None
) -> Any:
    kind = kind.lower().removeprefix("system.")
    key = (kind, name.lower())
    if arguments is None and key[1] in evaluator.static_values.get(kind, {}):
        return evaluator.static_values[kind][key[1]]
    tables = (
        _STATIC,
        statics.STATICS,
        TIME_METHODS,
        dotnet_objects.STATICS,
        machine_statics.STATICS,
        dotnet_statics.STATICS,
    )
    found = next((table[key] for table in tables if key in table), None)
    if found is not None:
        return found(evaluator, arguments)
    if name.lower() == "new":
        return create_powershell_object(evaluator, kind, arguments or [])
    if not _is_known(kind, tables):
        raise PowerShellError(
            f"Unable to find type [{kind}].",
            f"InvalidOperation: ({kind}:TypeName) [], RuntimeException",
            "TypeNotFound",
        )
    if arguments is None:
        return None
    raise PowerShellError(
        f"The method '[{kind}]::{name}' is not supported on simulated machines.",
        f"NotImplemented: ({name}:String) [], PSNotImplementedException",
        "NotImplemented",
    )
