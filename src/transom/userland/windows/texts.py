"""Texts of Windows: system error messages, dates and numbers as its tools print them."""

from __future__ import annotations

import errno
import time

from transom.machines.styles import windows_error_code

NOT_FOUND_FILE = "The system cannot find the file specified."
NOT_FOUND_PATH = "The system cannot find the path specified."
DENIED = "Access is denied."
_MESSAGES = {
    errno.ENOENT: NOT_FOUND_FILE,
    errno.ENOTDIR: "The directory name is invalid.",
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.EROFS: DENIED,
    errno.EISDIR: DENIED,
    errno.EEXIST: "Cannot create a file when that file already exists.",
    errno.ENOTEMPTY: "The directory is not empty.",
    errno.ENOSPC: "There is not enough space on the disk.",
    errno.EBUSY: "The process cannot access the file because it is being used by another process.",
    errno.EINVAL: "The filename, directory name, or volume label syntax is incorrect.",
}


def windows_message(error: OSError) -> str:
    if windows_error_code(error) == 3:
        return NOT_FOUND_PATH
    return _MESSAGES.get(error.errno or 0, error.strerror or str(error))


def date_time(moment: float) -> str:
    """As `dir` prints it: `01/02/2020  03:04 AM`."""
    return time.strftime("%m/%d/%Y  %I:%M %p", time.gmtime(moment))


def long_date(moment: float) -> str:
    return time.strftime("%a %m/%d/%Y", time.gmtime(moment))


def clock(moment: float) -> str:
    """The format of %TIME%: ` 3:04:05.00`."""
    now = time.gmtime(moment)
    return f"{now.tm_hour:2d}:{now.tm_min:02d}:{now.tm_sec:02d}.{int(moment % 1 * 100):02d}"


def version_line(build: str) -> str:
    """The output of `ver` for 10.0.17763.1697."""
    return f"Microsoft Windows [Version {build}]"
