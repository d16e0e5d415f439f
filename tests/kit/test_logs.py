import errno
import json
import logging
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit import logs
from transom.kit.escaping import escape_terminal


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


def test_text_lines_look_like_klog(tmp_path: Path) -> None:
    logs.set_up_logging(path=tmp_path / "log")
    logging.getLogger("transom.x").debug("too fine")
    logging.getLogger("transom.x").warning("disk %s is %d%% full", "a", 93)
    (line,) = (tmp_path / "log").read_text().splitlines()
    pattern = r"W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] disk a is 93% full"
    assert re.fullmatch(pattern, line)
    assert (tmp_path / "log").stat().st_mode & 0o777 & ~0o640 == 0


def test_json_lines_carry_the_error(tmp_path: Path) -> None:
    logs.set_up_logging(path=tmp_path / "log", form="json", level="error")
    logging.getLogger("transom.x").warning("not bad enough")
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("transom.x").exception("it failed\nbadly")
    (line,) = (tmp_path / "log").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["msg"]) == (
        "error",
        "transom.x",
        "it failed\nbadly",
    )
    assert "ValueError: boom" in entry["error"]


def test_a_second_setup_replaces_the_first(tmp_path: Path) -> None:
    logs.set_up_logging(path=tmp_path / "one")
    logs.set_up_logging(path=tmp_path / "two")
    logging.getLogger("transom.x").info("hello")
    assert (tmp_path / "one").read_text() == ""
    assert "hello" in (tmp_path / "two").read_text()


FORGED = "I0102 03:04:05.123456       1 handler.py:17] admin logged in"
NASTY = st.text(
    st.one_of(
        st.characters(), st.sampled_from("\n\r\v\f\x1b\x85\x9b\u2028\u2029\u202e\ud800\x7f\0")
    ),
    max_size=40,
)


def written(
    form: Literal["text", "json"],
    message: str,
    *arguments: object,
    problem: Exception | None = None,
) -> str:
    record = logging.LogRecord(
        "transom.x",
        logging.INFO,
        "/x/handler.py",
        17,
        message,
        arguments,
        (type(problem), problem, None) if problem else None,
    )
    return (logs.JsonFormatter() if form == "json" else logs.TextFormatter()).format(record)


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_client_cannot_forge_a_line(form: Literal["text", "json"], end: str) -> None:
    line = written(form, "GET %s: not found", f"/x{end}{FORGED}")
    assert len(line.splitlines()) == 1 and FORGED in line
    if form == "json":
        assert json.loads(line)["msg"] == f"GET /x{end}{FORGED}: not found"


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_cannot_forge_a_line(form: Literal["text", "json"]) -> None:
    lines = written(
        form, "failed", problem=ValueError(f"x\n{FORGED}\r{FORGED}\x1b[2J")
    ).splitlines()
    assert len(lines) == (3 if form == "text" else 1)
    assert all(line.startswith("  ") for line in lines[1:]) and "\x1b" not in "".join(lines)


@pytest.mark.parametrize("form", ["text", "json"])
@given(text=NASTY)
def test_nothing_in_a_line_moves_the_cursor(form: Literal["text", "json"], text: str) -> None:
    line = written(form, "%s", text)
    line.encode()
    assert line.splitlines() == [line]
    assert all(
        char == "\t" or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp") for char in line
    )
    assert not set(line) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    if form == "json":
        assert json.loads(line)["msg"] == text


def test_lines_that_are_our_own_stay_apart() -> None:
    record = logging.makeLogRecord(
        {"msg": "blocked\n  a.py:1\n  b.py:2", "filename": "x.py", "lineno": 1, **logs.MULTILINE}
    )
    assert logs.TextFormatter().format(record).splitlines()[1:] == ["    a.py:1", "    b.py:2"]


def test_a_terminal_gets_lines_and_colours_and_nothing_else() -> None:
    assert escape_terminal("\x1b[31mred\x1b[0m\n\ttab") == "\x1b[31mred\x1b[0m\n\ttab"
    assert (
        escape_terminal("\x1b[2J\x1b]0;title\x07\r\x9b1A\u202e")
        == r"\x1b[2J\x1b]0;title\a\r\u009b1A\u202e"
    )


def test_lines_are_dropped_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    logs.set_up_logging(path=path)
    room = 50
    write = os.write

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(logs.os, "write", limited)
    log = logging.getLogger("transom.test")
    log.warning("a line that is cut because there is no more room on the disk")
    log.warning("dropped")
    room = 1000
    log.warning("written again")
    first, second = path.read_text().splitlines()
    assert len(first) == 50 and second.endswith("written again")
    assert capsys.readouterr().err == ""
