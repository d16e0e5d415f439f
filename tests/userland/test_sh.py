"""Shell scripts as in manifests: their output, duration and exit codes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.userland.posix.sh import arithmetic, patterns

SCRIPTS = [
    # quoting and variables
    ("echo hello   world", "hello world\n"),
    ("echo 'a  b' \"c  d\" e\\ f", "a  b c  d e f\n"),
    ("x=5; echo $x ${x} \"$x\" '$x'", "5 5 5 $x\n"),
    ("echo ${x:-default} ${x-unset} ${x:=assigned} $x", "default unset assigned assigned\n"),
    ("x=abc; echo ${#x} ${x:+set} ${y:+set}", "3 set\n"),
    (
        "f=/a/b/c.tar.gz; echo ${f##*/} ${f%.*} ${f%%.*} ${f#*/}",
        "c.tar.gz /a/b/c.tar /a/b/c a/b/c.tar.gz\n",
    ),
    ("x='a b  c'; for i in $x; do echo \"[$i]\"; done", "[a]\n[b]\n[c]\n"),
    ('IFS=:; x=a:b::c; for i in $x; do echo "[$i]"; done', "[a]\n[b]\n[]\n[c]\n"),
    (
        'set -- a \'b c\' d; for i in "$@"; do echo "[$i]"; done; echo $# "$*"',
        "[a]\n[b c]\n[d]\n3 a b c d\n",
    ),
    ("echo $(echo a; echo b) `echo c`", "a b c\n"),
    ('echo "$(printf "1\\n2\\n\\n")"', "1\n2\n"),
    ("echo $((1 + 2 * 3)) $(( (1+2)*3 )) $((7/2)) $((7%3)) $((2**3))", "7 9 3 1 8\n"),
    ("i=0; i=$((i+1)); : $((i+=5)); echo $i $((i>3?1:0))", "6 1\n"),
    ("echo a'b'\"c\"", "abc\n"),
    ("echo \\$HOME ~ ~/x", "$HOME /root /root/x\n"),
    ("a=1 b=2; echo $a$b", "12\n"),
    ('echo "a\\"b\\$c\\d"', 'a"b$c\\d\n'),
    ("echo one\\\ntwo", "onetwo\n"),
    # control flow
    ("if true; then echo yes; else echo no; fi", "yes\n"),
    ("if false; then echo 1; elif [ 1 -eq 1 ]; then echo 2; else echo 3; fi", "2\n"),
    ("for i in 1 2 3; do echo $i; done", "1\n2\n3\n"),
    ("i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done", "0\n1\n2\n"),
    ("i=0; until [ $i -ge 2 ]; do i=$((i+1)); done; echo $i", "2\n"),
    ("for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; echo $i; done", "1\n3\n"),
    ("case abc in a*) echo A;; *) echo other;; esac", "A\n"),
    ("case $x in '') echo empty;; esac; case b in a|b) echo ab; esac", "empty\nab\n"),
    ("f() { echo $1 $#; return 3; }; f x y; echo $?", "x 2\n3\n"),
    ("f() { local x=1; echo $x; }; x=2; f; echo $x", "1\n2\n"),
    ("true && echo a || echo b; false && echo a || echo b", "a\nb\n"),
    ("! true; echo $?; ! false; echo $?", "1\n0\n"),
    ("(cd /tmp; pwd); pwd", "/tmp\n/\n"),
    ("{ echo a; echo b; } | cat", "a\nb\n"),
    ("x=1; (x=2); echo $x; { x=3; }; echo $x", "1\n3\n"),
    ("echo a; # comment\necho b", "a\nb\n"),
    ("while true; do echo once; break; done", "once\n"),
    # redirections
    ("echo hi > /tmp/f; cat /tmp/f; echo more >> /tmp/f; cat < /tmp/f", "hi\nhi\nmore\n"),
    ("echo err >&2; echo out", "out\n"),
    ("ls /nothing 2>&1", "ls: /nothing: No such file or directory\n"),
    ("ls /nothing 2>/dev/null; echo $?", "1\n"),
    ("cat <<EOF\na $((1+1)) $HOME\nEOF", "a 2 /root\n"),
    ("cat <<'EOF'\na $HOME\nEOF\necho after", "a $HOME\nafter\n"),
    ("cat <<-EOF\n\tindented\n\tEOF", "indented\n"),
    ("echo hi | tee /tmp/t | tr a-z A-Z; cat /tmp/t", "HI\nhi\n"),
    ("exec > /tmp/log; echo hidden; cat /tmp/log >&2", ""),
    ('while read a b; do echo "$b-$a"; done <<EOF\n1 2 3\n4 5\nEOF', "2 3-1\n5-4\n"),
    # files and globs
    (
        (
            "mkdir -p /tmp/d; touch /tmp/d/a.txt /tmp/d/b.txt /tmp/d/.h; echo /tmp/d/*.txt; cd "
            "/tmp/d; echo *; echo *.x"
        ),
        "/tmp/d/a.txt /tmp/d/b.txt\na.txt b.txt\n*.x\n",
    ),
    ("[ -f /etc/passwd ] && [ -d /tmp ] && [ ! -e /nope ] && echo ok", "ok\n"),
    ('test 5 -gt 3 -a a = a && echo ok; [ "$x" ] || echo empty', "ok\nempty\n"),
    ('[ -n "$HOME" ] && [ -z "$nope" ] && echo ok', "ok\n"),
    # jobs and traps
    ("sleep 1 & wait; echo done", "done\n"),
    ("(sleep 2; echo second) & echo first; wait", "first\nsecond\n"),
    ("trap 'echo bye' EXIT; echo hi", "hi\nbye\n"),
    ("trap 'echo got' TERM; kill -TERM $$; echo after", "got\nafter\n"),
    ("sleep 100 & p=$!; kill $p; wait $p; echo $?", "143\n"),
    ('f() { return 5; }; f || echo "code $?"', "code 5\n"),
    ("set -e; f() { false; echo not reached; }; f || echo caught", "not reached\n"),
    ("set -o pipefail; false | true; echo $?", "1\n"),
    ("eval 'x=1; echo $x'", "1\n"),
    (
        (
            "env | grep -c ^HOME=; FOO=bar env | grep FOO; FOO=x; sh -c 'echo [$FOO]'; export "
            "FOO; sh -c 'echo [$FOO]'"
        ),
        "1\nFOO=bar\n[]\n[x]\n",
    ),
    ("printf '%s-%03d\\n' a 7 b 8", "a-007\nb-008\n"),
    ("echo -n a; echo -e 'b\\tc'", "ab\tc\n"),
    ("seq 3 | xargs echo; seq 1 2 5 | wc -l", "1 2 3\n3\n"),
    ("yes | head -2", "y\ny\n"),
    ("i=0; while :; do i=$((i+1)); [ $i -eq 1000 ] && break; done; echo $i", "1000\n"),
    (
        "command -v ls; command -v nope || echo none; type cd",
        "/bin/ls\nnone\ncd is a shell builtin\n",
    ),
    ("cat /nope || true; echo $?", "0\n"),
    ("getopt=1; while getopts ab: o -a -b x; do echo $o $OPTARG; done", "a\nb x\n"),
]


@pytest.mark.parametrize(
    ("script", "expected"), SCRIPTS, ids=[script[:40] for script, _ in SCRIPTS]
)
def test_output(box, script: str, expected: str) -> None:
    assert box.sh(script).out == expected


@pytest.mark.parametrize(
    ("script", "code", "err"),
    [
        ("exit 7", 7, ""),
        ("exit 300", 44, ""),
        ("false", 1, ""),
        ("nope", 127, "sh: nope: not found\n"),
        ("/bin/nope", 127, "sh: /bin/nope: not found\n"),
        ("set -e; false; echo no", 1, ""),
        ("set -u; echo $nope", 2, "sh: nope: parameter not set\n"),
        ("echo ${x:?must be set}", 2, "sh: x: must be set\n"),
        ("if true", 2, "sh: syntax error: unexpected end of file\n"),
        ("echo )", 2, 'sh: syntax error: unexpected ")"\n'),
        ("cd /nope", 2, "sh: cd: can't cd to /nope: No such file or directory\n"),
        ("echo x > /no/file", 1, "sh: can't create /no/file: nonexistent directory\n"),
        ("cat < /nope", 1, "sh: can't open /nope: no such file\n"),
        ("cat /nope", 1, "cat: can't open '/nope': No such file or directory\n"),
        ("rm /nope", 1, "rm: can't remove '/nope': No such file or directory\n"),
        ("/tmp", 126, "sh: /tmp: Permission denied\n"),
        ("exec sh -c 'exit 9'", 9, ""),
        ("trap 'exit 3' EXIT; false", 3, ""),
        ("set -x; a=1; echo $a 'b c' >/dev/null", 0, "+ a=1\n+ echo 1 'b c'\n"),
        ("echo $((1/0))", 2, "sh: divide by zero\n"),
        ("sleep x", 1, "sleep: invalid number 'x'\n"),
    ],
)
def test_failures(box, script: str, code: int, err: str) -> None:
    result = box.sh(script)
    assert (result.code, result.err) == (code, err)


def test_messages_begin_with_the_name_it_was_called_by(box) -> None:
    assert box.run("/bin/sh", "-c", "nope").err == "/bin/sh: nope: not found\n"
    assert box.run("sh", "-c", "nope", "mine").err == "mine: nope: not found\n"


def test_time_passes(box) -> None:
    result = box.sh("sleep 2; echo a; sleep 1.5")
    assert (result.out, result.code, result.seconds) == ("a\n", 0, 3.5)


def test_endless_loop_costs_time_and_cpu(box) -> None:
    result = box.sh("while true; do :; done", limit=5)
    assert result.code is None
    assert 4 < box.usage.burnt < 5.6


def test_bash_has_its_own_words(box) -> None:
    box.image = box.image.__class__("debian", "linux", userland="gnu")
    assert box.run("bash", "-c", "nope").err == "bash: nope: command not found\n"
    assert (
        box.run(
            "bash", "-c", "for i in {1..3}; do echo $i; done; [[ abc == a* && 1 -lt 2 ]] && echo m"
        ).out
        == "1\n2\n3\nm\n"
    )
    assert box.run(
        "bash",
        "-c",
        "for ((i=0; i<3; i++)); do echo $i; done; x=hello; echo ${x:1:3} ${x/l/L} ${x^^}",
    ).out == ("0\n1\n2\nell heLlo HELLO\n")
    assert (
        box.run("bash", "-c", "ls /nope").err
        == "ls: cannot access '/nope': No such file or directory\n"
    )


def test_script_file_and_arguments(box) -> None:
    box.files.write("/tmp/run.sh", b"#!/bin/sh\necho $0 $1 $#\nexit 4\n", 0o755)
    assert box.run("/tmp/run.sh", "x", "y") == ("/tmp/run.sh x 2\n", "", 4, 0.0)
    assert box.run("sh", "/tmp/run.sh", "z").out == "/tmp/run.sh z 1\n"
    box.files.write("/tmp/plain.sh", b"echo no\n", 0o644)
    assert box.sh("/tmp/plain.sh").code == 126
    with pytest.raises(PermissionError):
        box.run("/tmp/plain.sh")
    with pytest.raises(FileNotFoundError):
        box.run("/nope")


def test_interactive_shell_reads_and_prompts(box) -> None:
    result = box.run("sh", stdin=b"echo a\nif true\nthen echo b; fi\nexit 3\n", tty=True)
    assert (result.out, result.code) == ("a\nb\n", 3)
    assert result.err == "/ # / # > / # "
    assert box.run("sh", stdin=b"").code == 0


def test_here_documents_in_a_script_on_standard_input(box) -> None:
    script = (
        b"cat <<'X' | sed s/o/0/\nfoo $HOME\nX\necho then\n"
        b"while read a; do echo $a; done <<Y\none\n\ntwo\nY\n"
    )
    assert box.run("sh", stdin=script).out == "f0o $HOME\nthen\none\n\ntwo\n"
    assert box.run("sh", stdin=b"cat <<X\nend of input").out == "end of input\n"


def _signalled(
    box, argv: tuple[str, ...], name: str, *, main: bool = True
) -> tuple[int | None, float, str]:
    async def main_() -> tuple[int | None, float, str]:
        if not main:
            box.processes.last = 10
        context = box.start(*argv, main=main)
        await box.clock.run_for(0.5)
        begun = box.clock.monotonic()
        context.signal(name)
        await box.wait(context, 30)
        assert context.program is not None
        context.program.kill()
        return context.code, box.clock.monotonic() - begun, context.output.decode()

    return asyncio.run(main_())


def test_pid_1_ignores_what_it_does_not_handle(box) -> None:
    assert _signalled(box, ("sleep", "3600"), "SIGTERM")[0] is None
    assert _signalled(box, ("sh", "-c", "sleep 3600; echo x"), "SIGTERM", main=False)[0] == 143
    assert _signalled(box, ("sleep", "3600"), "SIGTERM", main=False)[0] == 143


def test_trap_waits_for_the_command_in_the_foreground(box) -> None:
    script = "trap 'echo bye; exit 0' TERM; while true; do sleep 2; done"
    assert _signalled(box, ("sh", "-c", script), "SIGTERM") == (0, 1.5, "bye\n")


def test_trap_interrupts_wait(box) -> None:
    code, seconds, out = _signalled(
        box, ("sh", "-c", "trap 'echo bye; exit 5' TERM; sleep 1000 & wait"), "SIGTERM"
    )
    assert (code, seconds, out) == (5, 0.0, "bye\n")


async def test_idle_programs_hold_no_task(box) -> None:
    others = len(asyncio.all_tasks())
    contexts = [
        box.start("sleep", "10"),
        box.start("sh", "-c", "sleep 10"),
        box.start("tail", "-f", "/dev/null"),
    ]
    assert len(asyncio.all_tasks()) == others
    box.clock.advance(11)
    assert [context.code for context in contexts] == [0, 0, None]


@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_arithmetic_is_c(a: int, b: int) -> None:
    def evaluate(text: str) -> int:
        return arithmetic.evaluate(
            text, {"a": str(a), "b": str(b)}.__getitem__, lambda name, value: None
        )

    assert evaluate("a + b * 2 - (a)") == b * 2
    assert evaluate("a < b") == int(a < b)
    if b:
        assert evaluate("a / b") * b + evaluate("a % b") == a


@given(st.text(alphabet="ab*?[]\\-!", max_size=8))
def test_quoted_patterns_match_themselves_only(text: str) -> None:
    assert patterns.matches_glob(patterns.quote_glob(text), text)
    assert not patterns.matches_glob(patterns.quote_glob(text), text + "a")
