"""FNV hashes, as Kubernetes uses them in names and checksums."""

from __future__ import annotations


def fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def fnv32(data: bytes) -> int:
    """Like `fnv32a`, with multiplication first."""
    value = 0x811C9DC5
    for byte in data:
        value = value * 0x01000193 & 0xFFFFFFFF ^ byte
    return value
