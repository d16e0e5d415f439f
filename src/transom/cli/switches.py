"""Boolean flags like those of Kubernetes' components: `--leader-elect`, `--leader-elect=false`, and
also `--no-leader-elect`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from transom.kit import gobool


class SwitchAction(argparse.Action):
    def __init__(
        self, option_strings: Sequence[str], dest: str, default: Any = None, help: str | None = None
    ) -> None:
        names = [*option_strings, *(f"--no-{name.removeprefix('--')}" for name in option_strings)]
        super().__init__(names, dest, nargs="?", default=default, metavar="true|false", help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        opposite = (option_string or "").startswith("--no-")
        if values not in (None, *gobool.TRUE, *gobool.FALSE):
            parser.error(f"{option_string} must be true or false, not {values!r}")
        setattr(namespace, self.dest, (values is None or values in gobool.TRUE) != opposite)
