"""Properties, methods and static members of .NET that scripts use."""

from __future__ import annotations

import base64
import math
import ntpath
import random
import re
import socket
import uuid
from calendar import timegm
from collections.abc import Awaitable, Callable
from time import strptime
from typing import TYPE_CHECKING, Any

from transom.runtime.sim.programs import netclient
from transom.runtime.sim.programs.powershell import listener
from transom.runtime.sim.programs.powershell.operators import format_text, time_span
from transom.runtime.sim.programs.powershell.values import (
    DateTime,
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    items,
    number,
    text,
    truth,
    type_name,
)
from transom.runtime.sim.programs.process import Exit

if TYPE_CHECKING:
    from transom.runtime.sim.programs.powershell.evaluator import Evaluator


def item(container: Any, index: int) -> Any:
    if isinstance(container, str | list | tuple | range | bytes):
        return container[index] if -len(container) <= index < len(container) else None
    return container if index in (0, -1) and container is not None else None


def parse_date(shown: str) -> DateTime:
    for shape in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y"):
        try:
            return DateTime(float(timegm(strptime(shown, shape))))
        except ValueError:
            continue
    raise PowerShellError(f'Cannot convert value "{shown}" to type "System.DateTime".')


def cast(name: str, value: Any) -> Any:
    kind = name.lower().removeprefix("system.")
    if kind.endswith("[]"):
        inner = kind[:-2]
        if inner in ("byte", "char") and isinstance(value, str):
            return list(value) if inner == "char" else [ord(c) for c in value]
        return [cast(inner, one) for one in items(value)]
    if kind in ("int", "int32", "int64", "long", "byte", "uint32", "int16"):
        found = number(value)
        return round(found) if isinstance(found, float) else found
    if kind in ("double", "single", "float", "decimal"):
        return float(number(value))
    if kind in ("string",):
        return text(value)
    if kind in ("bool", "boolean", "switch"):
        return truth(value)
    if kind == "char":
        return chr(value) if isinstance(value, int) else text(value)[:1]
    if kind == "datetime":
        return value if isinstance(value, DateTime) else parse_date(text(value))
    if kind == "array":
        return items(value)
    if kind == "pscustomobject":
        found_properties = dict(value) if isinstance(value, Hashtable) else {}
        return PsObject(
            "System.Management.Automation.PSCustomObject", {text(key): one for key, one in found_properties.items()}
        )
    return value


def property_of(evaluator: Evaluator, target: Any, name: str) -> Any:
    lower = name.lower()
    if target is None:
        return None
    if isinstance(target, Hashtable):
        if target.has(name):
            return target.find(name)
        return {"keys": list(target), "values": list(target.values()), "count": len(target)}.get(lower)
    if isinstance(target, PsObject):
        if lower == "count" and target.get(name) is None:
            return 1
        return target.get(name)
    if isinstance(target, list | range | bytes):
        if lower in ("count", "length"):
            return len(target)
        values = [property_of(evaluator, one, name) for one in target]
        return [value for value in values if value is not None] or None
    if lower in ("length", "count"):
        return len(target) if isinstance(target, str) and lower == "length" else 1
    if isinstance(target, DateTime):
        shapes = {"year": "yyyy", "month": "MM", "day": "dd", "hour": "HH", "minute": "mm", "second": "ss"}
        if lower in shapes:
            return int(target.format(shapes[lower]))
        if lower == "dayofweek":
            return target.format("dddd")
        if lower == "ticks":
            return int(target.moment * 10_000_000) + 621355968000000000
        if lower == "date":
            return DateTime(target.moment - target.moment % 86400)
    return None


