"""Scripts that loop forever or request too much memory neither block others nor exhaust the
server's memory.

The budget of each callback (tests/conftest.py) applies to every test here; `limited` bounds the
memory that a script takes.
"""

from __future__ import annotations

import asyncio
import hashlib
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.userland.conftest import Box

from transom.machines.inodes import DiskQuota, FileContent
from transom.userland import preemption
from transom.userland.posix.sh.parser import parse_shell
from transom.userland.powershell.parser import parse_powershell

MIB = 1024 * 1024
OUT_OF_MEMORY = "out of memory"


@contextmanager
def limited(memory: int = 64 * MIB) -> Iterator[None]:
    """The process needs no more than this at its peak, beyond what it needed before."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < memory, f"grew by {grown // MIB} MiB"


@pytest.mark.parametrize(
    "script",
    [
        "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done",
        'set -- a; while :; do set -- "$@" "$@"; done',
        "x=$(yes)",
        "x=$(cat /dev/zero)",
        "printf '%1000000000d' 1",
        "printf '%.1000000000f' 1",
        "printf '%*d' 1000000000 1",
        "yes | sort",
        "cat /dev/zero | base64",
        "awk 'BEGIN { x = \"a\"; while (1) x = x x }'",
        "awk 'BEGIN { while (1) x[i++] = i }'",
        "awk 'BEGIN { $1000000000 = 1 }'",
        "awk 'BEGIN { printf \"%1000000000d\", 1 }'",
        "head -c 17000000 /dev/zero | gzip | gunzip",
        "dd if=/dev/zero of=/tmp/x bs=100G count=1",
    ],
)
def test_a_script_that_asks_for_too_much_memory_ends(box: Box, script: str) -> None:
    with limited():
        result = box.sh(script, limit=1e6)
    assert OUT_OF_MEMORY in result.err and result.code


LONG_LINE = "head -c 3000000 /dev/zero | tr '\\0' a > /tmp/a; "
MANY_LINES = "seq 1 99999 > /tmp/f; "


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (MANY_LINES + "sort -r /tmp/f | head -n 1", ""),
        (MANY_LINES + "sort -k1,1n -u /tmp/f | head -n 1", ""),
        (MANY_LINES + "uniq -c /tmp/f | tail -n 1", ""),
        (MANY_LINES + "grep -f /tmp/f /tmp/f", "too complex"),
        (LONG_LINE + "fold -w 1 /tmp/a | head -n 1", ""),
        (LONG_LINE + "sed s/a/bb/g /tmp/a | wc -c", ""),
        (LONG_LINE + "awk '{n=split($0, x, \"a\")}' /tmp/a", OUT_OF_MEMORY),
        (LONG_LINE + "awk -F '' '{print NF}' /tmp/a", OUT_OF_MEMORY),
        (LONG_LINE + "head -c 600000 /tmp/a > /tmp/b; IFS=a; set -- $(cat /tmp/b)", OUT_OF_MEMORY),
        (LONG_LINE + "read $(seq -f x%g 1 5000) < /tmp/a", OUT_OF_MEMORY),
    ],
)
def test_commands_with_large_input_let_others_run(box: Box, script: str, error: str) -> None:
    result = box.sh(script, limit=1e6)
    assert error in result.err and (error or not result.err), result.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [("", "1 10 2 b"), ("-r", "b 2 10 1"), ("-n", "b 1 2 10"), ("-k1,1nr", "10 2 1 b")],
)
def test_parts_are_sorted_like_the_whole(
    box: Box, monkeypatch: pytest.MonkeyPatch, options: str, expected: str
) -> None:
    whole = box.sh(f"printf '10\n2\nb\n1\n' | sort {options}").out.split()
    monkeypatch.setattr(preemption, "_SORTED_AT_ONCE", 1)
    assert box.sh(f"printf '10\n2\nb\n1\n' | sort {options}").out.split() == whole
    assert whole == expected.split()


@pytest.mark.parametrize("script", ["echo {1..100000000}", f"echo {'{a,b}' * 30}"])
def test_braces_that_become_too_much_end_the_shell(script: str) -> None:
    with limited():
        result = Box(userland="gnu").run("bash", "-c", script)
    assert OUT_OF_MEMORY in result.err and result.code


@pytest.mark.parametrize(
    "script",
    [
        "$x = 'a'; while ($true) { $x += $x }",
        "$x = 'a'; while ($true) { $x = \"$x$x\" }",
        "'a' * 1000000000000",
        "$a = @(1); while ($true) { $a += $a }",
        "1..1000000000 | Out-Null",
        "'{0,1000000000}' -f 1",
        "'{0:N1000000000}' -f 1",
        "'a'.PadLeft(2000000000)",
        "('a' * 200000) -replace '', 'bbbbbbbbbbbbbbbbbbbbbbbbbb'",
        "1..500000 | Sort-Object -Descending",
    ],
)
def test_a_powershell_script_that_asks_for_too_much_memory_ends(windows: Box, script: str) -> None:
    with limited():
        result = windows.powershell(script, limit=1e6)
    assert OUT_OF_MEMORY in result.err and result.code


@pytest.mark.parametrize(
    ("script", "out"),
    [
        ("echo $((2**1000000000))", "0\n"),
        ("echo $((7**1000000007 % 1000))", None),
        ("echo $((1<<100000000000))", "1\n"),
        (
            (
                "x=2; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
                "x=$((x*x)); done; echo $x"
            ),
            "0\n",
        ),
        ("awk 'BEGIN { print 2^1000000000 }'", "inf\n"),
        ("awk 'BEGIN { for (i = 0; i < 100000; i++) s += i; print s }'", "4999950000\n"),
        ("seq 1 300000 | tail -n 1", "300000\n"),
        ("seq 1 300000 | wc -l", "300000\n"),
        ("yes | head -c 20000000 | wc -c", "20000000\n"),
        (
            "yes | head -c 20000001 | md5sum",
            f"{hashlib.md5((b'y' + bytes((10,))) * 10_000_000 + b'y').hexdigest()}  -\n",
        ),
        ("x=$(printf '%200000d' 1); x=${x%%1*}; echo ${#x}", "199999\n"),
        ("x=$(printf '%200000d' 1); x=${x##* }; echo $x", "1\n"),
        (
            "dd if=/dev/zero of=/tmp/x bs=1M count=1000 2>/dev/null; wc -c < /tmp/x; rm /tmp/x",
            "1048576000\n",
        ),
    ],
)
def test_large_results_are_correct_and_take_turns(box: Box, script: str, out: str | None) -> None:
    with limited():
        result = box.sh(script, limit=1e9)
    assert result.code == 0
    if out is not None:
        assert result.out == out


def doubled(text: str, times: int) -> str:
    """The start of a script in which $x is the text, repeated 2 ** times."""
    return f"x='{text}'; for i in $(seq 1 {times}); do x=$x$x; done; "


@pytest.mark.parametrize(
    ("script", "out"),
    [
        (doubled("echo a;", 13) + 'eval "$x" | wc -c', "16384\n"),
        (doubled('"a"', 16) + 'eval "echo $x" | wc -c', "65537\n"),
        (doubled("1+", 15) + "echo $(( ${x}1 ))", "32769\n"),
        (doubled("a|", 15) + 'eval "case b in ${x}b) echo yes;; esac"', "yes\n"),
        (doubled("ab", 16) + "echo ${x//a/b} | wc -c", "131073\n"),
        (doubled("s/a/b/;", 14) + 'echo aaa | sed "$x"', "bbb\n"),
        (doubled("x+=1;", 14) + 'echo | awk "{$x print x}"', "16384\n"),
        (doubled("-n a -o ", 14) + 'eval "[ $x -n b ]"; echo $?', "0\n"),
        (doubled("%d ", 16) + 'printf "$x" | wc -c', "131072\n"),
        ("printf '%d\\n' $(seq 1 30000) | tail -n 1", "30000\n"),
        ("seq 1 99999 | sort -r | tail -n 1", "1\n"),
        (doubled("ab", 17) + "echo $x | cut -c1-200000 | wc -c", "200001\n"),
    ],
)
def test_large_inputs_take_turns(box: Box, script: str, out: str) -> None:
    with limited(96 * MIB):
        result = box.sh(script, limit=1e9)
    assert (result.out, result.err, result.code) == (out, "", 0)


@pytest.mark.parametrize(
    "script",
    [
        "$x='1;'; while($x.Length -lt 16000){$x+=$x}; (Invoke-Expression $x).Count",
        "$x='1,'; while($x.Length -lt 16000){$x+=$x}; (Invoke-Expression ($x+'1')).Count",
        "$x='a=1;'; while($x.Length -lt 16000){$x+=$x}; (Invoke-Expression ('@{'+$x+'}')).Count",
        "(Compare-Object (1..2000) (2001..4000)).Count",
        "(1..9000 | Sort-Object -Descending)[0]",
    ],
)
def test_large_powershell_scripts_take_turns(windows: Box, script: str) -> None:
    with limited():
        result = windows.powershell(script, limit=1e9)
    assert result.code == 0 and not result.err and result.out.strip().isdigit()


def test_deep_trees_take_turns(box: Box) -> None:
    deep = "cd /tmp; p=a; for i in 1 2 3 4 5 6 7 8 9 10; do p=$p/$p; done; mkdir -p $p; "
    with limited():
        result = box.sh(deep + "find a | wc -l; chmod -R 700 a; rm -rf a; ls", limit=1e9)
    assert result.out == "1024\n"


def test_wide_trees_take_turns(box: Box) -> None:
    commands = (
        "mkdir /tmp/w; cd /tmp/w; seq 1 12000 | xargs touch; ls -la | wc -l; set -- *; echo $#; "
        "cd /tmp; rm -rf w; ls"
    )
    with limited(96 * MIB):
        result = box.sh(commands, limit=1e9)
    assert result.out.split() == ["12003", "12000"]


def test_a_machine_has_room_for_a_bounded_number_of_files(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskQuota, "MAX_FILES", 1000)
    result = box.sh("cd /tmp; seq 1 2000 | xargs touch")
    assert "No space left on device" in result.err
    assert 900 < int(box.sh("ls /tmp | wc -l").out) <= 1000


def test_a_path_has_a_bounded_length(box: Box) -> None:
    result = box.sh(doubled("aaa/", 10) + "mkdir -p /tmp/$x")
    assert "File name too long" in result.err and result.code


@pytest.mark.parametrize("parse", [parse_shell, parse_powershell])
def test_parsed_scripts_are_kept_only_if_they_are_short(parse: Any) -> None:
    before = parse.cache_size()
    for number in range(5):
        parse(f"echo {number};" * 2000)
    assert parse.cache_size() == before


@pytest.mark.parametrize(
    "script",
    [
        "while :; do :; done",
        "yes > /dev/null",
        "yes | head -c 1000000000000 > /dev/null",
        "seq 1 1000000000000 > /dev/null",
        "awk 'BEGIN { while (1) {} }'",
        "cat /dev/zero > /dev/null",
    ],
)
def test_others_run_beside_an_endless_script(box: Box, script: str) -> None:
    async def main() -> None:
        context = box.start("sh", "-c", script)
        turns = 0
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 20
        assert context.code is None
        context.signal("SIGKILL")
        await asyncio.sleep(0)

    with limited():
        asyncio.run(main())


def test_a_fork_bomb_runs_out_of_processes(box: Box) -> None:
    with limited(128 * MIB):
        result = box.sh("for i in $(seq 1 10000); do sleep 1000 & done")
    assert result.err == "sh: can't fork: Resource temporarily unavailable\n"
    assert result.code == 2


def test_endless_recursion_ends_the_program_only(box: Box, windows: Box) -> None:
    assert box.sh("f() { f; }; f").code == 139
    result = windows.powershell("function f { f }; try { f } catch { 'caught' }; f; 'not reached'")
    assert (result.code, result.out) == (1, "caught\r\n")
    assert result.err.startswith("The script failed due to call depth overflow.")


def test_content_of_files_is_bounded_and_given_back(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileContent, "LIMIT", FileContent.held + 4 * MIB)
    before = FileContent.held
    result = box.sh("yes | head -c 50000000 > /tmp/x; wc -c < /tmp/x; rm /tmp/x", limit=1e6)
    assert "No space left on device" in result.err
    assert FileContent.held == before


def test_errors_that_powershell_keeps_are_bounded(windows: Box) -> None:
    script = (
        "$ErrorActionPreference = 'SilentlyContinue'; foreach ($i in 1..1000) { 1 / 0 }; "
        "$Error.Count"
    )
    assert windows.powershell(script).out == "256\r\n"


def test_arithmetic_beyond_64_bits_is_a_double(windows: Box) -> None:
    assert (
        windows.powershell("$x = 2; foreach ($i in 1..40) { $x *= $x }; $x").out == "Infinity\r\n"
    )
    assert windows.powershell("[math]::Pow(2, 100000)").out == "Infinity\r\n"
