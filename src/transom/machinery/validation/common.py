"""Small checks that many validators share: numbers, names at a path, file paths, ports.

All checks append to `errs`; a valid value costs only the check itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transom.machinery.field import invalid, required
from transom.machinery.validation.names import (
    NEGATIVE,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_valid_port_name,
    is_valid_port_num,
    range_error,
)
from transom.machinery.validation.rules import Errors

MAX_INT32 = (1 << 31) - 1
FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def all_invalid(messages: Iterable[str], value: Any, path: str, errs: Errors) -> None:
    for message in messages:
        errs.append(invalid(path, value, message))


def check_nonnegative(value: int, path: str, errs: Errors) -> None:
    if value < 0:
        errs.append(invalid(path, value, NEGATIVE))


def check_nonnegative_fields(
    obj: dict[str, Any], names: Iterable[str], path: str, errs: Errors
) -> None:
    """Several optional numbers of one object, in the given order."""
    for name in names:
        value = obj.get(name)
        if value is not None and value < 0:
            errs.append(invalid(f"{path}.{name}", value, NEGATIVE))


def check_required(obj: dict[str, Any], names: Iterable[str], path: str, errs: Errors) -> None:
    for name in names:
        if not obj.get(name):
            errs.append(required(f"{path}.{name}"))


def check_dns_label(value: str, path: str, errs: Errors) -> None:
    all_invalid(is_dns1123_label(value), value, path, errs)


def check_dns_subdomain(value: str, path: str, errs: Errors) -> None:
    all_invalid(is_dns1123_subdomain(value), value, path, errs)


def check_mode(mode: int | None, path: str, errs: Errors) -> None:
    if mode is not None and not 0 <= mode <= 0o777:
        errs.append(invalid(path, mode, FILE_MODE))


def check_range(value: int, low: int, high: int, path: str, errs: Errors) -> None:
    if not low <= value <= high:
        errs.append(invalid(path, value, range_error(low, high)))


def check_no_backsteps(target: str, path: str, errs: Errors) -> None:
    if ".." in target and ".." in target.split("/"):
        errs.append(invalid(path, target, "must not contain '..'"))


def check_descending_path(target: str, path: str, errs: Errors) -> None:
    """A path below a directory: relative, without `..`."""
    if target.startswith("/"):
        errs.append(invalid(path, target, "must be a relative path"))
    check_no_backsteps(target, path, errs)


def check_unreserved_path(target: str, path: str, errs: Errors) -> None:
    """Like a descending path; names that begin with two dots are reserved for the kubelet."""
    check_descending_path(target, path, errs)
    if target.startswith("..") and not target.startswith("../"):
        errs.append(invalid(path, target, "must not start with '..'"))


def check_port(port: int | str, path: str, errs: Errors) -> None:
    """A port number or the name of a port."""
    all_invalid(
        is_valid_port_name(port) if isinstance(port, str) else is_valid_port_num(port),
        port,
        path,
        errs,
    )