_STRING: dict[str, Callable[[str, list[Any]], Any]] = {
    "toupper": lambda target, a: target.upper(),
    "tolower": lambda target, a: target.lower(),
    "toupperinvariant": lambda target, a: target.upper(),
    "tolowerinvariant": lambda target, a: target.lower(),
    "trim": lambda target, a: target.strip(text(a[0]) if a else None),
    "trimstart": lambda target, a: target.lstrip(text(a[0]) if a else None),
    "trimend": lambda target, a: target.rstrip(text(a[0]) if a else None),
    "split": lambda target, a: re.split("|".join(re.escape(c) for c in text(a[0])), target) if a else target.split(),
    "replace": lambda target, a: target.replace(text(a[0]), text(a[1])),
    "contains": lambda target, a: text(a[0]) in target,
    "startswith": lambda target, a: target.startswith(text(a[0])),
    "endswith": lambda target, a: target.endswith(text(a[0])),
    "substring": lambda target, a: target[int(a[0]) : int(a[0]) + int(a[1])] if len(a) > 1 else target[int(a[0]) :],
    "indexof": lambda target, a: target.find(text(a[0])),
    "lastindexof": lambda target, a: target.rfind(text(a[0])),
    "padleft": lambda target, a: target.rjust(int(a[0]), text(a[1]) if len(a) > 1 else " "),
    "padright": lambda target, a: target.ljust(int(a[0]), text(a[1]) if len(a) > 1 else " "),
    "insert": lambda target, a: target[: int(a[0])] + text(a[1]) + target[int(a[0]) :],
    "remove": lambda target, a: target[: int(a[0])] + (target[int(a[0]) + int(a[1]) :] if len(a) > 1 else ""),
    "tochararray": lambda target, a: list(target),
    "equals": lambda target, a: target == text(a[0]),
    "compareto": lambda target, a: (target > text(a[0])) - (target < text(a[0])),
}
_LIST: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "add": lambda target, a: target.append(a[0]),
    "addrange": lambda target, a: target.extend(items(a[0])),
    "clear": lambda target, a: target.clear(),
    "contains": lambda target, a: a[0] in target,
    "indexof": lambda target, a: target.index(a[0]) if a[0] in target else -1,
    "remove": lambda target, a: target.remove(a[0]) if a[0] in target else None,
    "toarray": lambda target, a: list(target),
    "getenumerator": lambda target, a: list(target),
}
_HASHTABLE: dict[str, Callable[[Hashtable, list[Any]], Any]] = {
    "add": lambda target, a: target.put(a[0], a[1]),
    "set_item": lambda target, a: target.put(a[0], a[1]),
    "get_item": lambda target, a: target.find(a[0]),
    "item": lambda target, a: target.find(a[0]),
    "containskey": lambda target, a: target.has(a[0]),
    "contains": lambda target, a: target.has(a[0]),
    "containsvalue": lambda target, a: a[0] in target.values(),
    "remove": lambda target, a: target.pop(a[0], None) and None,
    "clear": lambda target, a: target.clear(),
    "getenumerator": lambda target, a: [
        PsObject("System.Collections.DictionaryEntry", {"Name": key, "Value": value, "Key": key})
        for key, value in target.items()
    ],
}
_ADD_TIME = {"addseconds": 1.0, "addminutes": 60.0, "addhours": 3600.0, "adddays": 86400.0, "addmilliseconds": 0.001}


def call(evaluator: Evaluator, target: Any, name: str, arguments: list[Any]) -> Any | Awaitable[Any]:
    lower = name.lower()
    if target is None:
        raise PowerShellError(
            "You cannot call a method on a null-valued expression.",
            "InvalidOperation: (:) [], RuntimeException",
            "InvokeMethodOnNull",
        )
    if lower == "tostring":
        if arguments and isinstance(target, DateTime):
            return target.format(text(arguments[0]))
        return format_text("{0:" + text(arguments[0]) + "}", [target]) if arguments else text(target)
    if lower == "gettype":
        full = type_name(target)
        return PsObject(
            "System.RuntimeType", {"Name": full.rpartition(".")[2], "FullName": full, "BaseType": "System.Object"}, full
        )
    method = _METHODS.get((target.kind, lower)) if isinstance(target, PsObject) else None
    if method is not None:
        return method(evaluator, target, arguments)
    if lower == "dispose" or lower == "close":
        return None
    try:
        if isinstance(target, str) and lower in _STRING:
            return _STRING[lower](target, arguments)
        if isinstance(target, list) and lower in _LIST:
            return _LIST[lower](target, arguments)
        if isinstance(target, Hashtable) and lower in _HASHTABLE:
            return _HASHTABLE[lower](target, arguments)
    except IndexError:
        raise PowerShellError(f'Cannot find an overload for "{name}" and the argument count: "{len(arguments)}".') from None
    if isinstance(target, DateTime):
        if lower in _ADD_TIME:
            return DateTime(target.moment + float(number(arguments[0])) * _ADD_TIME[lower])
        if lower in ("touniversaltime", "tolocaltime"):
            return target
        if lower == "subtract":
            return time_span(target.moment - arguments[0].moment)
    if isinstance(target, ScriptBlock) and lower in ("invoke", "invokereturnasis"):
        return evaluator.invoke(target, arguments)
    raise PowerShellError(
        f"Method invocation failed because [{type_name(target)}] does not contain a method named '{name}'.",
        f"InvalidOperation: ({name}:String) [], RuntimeException",
        "MethodNotFound",
    )


