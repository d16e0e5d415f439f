from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from transom.kit.clock import VirtualClock
from transom.kubelet.server.logs import (
    LogOptions,
    LogReader,
    UnknownFormat,
    parse_cri,
    parse_docker,
    tail_start,
)
from transom.machines.linux import LinuxHost
from transom.machines.realfiles import RealFiles

THREE = (
    b"2020-01-01T00:00:01.5Z stdout F one\n"
    b"2020-01-01T00:00:02Z stderr P tw\n"
    b"2020-01-01T00:00:03.000000001Z stderr F o\n"
)


def read(data: bytes, **options: object) -> bytes:
    host = LinuxHost("n", VirtualClock())
    host.files.write("/log", data)
    return b"".join(LogReader("/log", LogOptions(**options)).read(host.files))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, b"one\ntwo\n"),
        ({"tail": 1}, b"o\n"),
        ({"tail": 0}, b""),
        ({"tail": 7}, b"one\ntwo\n"),
        ({"since": 1577836802_000000000}, b"two\n"),
        ({"since": 1577836803_000000002}, b""),
        ({"limit": 5}, b"one\nt"),
        ({"timestamps": True, "tail": 1}, b"2020-01-01T00:00:03.000000001Z o\n"),
        ({"timestamps": True, "limit": 12}, b"2020-01-01T0"),
    ],
)
def test_what_is_asked_for_is_shown(options: dict[str, object], wanted: bytes) -> None:
    assert read(THREE, **options) == wanted


def test_a_line_without_an_end_is_shown_unless_it_may_yet_become_whole() -> None:
    assert read(b"2020-01-01T00:00:01Z stdout F half") == b"half"
    assert read(b"2020-01-01T00:00:01Z stdout F half", follow=True) == b""


def test_lines_of_docker_and_lines_of_no_format() -> None:
    assert read(
        b'{"log":"a\\n","stream":"stdout","time":"2020-01-01T00:00:01.1Z"}\n', timestamps=True
    ) == (b"2020-01-01T00:00:01.100000000Z a\n")
    with pytest.raises(UnknownFormat):
        read(b"what is this\n")
    assert read(THREE + b"garbage\n" + THREE) == b"one\ntwo\none\ntwo\n"


@pytest.mark.parametrize(
    "line",
    [b"", b"x stdout F a", b"2020-01-01T00:00:01Z stdxxx F a", b"2020-13-41T00:00:01Z stdout F a"],
)
def test_bad_lines(line: bytes) -> None:
    assert parse_cri(line) is None
    assert parse_docker(line) is None


def test_tail_counts_line_ends() -> None:
    files = LinuxHost("n", VirtualClock()).files
    files.write("/log", b"a\nb\nc")
    starts = []
    for tail in (-1, 0, 1, 2, 3):
        looking = tail_start(files, "/log", 5, tail)
        with pytest.raises(StopIteration) as done:
            next(looking)
        starts.append(done.value.value)
    assert starts == [0, 4, 2, 0, 0]


@pytest.mark.parametrize("length", [1, 100, 300_000])
def test_large_logs_are_read_in_parts(length: int) -> None:
    count = max(3, 600_000 // (length + 50))
    lines = [b"%d" % number + b"x" * length + b"\n" for number in range(count)]
    data = b"".join(
        b"2020-01-01T00:00:%02dZ stdout F " % (n % 60) + line for n, line in enumerate(lines)
    )
    assert read(data) == read(data, follow=True) == b"".join(lines)
    for tail in (0, 1, 2, count // 2, count - 1, count, 10**18):
        assert read(data, tail=tail) == b"".join(lines[-tail:] if tail else [])
    assert read(data, limit=250_001) == b"".join(lines)[:250_001]


def test_looking_for_a_time_gives_others_their_turn() -> None:
    host = LinuxHost("n", VirtualClock())
    host.files.write(
        "/log",
        b"2020-01-01T00:00:01Z stdout F old\n" * 50_000 + b"2021-01-01T00:00:01Z stdout F new\n",
    )
    pieces = list(LogReader("/log", LogOptions(since=1600000000_000000000)).read(host.files))
    assert len(pieces) > 10 and set(pieces[:-1]) == {b""} and pieces[-1] == b"new\n"


def test_a_line_without_end_is_not_read_as_a_whole(tmp_path: Path) -> None:
    """A pod that has the directory of its logs makes a terabyte of zeros of one."""
    files = RealFiles(tmp_path)
    line = b"2020-01-01T00:00:01Z stdout F one\n"
    files.write("/log", line)
    with (tmp_path / "log").open("r+b") as file:
        file.truncate(len(line) + (8 << 20))
    files.append("/log", b"\n" + line)
    assert b"".join(LogReader("/log", LogOptions()).read(files)) == b"one\none\n"
    with (tmp_path / "log").open("r+b") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        pieces = list(LogReader("/log", LogOptions(tail=1)).read(files))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(pieces) > 50 and peak < 16 << 20


def test_reading_continues_where_it_stopped_and_through_rotation() -> None:
    host = LinuxHost("n", VirtualClock())
    reader = LogReader("/log", LogOptions(follow=True))
    host.files.write("/log", THREE)
    assert b"".join(reader.read(host.files)) == b"one\ntwo\n"
    host.files.append("/log", b"2020-01-01T00:00:04Z stdout F th")
    assert b"".join(reader.read(host.files)) == b""
    host.files.append("/log", b"ree\n")
    assert b"".join(reader.read(host.files)) == b"three\n"
    host.files.rename("/log", "/log.1")
    host.files.write("/log", b"2020-01-01T00:00:05Z stdout F four\n")
    assert b"".join(reader.read(host.files)) == b"four\n"
    host.files.write("/log", b"2020-01-01T00:00:06Z stdout F " + b"x" * 500 + b"\n")
    assert b"".join(reader.read(host.files)) == b"x" * 500 + b"\n"
