"""The logs of programs on nodes: no message becomes two lines."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.windows.host import WindowsHost
from transom.node.programs.flags.klog import KlogSettings
from transom.node.programs.log import WARNING, ProgramLog, ProgramLogHandler

FORGED = "I0102 03:04:05.000000    1234 server.go:1] all is well"


def make_log() -> ProgramLog:
    files = WindowsHost("win", VirtualClock()).files
    return ProgramLog(
        "kubelet", 1234, KlogSettings(), files, lambda: 0.0, "win", {}, lambda data: None
    )


def test_a_message_stays_one_line() -> None:
    log = make_log()
    log.line(WARNING, "server.go:1", f'pod "x\n{FORGED}\r\x1b[2J\u2028"')
    log.info("server.go:2", f"{FORGED}\n{FORGED}")
    handler = ProgramLogHandler(log)
    handler.emit(
        logging.makeLogRecord(
            {"msg": f"a\n{FORGED}", "levelno": logging.INFO, "module": "x", "lineno": 1}
        )
    )
    lines = log.content().decode().splitlines()
    assert len(lines) == 3 and "\x1b" not in "".join(lines)
    assert lines[0].endswith(f'server.go:1] pod "x\\n{FORGED}\\r\\x1b[2J\\u2028"')


@pytest.mark.parametrize("full", ["before", "after"])
def test_a_program_that_cannot_write_its_log_file_exits_with_2_as_klog_does(
    full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = WindowsHost("win", VirtualClock())
    printed, codes = bytearray(), list[int]()
    settings = replace(KlogSettings(), to_stderr=False, directory="C:\\Windows\\Temp")
    log = ProgramLog(
        "kubelet",
        1234,
        settings,
        host.files,
        lambda: 0.0,
        "win",
        {},
        printed.extend,
        exit=codes.append,
    )

    def no_space(_data: bytes) -> None:
        raise OSError(errno.ENOSPC, "There is not enough space on the disk.", "kubelet.log")

    if full == "after":
        log.info("server.go:1", "begins")
        assert codes == [] and not printed
        log._open = dict.fromkeys(log._open, no_space)
    else:
        monkeypatch.setattr(type(host.files), "appender", lambda _files, _path: no_space)
    log.info("server.go:2", "fails")
    log.info("server.go:3", "is not written again")
    assert codes == [2] and log.failed
    assert printed.decode().startswith("log: exiting because of error: ")
    assert printed.decode().endswith("kubelet.log: There is not enough space on the disk.\n")
