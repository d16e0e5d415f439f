"""Small .NET classes that scripts create: collections, StringBuilder, readers and writers, hashes,
versions, addresses, exceptions.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ntpath
from collections.abc import Callable
from typing import Any, Final

from transom.userland.powershell.dotnet_collections import sort_elements
from transom.userland.powershell.exceptions import full_exception_name, is_exception_type
from transom.userland.powershell.operators import format_operator
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    PowerShellError,
    PsObject,
    to_items,
    to_number,
    to_text,
)


class StringBuilder(PsObject):
    __slots__ = ("parts",)

    def __init__(self, text: str) -> None:
        super().__init__("System.Text.StringBuilder", {}, "")
        self.parts = [text]

    def get(self, name: str) -> Any:
        return len("".join(self.parts)) if name.lower() == "length" else super().get(name)


class FileStream(PsObject):
    """A StreamReader or a StreamWriter; a writer writes its file when it is flushed or closed."""

    __slots__ = ("append", "path", "pending", "position")

    def __init__(self, kind: str, path: str, append: bool) -> None:
        super().__init__(kind, {"AutoFlush": False}, kind)
        self.path = path
        self.append = append
        self.pending: list[str] = []
        self.position = 0


VERSION: Final = "System.Version"
ADDRESS: Final = "System.Net.IPAddress"
_HASHES: Final = ("md5", "sha1", "sha256", "sha384", "sha512")


def _failure(message: str, identity: str) -> PowerShellError:
    return PowerShellError(message, "InvalidArgument: (:) [], RuntimeException", identity)


def parse_version_object(value: Any) -> PsObject:
    shown = to_text(value)
    parts = shown.split(".")
    if not 2 <= len(parts) <= 4 or not all(part.isdigit() for part in parts):
        raise _failure(
            f'Cannot convert value "{shown}" to type "System.Version". Error: "Version string '
            'portion was too short or too long."',
            "InvalidCastParseTargetInvocation",
        )
    numbers = [int(part) for part in parts] + [-1, -1]
    names = ("Major", "Minor", "Build", "Revision")
    return PsObject(VERSION, dict(zip(names, numbers, strict=False)), shown)


def address_object(value: Any) -> PsObject:
    shown = to_text(value)
    try:
        found = ipaddress.ip_address(shown)
    except ValueError:
        raise _failure(
            f'Cannot convert value "{shown}" to type "System.Net.IPAddress". Error: "An invalid IP '
            'address was specified."',
            "InvalidCastParseTargetInvocation",
        ) from None
    family = "InterNetworkV6" if found.version == 6 else "InterNetwork"
    return PsObject(ADDRESS, {"AddressFamily": family, "IPAddressToString": str(found)}, str(found))


def file_object(evaluator: PowerShellSession, kind: str, path: str) -> PsObject:
    """FileInfo or DirectoryInfo, also of a file that does not exist."""
    files = evaluator.process.files
    full = files.absolute(path)
    there = files.exists(full)
    properties: dict[str, Any] = {
        "Name": files.base(full),
        "FullName": full,
        "Extension": ntpath.splitext(full)[1],
        "Exists": there and files.is_directory(full) == (kind == "DirectoryInfo"),
        "DirectoryName": files.parent(full),
    }
    if kind == "FileInfo" and there:
        properties["Length"] = files.stat(full).size
    return PsObject(f"System.IO.{kind}", properties, path)


def create_dotnet(evaluator: PowerShellSession, kind: str, arguments: list[Any]) -> Any:
    """`kind` is lower case and without `System.`; None if it is not one of these."""
    first = arguments[0] if arguments else None
    if kind == "text.stringbuilder":
        return StringBuilder(to_text(first) if isinstance(first, str) else "")
    if kind in ("io.streamwriter", "io.streamreader"):
        return _open_stream(evaluator, kind, arguments)
    if kind in ("io.fileinfo", "io.directoryinfo"):
        shown = "FileInfo" if kind == "io.fileinfo" else "DirectoryInfo"
        return file_object(evaluator, shown, to_text(first))
    if kind == "string":
        count = int(to_number(arguments[1])) if len(arguments) > 1 else 1
        return to_text(first) * count if not isinstance(first, list) else "".join(first)
    if kind == "version":
        return parse_version_object(".".join(to_text(one) for one in arguments))
    if kind in ("net.ipaddress", "ipaddress"):
        return address_object(first)
    if kind == "security.principal.windowsprincipal":
        return PsObject("System.Security.Principal.WindowsPrincipal", {"Identity": first})
    if kind.startswith("security.cryptography."):
        for name in _HASHES:
            if name in kind:
                return _hasher(name)
    if is_exception_type(kind):
        message = to_text(first) if arguments else f"Exception of type '{kind}' was thrown."
        return PsObject(full_exception_name(kind), {"Message": message}, message)
    return None


def _open_stream(evaluator: PowerShellSession, kind: str, arguments: list[Any]) -> FileStream:
    files = evaluator.process.files
    path = files.absolute(to_text(arguments[0] if arguments else None))
    append = len(arguments) > 1 and arguments[1] is True
    if kind == "io.streamreader":
        if not files.exists(path):
            raise PowerShellError(
                f'Exception calling ".ctor" with "1" argument(s): "Could not find file \'{path}\'."',
                "NotSpecified: (:) [], MethodInvocationException",
                "FileNotFoundException",
            )
        return FileStream("System.IO.StreamReader", path, append)
    if not append:
        files.write(path, b"")
    return FileStream("System.IO.StreamWriter", path, append)


def _hasher(name: str) -> PsObject:
    return PsObject("System.Security.Cryptography.HashAlgorithm", {"HashName": name.upper()})


def _compute(evaluator: Any, target: PsObject, arguments: list[Any]) -> list[int]:
    data = bytes(int(to_number(one)) & 0xFF for one in to_items(arguments[0]))
    return list(hashlib.new(to_text(target.get("HashName")).lower(), data).digest())


def _append(newline: bool) -> Callable[..., Any]:
    def run(evaluator: Any, target: StringBuilder, arguments: list[Any]) -> StringBuilder:
        target.parts.append((to_text(arguments[0]) if arguments else "") + "\r\n" * newline)
        return target

    return run


def _append_format(evaluator: Any, target: StringBuilder, arguments: list[Any]) -> StringBuilder:
    target.parts.append(format_operator(to_text(arguments[0]), arguments[1:]))
    return target


def _edit(change: Callable[[str, list[Any]], str]) -> Callable[..., Any]:
    def run(evaluator: Any, target: StringBuilder, arguments: list[Any]) -> StringBuilder:
        target.parts[:] = [change("".join(target.parts), arguments)]
        return target

    return run


def _inserted(text: str, arguments: list[Any]) -> str:
    place = int(to_number(arguments[0]))
    return text[:place] + to_text(arguments[1]) + text[place:]


def _removed(text: str, arguments: list[Any]) -> str:
    start, count = (int(to_number(one)) for one in arguments[:2])
    return text[:start] + text[start + count :]


def _write(newline: bool) -> Callable[..., Any]:
    def run(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
        shown = (to_text(arguments[0]) if arguments else "") + "\r\n" * newline
        if isinstance(target, FileStream):
            target.pending.append(shown)
        else:  # of the console
            evaluator.flush()
            evaluator.process.write(shown)

    return run


def _flush(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    if isinstance(target, FileStream) and target.pending:
        evaluator.process.files.append(target.path, "".join(target.pending).encode())
        target.pending.clear()


def _rest(evaluator: PowerShellSession, target: FileStream) -> str:
    return evaluator.process.files.text(target.path)[target.position :]


def _read_line(evaluator: PowerShellSession, target: FileStream, arguments: list[Any]) -> Any:
    rest = _rest(evaluator, target)
    if not rest:
        return None
    line, newline, _ = rest.partition("\n")
    target.position += len(line) + len(newline)
    return line.removesuffix("\r")


def _read_to_end(evaluator: PowerShellSession, target: FileStream, arguments: list[Any]) -> str:
    rest = _rest(evaluator, target)
    target.position += len(rest)
    return rest


def _in_role(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> bool:
    wanted = to_text(arguments[0]).lower().rpartition("\\")[2]
    account = evaluator.process.context.windows.account
    if wanted in ("administrator", "administrators", "s-1-5-32-544", "544"):
        return account.administrator
    group = evaluator.process.context.windows.system.accounts.identity(wanted)
    return wanted in [sid.lower() for sid in account.sids] or (
        group is not None and group.sid in account.sids
    )


METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("System.Text.StringBuilder", "append"): _append(False),
    ("System.Text.StringBuilder", "appendline"): _append(True),
    ("System.Text.StringBuilder", "appendformat"): _append_format,
    ("System.Text.StringBuilder", "clear"): _edit(lambda text, a: ""),
    ("System.Text.StringBuilder", "insert"): _edit(_inserted),
    ("System.Text.StringBuilder", "remove"): _edit(_removed),
    ("System.Text.StringBuilder", "replace"): _edit(
        lambda text, a: text.replace(to_text(a[0]), to_text(a[1]))
    ),
    ("System.Text.StringBuilder", "tostring"): lambda evaluator, target, a: "".join(target.parts),
    ("System.IO.StreamWriter", "write"): _write(False),
    ("System.IO.StreamWriter", "writeline"): _write(True),
    ("System.IO.StreamWriter", "flush"): _flush,
    ("System.IO.StreamWriter", "close"): _flush,
    ("System.IO.StreamWriter", "dispose"): _flush,
    ("System.IO.StreamReader", "readline"): _read_line,
    ("System.IO.StreamReader", "readtoend"): _read_to_end,
    ("System.Security.Cryptography.HashAlgorithm", "computehash"): _compute,
    ("System.Security.Principal.WindowsPrincipal", "isinrole"): _in_role,
    (ADDRESS, "getaddressbytes"): lambda evaluator, target, a: list(
        ipaddress.ip_address(target.text).packed
    ),
}

STATICS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    **{
        (f"security.cryptography.{name}", "create"): lambda evaluator, a, name=name: _hasher(name)
        for name in _HASHES
    },
    ("net.ipaddress", "parse"): lambda evaluator, a: address_object((a or [""])[0]),
    ("ipaddress", "parse"): lambda evaluator, a: address_object((a or [""])[0]),
    ("net.ipaddress", "any"): lambda evaluator, a: address_object("0.0.0.0"),
    ("net.ipaddress", "loopback"): lambda evaluator, a: address_object("127.0.0.1"),
    ("version", "parse"): lambda evaluator, a: parse_version_object((a or [""])[0]),
    ("array", "reverse"): lambda evaluator, a: a[0].reverse() if a else None,
    ("array", "sort"): lambda evaluator, a: sort_elements(a[0]) if a else None,
    ("array", "indexof"): lambda evaluator, a: a[0].index(a[1]) if a and a[1] in a[0] else -1,
    ("string", "concat"): lambda evaluator, a: "".join(to_text(one) for one in a or []),
    ("string", "compare"): lambda evaluator, a: (
        (to_text((a or [""])[0]) > to_text((a or ["", ""])[1]))
        - (to_text((a or [""])[0]) < to_text((a or ["", ""])[1]))
    ),
    **{
        ("security.principal.windowsbuiltinrole", name.lower()): lambda evaluator, a, name=name: (
            name
        )
        for name in ("Administrator", "User", "Guest", "PowerUser", "BackupOperator")
    },
}
