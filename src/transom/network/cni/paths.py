"""Paths of a node in its operating system's notation, and file errors in the wording of Go
programs.
"""

from __future__ import annotations

from typing import NoReturn

from transom.network.cni.plugin import fail_plugin


def join_cni_path(os: str, *parts: str) -> str:
    """The configuration has POSIX paths on both systems; on Windows they are relative to the system
    drive.
    """
    if os != "windows":
        return "/".join(part.rstrip("/") for part in parts)
    path = "\\".join(part.replace("/", "\\").rstrip("\\") for part in parts)
    return "C:" + path if path.startswith("\\") else path


def go_error_reason(error: OSError) -> str:
    """Go's wording: a Linux error begins with a lower-case letter, a Windows error is a
    sentence.
    """
    text = error.strerror or str(error)
    return text if text.endswith(".") else text[:1].lower() + text[1:]


def fail_with_file_error(operation: str, path: str, error: OSError) -> NoReturn:
    fail_plugin(f"{operation} {path}: {go_error_reason(error)}")
