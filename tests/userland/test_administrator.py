"""What a Windows administrator types in an hour: the transcript is in `administrator.txt`, and all
of it is one container.

`CMD>` and `PS>` are lines for cmd.exe and PowerShell, what is indented below is their output and
`=>` the exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.userland.conftest import Box

TRANSCRIPT = Path(__file__).with_name("administrator.txt")


class Entry(NamedTuple):
    shell: str
    line: str
    output: list[str]
    code: int


def entries() -> list[Entry]:
    out: list[Entry] = []
    for row in TRANSCRIPT.read_text().splitlines():
        shell, arrow, line = row.partition("> ")
        if arrow and shell in ("CMD", "PS"):
            out.append(Entry(shell, line, [], 0))
        elif row.startswith("  => "):
            out[-1] = out[-1]._replace(code=int(row[5:]))
        else:
            out[-1].output.append(row[2:])
    return out


async def test_an_hour_of_administration() -> None:
    expected = entries()
    assert len(expected) > 200
    wrong: list[str] = []

    box = Box("windows")
    for entry in expected:
        command = ("cmd", "/c") if entry.shell == "CMD" else ("powershell", "-Command")
        result = await box.run_to_end(*command, entry.line)
        printed = (result.out + result.err).replace("\r", "").rstrip("\n")
        shown = [line.rstrip() for line in printed.split("\n")] if printed.strip() else []
        if shown != entry.output or (result.code or 0) != entry.code:
            got = f"expected {entry.output} {entry.code}\ngot      {shown} {result.code}"
            wrong.append(f"{entry.shell}> {entry.line}\n{got}")
    assert not wrong, "\n\n".join(wrong[:5])
