from __future__ import annotations

import pytest

from transom.hosts.linux import LinuxHost
from transom.kit.clock import VirtualClock
from transom.kubelet.server.logs import LogOptions, LogReader, UnknownFormat, parse_cri, parse_docker, tail_start

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
    assert read(b'{"log":"a\\n","stream":"stdout","time":"2020-01-01T00:00:01.1Z"}\n', timestamps=True) == (
        b"2020-01-01T00:00:01.100000000Z a\n"
    )
    with pytest.raises(UnknownFormat):
        read(b"what is this\n")
    assert read(THREE + b"garbage\n" + THREE) == b"one\ntwo\none\ntwo\n"


@pytest.mark.parametrize("line", [b"", b"x stdout F a", b"2020-01-01T00:00:01Z stdxxx F a", b"2020-13-41T00:00:01Z stdout F a"])
def test_bad_lines(line: bytes) -> None:
    assert parse_cri(line) is None
    assert parse_docker(line) is None


def test_tail_counts_line_ends() -> None:
    assert [tail_start(b"a\nb\nc", n) for n in (-1, 0, 1, 2, 3)] == [0, 4, 2, 0, 0]


def test_reading_goes_on_where_it_stopped_and_through_rotation() -> None:
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
