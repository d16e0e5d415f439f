"""Reads configuration and state files of a node, and lists their directories.

A pod with a hostPath can replace each of them with a file of any size, and fill each directory with
any number of files. The code that reads and
parses them runs on the event loop that serves all nodes and the API, so reads are limited to a
sensible size and number.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from transom.machines.api import Files

LARGEST: Final = 256 << 10
MOST_NAMES: Final = 2000
LARGEST_YAML: Final = 64 << 10  # YAML takes a hundred times as long to parse as JSON


def read_small_file(files: Files, path: str, largest: int = LARGEST) -> bytes:
    """Raises OSError: EFBIG for a larger file."""
    data = files.read(path, 0, largest + 1)
    if len(data) > largest:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def list_small_directory(files: Files, path: str, most: int = MOST_NAMES) -> list[str]:
    """The names in a directory, sorted; arbitrary ones of them if there are more."""
    return files.some_names(path, most)
