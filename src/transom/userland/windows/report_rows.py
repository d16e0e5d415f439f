"""Rows as tasklist, getmac and their like print them: as a table, a list or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def formatted_rows(
    columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[str]], shape: str, *, heading: bool
) -> Iterator[str]:
    """`columns` are names and widths; `shape` is table, list or csv."""
    names = [name for name, _ in columns]
    if shape == "list":
        width = max(len(name) for name in names) + 1
        for row in rows:
            yield ""
            for name, cell in zip(names, row, strict=True):
                yield f"{name + ':':<{width}} {cell}"
        return
    if shape == "csv":
        for row in [names, *rows] if heading else rows:
            yield ",".join(f'"{cell}"' for cell in row)
        return
    yield ""
    table = [list(row) for row in rows]
    if heading:
        table = [names, ["=" * width for _, width in columns], *table]
    for row in table:
        cells = [cell[:width].ljust(width) for cell, (_, width) in zip(row, columns, strict=True)]
        yield " ".join(cells).rstrip()
