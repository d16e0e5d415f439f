"""Paths of a node as its operating system writes them, and failures of its files as Go programs word them."""

from __future__ import annotations

from typing import NoReturn

from transom.network.cni.plugin import fail


def join(os: str, *parts: str) -> str:
    """Configuration has POSIX paths on both systems; on Windows they are meant on the system's drive."""
    if os != "windows":
        return "/".join(part.rstrip("/") for part in parts)
    path = "\\".join(part.replace("/", "\\").rstrip("\\") for part in parts)
    return "C:" + path if path.startswith("\\") else path


def reason(error: OSError) -> str:
    """As Go has it: what Linux says begins with a small letter, what Windows says is a sentence."""
    text = error.strerror or str(error)
    return text if text.endswith(".") else text[:1].lower() + text[1:]


def fail_file(operation: str, path: str, error: OSError) -> NoReturn:
    fail(f"{operation} {path}: {reason(error)}")
