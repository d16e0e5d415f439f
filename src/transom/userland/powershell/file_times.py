"""The times of files: creation, last access, last write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from transom.machines.api import Stat
from transom.machines.windows.time_zones import offset_seconds
from transom.userland.powershell.casts import parse_date_time
from transom.userland.powershell.members import local_date
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.statics import Static, io_message, method_failed
from transom.userland.powershell.values import DateTime, PsObject, to_text

_OF_A_MISSING_FILE: Final = -11644473600.0  # the year 1601
_TIMES: Final[dict[str, Callable[[Stat], float]]] = {
    "CreationTime": lambda state: state.created,
    "LastAccessTime": lambda state: state.accessed,
    "LastWriteTime": lambda state: state.mtime,
}
_ARGUMENTS: Final = {
    "CreationTime": "created",
    "LastAccessTime": "accessed",
    "LastWriteTime": "written",
}


def file_times(evaluator: PowerShellSession, state: Stat) -> dict[str, Any]:
    """The properties of a file object."""
    properties: dict[str, Any] = {}
    for name, of in _TIMES.items():
        properties[name] = local_date(evaluator, of(state))
        properties[f"{name}Utc"] = DateTime(of(state), 0, "Utc")
    return properties


def set_file_time(evaluator: PowerShellSession, path: str, name: str, value: Any) -> None:
    """`name` is one of the six properties; a date without a time zone is that of the machine."""
    date = value if isinstance(value, DateTime) else parse_date_time(to_text(value))
    moment = date.moment - date.offset
    if not isinstance(value, DateTime) or (not date.offset and not name.endswith("Utc")):
        registry = evaluator.process.context.windows.system.registry
        moment -= 0 if name.endswith("Utc") else offset_seconds(registry, moment)
    evaluator.process.files.set_times(path, **{_ARGUMENTS[name.removesuffix("Utc")]: moment})


def set_time_property(
    evaluator: PowerShellSession, target: PsObject, name: str, value: Any
) -> bool:
    """`$file.LastWriteTime = ...`; False for other properties."""
    known = next((key for key in _TIMES if key.lower() == name.lower().removesuffix("utc")), None)
    if known is None:
        return False
    zone = "Utc" if name.lower().endswith("utc") else ""
    path = to_text(target.get("FullName"))
    set_file_time(evaluator, path, known + zone, value)
    target.properties.update(file_times(evaluator, evaluator.process.files.stat(path)))
    return True


def _get_time(kind: str, zone: str) -> Static:
    def run(evaluator: PowerShellSession, given: list[Any] | None) -> DateTime:
        try:
            moment = _TIMES[kind](evaluator.process.files.stat(to_text((given or [""])[0])))
        except OSError:
            moment = _OF_A_MISSING_FILE
        return DateTime(moment) if zone else local_date(evaluator, moment)

    return run


def _set_time(kind: str, zone: str) -> Static:
    def run(evaluator: PowerShellSession, given: list[Any] | None) -> None:
        path, value = (*(given or []), "", "")[:2]
        try:
            set_file_time(evaluator, to_text(path), kind + zone, value)
        except OSError as error:
            full = evaluator.process.files.absolute(to_text(path))
            why = io_message(to_text(path), full, error)
            raise method_failed(f"Set{kind}{zone}", 2, why) from None

    return run


TIME_METHODS: Final[dict[tuple[str, str], Static]] = {
    (owner, f"{verb}{kind}{zone}".lower()): make(kind, zone)
    for owner in ("io.file", "io.directory")
    for verb, make in (("Get", _get_time), ("Set", _set_time))
    for kind in _TIMES
    for zone in ("", "Utc")
}