async def _download(evaluator: Evaluator, target: PsObject, arguments: list[Any]) -> str:
    return (await web_request(evaluator, text(arguments[0]))).body.decode("utf-8", "replace")


async def _download_file(evaluator: Evaluator, target: PsObject, arguments: list[Any]) -> None:
    answer = await web_request(evaluator, text(arguments[0]))
    evaluator.process.files.write(text(arguments[1]), answer.body)


async def web_request(evaluator: Evaluator, url: str, method: str = "GET", **more: Any) -> netclient.Fetched:
    """Errors are PowerShell's."""
    context = evaluator.process.context
    seconds = more.pop("timeout", 100)
    agent = "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.17763.1490"
    try:
        answer = await netclient.limited(
            context, seconds, netclient.fetch(context, url, method, agent=agent, redirects=5, insecure=True, **more)
        )
    except socket.gaierror:
        host = netclient.split_url(url).host
        raise _web_error(f"The remote name could not be resolved: '{host}'") from None
    except TimeoutError:
        raise _web_error("The operation has timed out.") from None
    except (OSError, ValueError, EOFError):
        raise _web_error("Unable to connect to the remote server") from None
    if answer.status >= 400:
        raise _web_error(f"The remote server returned an error: ({answer.status}) {answer.reason}.", answer)
    return answer


def _web_error(message: str, answer: netclient.Fetched | None = None) -> PowerShellError:
    status = (
        PsObject("System.Net.HttpWebResponse", {"StatusCode": answer.status, "StatusDescription": answer.reason})
        if answer
        else None
    )
    return PowerShellError(
        message,
        "InvalidOperation: (System.Net.HttpWebRequest:HttpWebRequest) [Invoke-WebRequest], WebException",
        "WebCmdletWebResponseException,Microsoft.PowerShell.Commands.InvokeWebRequestCommand",
        value=status,
    )


async def _tcp_connect(evaluator: Evaluator, target: PsObject, arguments: list[Any]) -> None:
    try:
        connection = await evaluator.process.context.connect(text(arguments[0]), int(number(arguments[1])))
    except OSError:
        raise PowerShellError(
            'Exception calling "Connect" with "2" argument(s): "No connection could be made because the '
            'target machine actively refused it"'
        ) from None
    connection.close()
    target.properties["Connected"] = True


def _elapsed(evaluator: Evaluator, target: PsObject, arguments: list[Any]) -> None:
    seconds = evaluator.process.context.clock.monotonic() - float(target.properties["start"])
    target.properties["Elapsed"] = time_span(seconds)
    target.properties["ElapsedMilliseconds"] = int(seconds * 1000)


def _decode(evaluator: Evaluator, target: PsObject, arguments: list[Any]) -> str:
    value = arguments[0]
    data = value if isinstance(value, bytes) else bytes(int(one) & 0xFF for one in items(value))
    return data.decode(target.text or "utf-8", "replace")


_METHODS: dict[tuple[str, str], Callable[..., Any]] = {
    **listener.METHODS,
    ("System.Net.WebClient", "downloadstring"): _download,
    ("System.Net.WebClient", "downloadfile"): _download_file,
    ("System.Net.Sockets.TcpClient", "connect"): _tcp_connect,
    ("System.Diagnostics.Stopwatch", "stop"): _elapsed,
    ("System.Text.Encoding", "getbytes"): lambda evaluator, target, a: list(text(a[0]).encode(target.text or "utf-8")),
    ("System.Text.Encoding", "getstring"): _decode,
    ("System.IO.StreamWriter", "writeline"): lambda evaluator, target, a: _write_line(evaluator, a),
    ("System.IO.StreamWriter", "write"): lambda evaluator, target, a: _write(evaluator, a),
    ("System.IO.TextWriter", "writeline"): lambda evaluator, target, a: evaluator.process.complain(text(a[0]) if a else ""),
    ("System.Random", "next"): lambda evaluator, target, a: evaluator.process.context.rng.randrange(
        int(number(a[0])) if len(a) > 1 else 0, int(number(a[-1])) if a else 2147483647
    ),
}


