"""Encodes and decodes CRI's messages, by the names and numbers in `messages.txt`."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from transom.machinery.protobuf.table import Message, MessageTable

__all__ = ["Message", "decode", "encode"]

TABLE: Final = MessageTable(files(__package__).joinpath("messages.txt").read_text)

encode: Final = TABLE.encode
decode: Final = TABLE.decode
