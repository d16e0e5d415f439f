"""The .NET exceptions behind PowerShell's errors: their types, what `catch` handles, error
records.
"""

from __future__ import annotations

from typing import Any, Final

from transom.userland.powershell.extents import position_lines
from transom.userland.powershell.values import PowerShellError, PsObject

_NAMESPACES: Final = {
    "System.Management.Automation": (
        "RuntimeException",
        "ItemNotFoundException",
        "CommandNotFoundException",
        "DriveNotFoundException",
        "MethodInvocationException",
        "ParameterBindingException",
        "ParameterBindingValidationException",
        "ParentContainsErrorRecordException",
        "PSArgumentException",
        "PSInvalidCastException",
    ),
    "Microsoft.PowerShell.Commands": (
        "ProcessCommandException",
        "ServiceCommandException",
        "WriteErrorException",
    ),
    "System.Management.Automation.Remoting": ("PSRemotingTransportException",),
    "Microsoft.Management.Infrastructure": ("CimException",),
    "Microsoft.PowerShell.Cmdletization.Cim": ("CimJobException",),
    "System.Net": ("WebException",),
    "System.Security.Principal": ("IdentityNotMappedException",),
    "System.IO": (
        "IOException",
        "FileNotFoundException",
        "DirectoryNotFoundException",
        "PathTooLongException",
    ),
}
_NAMESPACE: Final = {name: space for space, names in _NAMESPACES.items() for name in names}
_BASES: Final = {
    "ItemNotFoundException": "RuntimeException",
    "CommandNotFoundException": "RuntimeException",
    "DriveNotFoundException": "RuntimeException",
    "MethodInvocationException": "RuntimeException",
    "ParameterBindingException": "RuntimeException",
    "ParameterBindingValidationException": "ParameterBindingException",
    "ParentContainsErrorRecordException": "RuntimeException",
    "PSInvalidCastException": "InvalidCastException",
    "PSArgumentException": "ArgumentException",
    "ArgumentNullException": "ArgumentException",
    "ArgumentOutOfRangeException": "ArgumentException",
    "FileNotFoundException": "IOException",
    "DirectoryNotFoundException": "IOException",
    "PathTooLongException": "IOException",
    "DivideByZeroException": "ArithmeticException",
    "OverflowException": "ArithmeticException",
}
_OTHERS: Final = (
    "Exception",
    "SystemException",
    "ApplicationException",
    "FormatException",
    "InvalidOperationException",
    "NotImplementedException",
    "NotSupportedException",
    "NullReferenceException",
    "TimeoutException",
    "UnauthorizedAccessException",
)
_KNOWN: Final = {name.lower(): name for name in (*_NAMESPACE, *_BASES, *_BASES.values(), *_OTHERS)}
_EVERYTHING: Final = ("exception", "systemexception")


def open_failure(path: str, full: str, problem: OSError, command: str) -> PowerShellError:
    """A file that Out-File, > or Tee-Object cannot write. `command` reports it."""
    missing = isinstance(problem, FileNotFoundError)
    reason = "DirectoryNotFoundException" if missing else "UnauthorizedAccessException"
    if missing:
        message = f"Could not find a part of the path '{full}'."
    elif isinstance(problem, PermissionError | IsADirectoryError):
        message = f"Access to the path '{full}' is denied."
    else:
        message, reason = problem.strerror or str(problem), "IOException"
    return PowerShellError(
        message,
        f"OpenError: (:) [Out-File], {reason}",
        "FileOpenFailure,Microsoft.PowerShell.Commands.OutFileCommand",
        where=command,
        value=path,
    )


def is_exception_type(name: str) -> bool:
    return name.lower().rpartition(".")[2].endswith("exception")


def full_exception_name(name: str) -> str:
    """`ArgumentException` or `system.argumentexception` as .NET writes it."""
    short = name.rpartition(".")[2]
    known = _KNOWN.get(short.lower(), short)
    return f"{_NAMESPACE.get(known, 'System')}.{known}"


def _reason(error: PowerShellError) -> str:
    return error.category.rpartition(", ")[2].strip() or "RuntimeException"


def _types(error: PowerShellError) -> list[str]:
    """The exception's type, and that of its inner exception."""
    out = [_reason(error)]
    if isinstance(error.value, PsObject) and is_exception_type(error.value.kind):
        out.insert(0, error.value.kind.rpartition(".")[2])
    if error.inner:
        out.append(error.inner)
    elif out[0] == "MethodInvocationException" and error.identity.endswith("Exception"):
        out.append(error.identity)
    return out


def catches(types: tuple[str, ...], error: PowerShellError) -> bool:
    """Whether a clause with these types (lower case) handles the error."""
    if not types:
        return True
    wanted = [name.rpartition(".")[2] for name in types]
    if any(name in _EVERYTHING for name in wanted):
        return True
    for name in _types(error):
        own: str | None = name
        while own is not None:
            if own.lower() in wanted:
                return True
            own = _BASES.get(own)
    return False


def exception_object(error: PowerShellError) -> PsObject:
    if isinstance(error.value, PsObject) and is_exception_type(error.value.kind):
        return error.value
    types = _types(error)
    properties: dict[str, object] = {
        "Message": error.message,
        "InnerException": None,
        "HResult": -2146233087,
    }
    if isinstance(error.value, PsObject) and error.value.kind == "System.Net.HttpWebResponse":
        properties["Response"] = error.value
    if len(types) > 1:
        inner = error.message.partition('argument(s): "')[2].removesuffix('"') or error.message
        properties["InnerException"] = PsObject(
            full_exception_name(types[1]), {"Message": inner}, inner
        )
    return PsObject(full_exception_name(types[0]), properties, error.message)


def _category_parts(category: str) -> dict[str, Any]:
    """`ObjectNotFound: (C:\\x:String) [Get-Item], ItemNotFoundException`."""
    name, _, rest = category.partition(": (")
    target, _, after = rest.rpartition(") [")
    activity, _, reason = after.rpartition("], ")
    target_name, _, target_type = target.rpartition(":")
    return {
        "Category": name,
        "Activity": activity,
        "Reason": reason,
        "TargetName": target_name,
        "TargetType": target_type,
    }


def error_record(error: PowerShellError) -> PsObject:
    extent = error.extent
    line = extent.line if extent is not None else 1
    category = PsObject(
        "System.Management.Automation.ErrorCategoryInfo",
        _category_parts(error.category),
        error.category,
    )
    invocation = PsObject(
        "System.Management.Automation.InvocationInfo",
        {
            "MyCommand": error.where or None,
            "ScriptLineNumber": line,
            "OffsetInLine": extent.column if extent is not None else 1,
            "Line": extent.source_line if extent is not None else "",
            "PositionMessage": "\r\n".join(position_lines(extent)) if extent is not None else "",
        },
    )
    return PsObject(
        "System.Management.Automation.ErrorRecord",
        {
            "Exception": exception_object(error),
            "TargetObject": error.value,
            "CategoryInfo": category,
            "FullyQualifiedErrorId": error.identity,
            "ErrorDetails": None,
            "InvocationInfo": invocation,
            "ScriptStackTrace": f"at <ScriptBlock>, <No file>: line {line}",
        },
        error.message,
    )