# Static members, by type and name. `arguments` is None for a property.
def _now(evaluator: Evaluator, a: list[Any] | None) -> DateTime:
    return DateTime(evaluator.process.context.clock.time())


def _write_line(evaluator: Evaluator, a: list[Any] | None) -> None:
    evaluator.flush()
    evaluator.process.write((text(a[0]) if a else "") + "\r\n")


def _write(evaluator: Evaluator, a: list[Any] | None) -> None:
    evaluator.flush()
    evaluator.process.write(text(a[0]) if a else "")


async def _sleep(evaluator: Evaluator, a: list[Any] | None) -> None:
    await evaluator.process.sleep(float(number(a[0])) / 1000 if a else 0)


async def _read_line(evaluator: Evaluator, a: list[Any] | None) -> str | None:
    line = await evaluator.process.stdin.readline()
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n") if line else None


async def _addresses(evaluator: Evaluator, a: list[Any] | None) -> list[Any]:
    try:
        found = await evaluator.process.context.resolve(text((a or [""])[0]))
    except socket.gaierror:
        raise PowerShellError('Exception calling "GetHostAddresses" with "1" argument(s): "No such host is known"') from None
    return [PsObject("System.Net.IPAddress", {"IPAddressToString": address}, address) for address in found]


def _constant(value: str) -> Callable[[Evaluator, list[Any] | None], str]:
    return lambda evaluator, a: value


def _of_machine(evaluator: Evaluator, a: list[Any], target: int) -> Any:
    """The machine, if the call is about its own variables and not about the process's."""
    machine = evaluator.process.context.machine
    return machine if machine is not None and len(a) > target and text(a[target]).lower() in ("machine", "2") else None


def _environment_variable(evaluator: Evaluator, a: list[Any] | None) -> str | None:
    name, machine = text((a or [""])[0]), _of_machine(evaluator, a or [], 1)
    found: str | None = machine.variable(name) if machine is not None else evaluator.env.get(name)
    return found


def _set_environment_variable(evaluator: Evaluator, a: list[Any] | None) -> None:
    given = [*(a or []), "", ""]
    machine = _of_machine(evaluator, a or [], 2)
    if machine is not None:  # later processes have it, this one does not
        machine.set_variable(text(given[0]), text(given[1]))
    else:
        evaluator.put(f"env:{text(given[0])}", given[1])


def _exit(evaluator: Evaluator, a: list[Any] | None) -> None:
    evaluator.flush()
    raise Exit(int(number((a or [0])[0])) & 0xFFFFFFFF)


def _read_file(evaluator: Evaluator, a: list[Any] | None) -> str:
    path = text((a or [""])[0])
    try:
        return evaluator.process.files.text(path)
    except OSError:
        raise PowerShellError(
            f'Exception calling "ReadAllText" with "1" argument(s): "Could not find file \'{path}\'."'
        ) from None


def _round(evaluator: Evaluator, a: list[Any] | None) -> Any:
    values = a or [0]
    places = int(number(values[1])) if len(values) > 1 else 0
    result = round(float(number(values[0])), places)
    return result if places else int(result)


def _allocate(evaluator: Evaluator, size: int) -> list[Any]:
    """A large array: it counts as memory, not as values."""
    evaluator.allocated += size
    if not evaluator.process.context.usage.memory(evaluator.allocated):
        evaluator.allocated -= size
        raise PowerShellError(
            "Exception of type 'System.OutOfMemoryException' was thrown.",
            "OperationStopped: (:) [], OutOfMemoryException",
            "System.OutOfMemoryException",
        )
    return [0] * min(size, 64)


def allocate(evaluator: Evaluator, arguments: list[Any]) -> list[Any]:
    return _allocate(evaluator, int(number(arguments[0] if arguments else 0)))


def _math(function: Callable[..., Any]) -> Callable[[Any, list[Any] | None], Any]:
    return lambda evaluator, a: function(*[number(value) for value in a or []])


def _encoding(name: str) -> Callable[[Any, list[Any] | None], PsObject]:
    return lambda evaluator, a: PsObject("System.Text.Encoding", {"EncodingName": name}, name)


