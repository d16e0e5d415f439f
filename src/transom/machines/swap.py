"""The swap of an emulated Linux machine: one file, of which nothing is used."""

from __future__ import annotations


def proc_swaps(size: int) -> str:
    """/proc/swaps of a machine with `size` bytes of swap."""
    rows = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    if size:
        rows.append(f"{'/swap.img':<40}file\t\t{size >> 10}\t\t0\t\t-2")
    return "".join(f"{row}\n" for row in rows)
