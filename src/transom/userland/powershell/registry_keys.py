"""Methods of registry keys, as Get-Item returns them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import PowerShellError, PsObject, to_text
from transom.userland.windows.registry import value_type_name

REGISTRY_KEY: Final = "Microsoft.Win32.RegistryKey"
REGISTRY_VALUE_KINDS: Final = {
    "REG_SZ": "String",
    "REG_EXPAND_SZ": "ExpandString",
    "REG_DWORD": "DWord",
    "REG_QWORD": "QWord",
    "REG_BINARY": "Binary",
    "REG_MULTI_SZ": "MultiString",
}


def _named(target: PsObject, name: str) -> tuple[bool, Any]:
    values: dict[str, Any] = target.get("Values") or {}
    for known, value in values.items():
        if known.lower() == name.lower():
            return True, value
    return False, None


def _get_value(evaluator: PowerShellSession, target: PsObject, a: list[Any]) -> Any:
    found, value = _named(target, to_text(a[0]) if a else "")
    return value if found else (a[1] if len(a) > 1 else None)


def _get_kind(evaluator: PowerShellSession, target: PsObject, a: list[Any]) -> str:
    registry = evaluator.process.context.windows.system.registry
    value = registry.get(to_text(target.get("Name")), to_text(a[0]) if a else "")
    if value is None:
        raise PowerShellError(
            f'Exception calling "GetValueKind" with "{len(a)}" argument(s): "The specified registry '
            'key does not exist."',
            "NotSpecified: (:) [], MethodInvocationException",
            "IOException",
        )
    return REGISTRY_VALUE_KINDS[value_type_name(value)]


def _sub_keys(evaluator: PowerShellSession, target: PsObject, a: list[Any]) -> list[str]:
    return list(evaluator.process.context.windows.system.registry.keys(to_text(target.get("Name"))))


METHODS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (REGISTRY_KEY, "getvalue"): _get_value,
    (REGISTRY_KEY, "getvaluekind"): _get_kind,
    (REGISTRY_KEY, "getvaluenames"): lambda evaluator, target, a: list(target.get("Values") or {}),
    (REGISTRY_KEY, "getsubkeynames"): _sub_keys,
}
