"""Files that a node is set up with and that users can edit: the first line has a checksum, so that
a changed file is kept and an unchanged one follows the settings of the node.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

_MARK: Final = re.compile(r"# Written at setup, checksum ([0-9a-f]{8})\n")


def mark_setup_file(body: str) -> str:
    return f"# Written at setup, checksum {zlib.crc32(body.encode()):08x}\n{body}"


def is_unchanged_setup_file(text: str) -> bool:
    mark = _MARK.match(text)
    return mark is not None and int(mark[1], 16) == zlib.crc32(text[mark.end() :].encode())
