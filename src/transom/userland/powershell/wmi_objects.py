"""Objects of Get-WmiObject and Get-CimInstance, and the methods of the former."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PowerShellError, PsObject
from transom.userland.windows.wmi_methods import (
    METHOD_NAMES,
    NoMethodError,
    call_wmi_method,
)

CIM_KIND: Final = "Microsoft.Management.Infrastructure.CimInstance#root/cimv2/"
WMI_KIND: Final = "System.Management.ManagementObject#root\\cimv2\\"


def wmi_class_of(value: Any) -> str:
    """The class of an instance; "" if it is not one."""
    if not isinstance(value, PsObject):
        return ""
    for prefix in (CIM_KIND, WMI_KIND):
        if value.kind.startswith(prefix):
            return value.kind.removeprefix(prefix)
    return ""


async def invoke_wmi_method(
    session: PowerShellSession,
    class_name: str,
    target: PsObject | None,
    method: str,
    named: dict[str, Any],
    positional: list[Any],
) -> PsObject:
    row = target.properties if target is not None else None
    try:
        result = await call_wmi_method(session.process, class_name, row, method, named, positional)
    except NoMethodError:
        raise PowerShellError(
            "This method is not implemented in any class ",
            f"InvalidOperation: ({class_name}:String) [], CimException",
            "HRESULT 0x8004100d",
        ) from None
    return PsObject("CimMethodResult", {**result, "PSComputerName": None})


def _method(class_name: str, method: str) -> Callable[..., Awaitable[PsObject]]:
    async def call(
        evaluator: PowerShellSession, target: PsObject, arguments: list[Any]
    ) -> PsObject:
        return await invoke_wmi_method(evaluator, class_name, target, method, {}, arguments)

    return call


METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (WMI_KIND + class_name, method): _method(class_name, method)
    for class_name, method in METHOD_NAMES
}
