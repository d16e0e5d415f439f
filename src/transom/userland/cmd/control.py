"""What cmd's interpreter and its builtins share: jumps in batch files and the splitting of arguments."""

from __future__ import annotations

from transom.kit.argv import parse_command_line


class BatchGoto(Exception):
    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label


def split_arguments(text: str) -> list[str]:
    return parse_command_line(text, " \t\r\n")
