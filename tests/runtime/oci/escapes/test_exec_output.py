"""A command of a probe or a hook that writes without end (CVE-2022-31030, CVE-2022-1708)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.runtime.oci.escapes.attack import SHELL

from transom.runtime.exec_output import LARGEST_OUTPUT

Play = Callable[[Any], None]


async def test_more_output_than_is_kept(oci: Play) -> None:
    async with oci() as b:
        made = await b.run(b.programs.stay())
        flood = f"head -c {LARGEST_OUTPUT + 70_000} /dev/zero; echo end >&2; exit 3"
        done = await b.runtime.exec_sync(made, (*SHELL, flood))
        assert (len(done.stdout), done.stderr, done.exit_code) == (LARGEST_OUTPUT, b"end\n", 3)