def _identity(evaluator: Evaluator, a: list[Any] | None) -> PsObject:
    user = evaluator.process.context.user
    name = user if "\\" in user else f"User Manager\\{user}"
    return PsObject("System.Security.Principal.WindowsIdentity", {"Name": name, "IsSystem": user.lower() == "system"})


_STATIC: dict[tuple[str, str], Callable[[Any, list[Any] | None], Any]] = {
    ("datetime", "now"): _now,
    ("datetime", "utcnow"): _now,
    ("datetime", "today"): lambda evaluator, a: DateTime(evaluator.process.context.clock.time() // 86400 * 86400),
    ("datetime", "parse"): lambda evaluator, a: parse_date(text((a or [""])[0])),
    ("console", "writeline"): _write_line,
    ("console", "write"): _write,
    ("console", "readline"): _read_line,
    ("console", "error"): lambda evaluator, a: PsObject("System.IO.TextWriter", {}),
    ("console", "out"): lambda evaluator, a: PsObject("System.IO.StreamWriter", {}),
    ("threading.thread", "sleep"): _sleep,
    ("environment", "getenvironmentvariable"): _environment_variable,
    ("environment", "setenvironmentvariable"): _set_environment_variable,
    **{("environmentvariabletarget", name.lower()): _constant(name) for name in ("Process", "User", "Machine")},
    ("environment", "machinename"): lambda evaluator, a: evaluator.env.get(
        "COMPUTERNAME", evaluator.process.context.hostname.upper()
    ),
    ("environment", "username"): lambda evaluator, a: evaluator.process.context.user,
    ("environment", "newline"): lambda evaluator, a: evaluator.process.newline,
    ("environment", "processorcount"): lambda evaluator, a: evaluator.process.context.cpus,
    ("environment", "osversion"): lambda evaluator, a: PsObject(
        "System.OperatingSystem",
        {
            "Platform": "Win32NT",
            "ServicePack": "",
            "Version": _version(evaluator.process.context.build),
            "VersionString": f"Microsoft Windows NT {evaluator.process.context.build.rpartition('.')[0]}.0",
        },
        f"Microsoft Windows NT {evaluator.process.context.build.rpartition('.')[0]}.0",
    ),
    ("environment", "exit"): _exit,
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
    ("string", "join"): lambda evaluator, a: text((a or [""])[0]).join(text(one) for one in items((a or ["", []])[1])),
    ("string", "isnullorempty"): lambda evaluator, a: not text((a or [None])[0]),
    ("string", "isnullorwhitespace"): lambda evaluator, a: not text((a or [None])[0]).strip(),
    ("string", "format"): lambda evaluator, a: format_text(text((a or [""])[0]), list(a or [])[1:]),
    ("string", "empty"): lambda evaluator, a: "",
    ("int", "maxvalue"): lambda evaluator, a: 2147483647,
    ("int32", "maxvalue"): lambda evaluator, a: 2147483647,
    ("int", "parse"): lambda evaluator, a: int(number((a or [0])[0])),
    ("guid", "newguid"): lambda evaluator, a: PsObject(
        "System.Guid", {}, str(uuid.UUID(int=evaluator.process.context.rng.getrandbits(128), version=4))
    ),
    ("io.file", "readalltext"): _read_file,
    ("io.file", "writealltext"): lambda evaluator, a: evaluator.process.files.write(
        text((a or [""])[0]), text((a or ["", ""])[1]).encode()
    ),
    ("io.file", "appendalltext"): lambda evaluator, a: evaluator.process.files.append(
        text((a or [""])[0]), text((a or ["", ""])[1]).encode()
    ),
    ("io.file", "exists"): lambda evaluator, a: evaluator.process.files.exists(text((a or [""])[0])),
    ("io.directory", "exists"): lambda evaluator, a: evaluator.process.files.is_directory(text((a or [""])[0])),
    ("io.path", "combine"): lambda evaluator, a: ntpath.join(*[text(one) for one in a or [""]]),
    ("io.path", "getfilename"): lambda evaluator, a: ntpath.basename(text((a or [""])[0])),
    ("io.path", "getdirectoryname"): lambda evaluator, a: ntpath.dirname(text((a or [""])[0])),
    ("io.path", "getextension"): lambda evaluator, a: ntpath.splitext(text((a or [""])[0]))[1],
    ("io.path", "gettemppath"): lambda evaluator, a: evaluator.env.get("TEMP", "C:\\Windows\\Temp") + "\\",
    ("convert", "tobase64string"): lambda evaluator, a: base64.b64encode(
        bytes(int(one) & 0xFF for one in items((a or [[]])[0]))
    ).decode(),
    ("convert", "frombase64string"): lambda evaluator, a: list(base64.b64decode(text((a or [""])[0]))),
    ("convert", "toint32"): lambda evaluator, a: int(text((a or [0])[0]), int(number(a[1])) if a and len(a) > 1 else 10),
    ("text.encoding", "utf8"): _encoding("utf-8"),
    ("text.encoding", "ascii"): _encoding("ascii"),
    ("text.encoding", "unicode"): _encoding("utf-16-le"),
    ("net.dns", "gethostname"): lambda evaluator, a: evaluator.process.context.hostname,
    ("net.dns", "gethostaddresses"): _addresses,
    ("security.principal.windowsidentity", "getcurrent"): _identity,
    ("diagnostics.stopwatch", "startnew"): lambda evaluator, a: PsObject(
        "System.Diagnostics.Stopwatch", {"start": evaluator.process.context.clock.monotonic(), "IsRunning": True}
    ),
    ("gc", "collect"): lambda evaluator, a: None,
}


def _version(build: str) -> PsObject:
    major, minor, number_, revision = (*build.split("."), "0", "0", "0")[:4]
    properties = {"Major": int(major), "Minor": int(minor), "Build": int(number_), "Revision": int(revision)}
    return PsObject("System.Version", properties, build)


def static(evaluator: Evaluator, kind: str, name: str, arguments: list[Any] | None) -> Any:
    kind = kind.lower().removeprefix("system.")
    found = _STATIC.get((kind, name.lower()))
    if found is not None:
        return found(evaluator, arguments)
    if name.lower() == "new":
        return create(evaluator, kind, arguments or [])
    if arguments is None:
        return None
    raise PowerShellError(
        f"Method invocation failed because [{kind}] does not contain a method named '{name}'.",
        f"InvalidOperation: ({name}:String) [], RuntimeException",
        "MethodNotFound",
    )


_CREATED = {
    "net.webclient": "System.Net.WebClient",
    "net.sockets.tcpclient": "System.Net.Sockets.TcpClient",
    "random": "System.Random",
    "diagnostics.stopwatch": "System.Diagnostics.Stopwatch",
}


def create(evaluator: Evaluator, kind: str, arguments: list[Any]) -> Any:
    """New-Object."""
    kind = kind.lower().removeprefix("system.")
    if kind.endswith("[]"):
        return allocate(evaluator, arguments)
    if kind in (
        "collections.arraylist",
        "collections.generic.list[string]",
        "collections.generic.list[object]",
    ) or kind.startswith("collections.generic.list"):
        return items(arguments[0]) if arguments else []
    if kind in ("collections.hashtable", "hashtable"):
        return Hashtable()
    if kind in ("psobject", "pscustomobject", "object", "management.automation.psobject"):
        return PsObject("System.Management.Automation.PSCustomObject", {})
    if kind == "datetime":
        pieces = [int(number(one)) for one in arguments] + [1, 1, 0, 0, 0]
        return DateTime(float(timegm((*(pieces[:6]), 0, 0, 0))))
    if kind == "net.httplistener":
        return listener.Listener()
    known = _CREATED.get(kind)
    if known is None:
        raise PowerShellError(
            f"Cannot find type [{kind}]: verify that the assembly containing this type is loaded.",
            "InvalidType: (:) [New-Object], PSArgumentException",
            "TypeNotFound,Microsoft.PowerShell.Commands.NewObjectCommand",
            where="New-Object",
        )
    made = PsObject(known, {})
    if known == "System.Net.Sockets.TcpClient":
        made.properties["Connected"] = False
        if len(arguments) > 1:
            return _connected(evaluator, made, arguments)
    if known == "System.Diagnostics.Stopwatch":
        made.properties["start"] = evaluator.process.context.clock.monotonic()
    return made


async def _connected(evaluator: Evaluator, made: PsObject, arguments: list[Any]) -> PsObject:
    await _tcp_connect(evaluator, made, arguments)
    return made


def shuffled(rng: random.Random, values: list[Any]) -> list[Any]:
    copy = list(values)
    rng.shuffle(copy)
    return copy
