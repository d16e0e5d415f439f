"""Commands of Linux images: a table of command lines and their output."""

from __future__ import annotations

import asyncio
import io
import tarfile

import pytest
from tests.userland.conftest import Box, Context

LINES = [
    ("umask 27; umask; umask u=rwx,g=rx,o=; umask; umask g+w; umask", "0027\n0027\n0007\n"),
    ("expr 3 % 2; expr 6 / 4 + 1; expr -7 / 2; expr 2 + 3 \\* 4", "1\n2\n-3\n14\n"),
    ("expr \\( 2 + 3 \\) \\* 4; expr 2 \\< 10; expr b \\> a", "20\n1\n1\n"),
    ("expr 0 \\| x; expr a \\& 0; expr 4 % 2; echo $?", "x\n0\n0\n1\n"),
    ("expr abc : 'a\\(.*\\)'; expr abc : ab; expr length abcd", "bc\n2\n4\n"),
    ("expr substr abcd 2 2; expr index abcd dc", "bc\n3\n"),
    (
        "expr a + 1 2>&1; echo $?; expr 1 + 2>&1; echo $?; expr 1 / 0 2>&1",
        "expr: non-integer argument\n2\nexpr: syntax error\n2\nexpr: division by zero\n",
    ),
    ("printf 'b\\na\\nb\\n' | sort | uniq -c", "      1 a\n      2 b\n"),
    ("printf '10\\n9\\n' | sort -n; printf 'a:2\\nb:1\\n' | sort -t: -k2 -n", "9\n10\nb:1\na:2\n"),
    ("printf 'a b c\\n' | awk '{print $1, $3, NF}'", "a c 3\n"),
    ("printf '1 2\\n3 4\\n' | awk '{s+=$2} END {print s}'", "6\n"),
    ("echo a:b | awk -F: '{printf \"%s-%s\\n\", $2, $1}'", "b-a\n"),
    (
        "printf 'x 1\\ny 2\\n' | awk '$2 > 1 {print $1}'; echo abc | awk '/b/ {print toupper($0)}'",
        "y\nABC\n",
    ),
    (
        (
            "awk 'BEGIN { for (i = 0; i < 3; i++) a[i] = i * i; print a[2]; if (1 < 2) print "
            '"yes"; else print "no" }\''
        ),
        "4\nyes\n",
    ),
    (
        "echo hello | sed 's/l/L/; s/o$/0/'; echo aaa | sed 's/a/b/g'",
        "heLlo0\nbbb\n".replace("heLlo0", "heLl0"),
    ),
    ("printf '1\\n2\\n3\\n' | sed -n '2p'; printf '1\\n2\\n3\\n' | sed '2d;$d'", "2\n1\n"),
    (
        "echo 'a=1' | sed -E 's/(\\w)=([0-9])/\\2=\\1/'; printf 'x\\ny\\n' | sed '/x/,/y/s/^/> /'",
        "1=a\n> x\n> y\n",
    ),
    ("echo a > /tmp/s; sed -i 's/a/b/' /tmp/s; cat /tmp/s", "b\n"),
    (
        "printf 'foo\\nbar\\nbaz\\n' | grep ba; printf 'foo\\nbar\\n' | grep -v foo; echo "
        "abc | grep -o "
        "'b.'; echo x | grep -c y",
        "bar\nbaz\nbar\nbc\n0\n",
    ),
    (
        (
            "printf 'a\\nb\\n' | grep -n b; printf 'A\\n' | grep -i a; printf 'a1\\n' | grep -E "
            "'^[a-z][0-9]+$' && echo ok"
        ),
        "2:b\nA\na1\nok\n",
    ),
    ("echo a,b,c | cut -d, -f2,3; echo abcdef | cut -c2-4", "b,c\nbcd\n"),
    ("echo Hello | tr a-z A-Z; echo aabb | tr -d a; echo 'a  b' | tr -s ' '", "HELLO\nbb\na b\n"),
    (
        "printf '1\\n2\\n3\\n' | head -n 2; printf '1\\n2\\n3\\n' | tail -n 1; seq 5 | tail -n +4",
        "1\n2\n3\n4\n5\n",
    ),
    ("printf 'a b\\nc\\n' | wc -l; printf 'a b\\nc\\n' | wc", "2\n        2         3         6\n"),
    ("echo 'x y' | xargs -n1 echo; echo 5 | xargs -I{} echo n={}", "x\ny\nn=5\n"),
    ("echo hi | base64; echo aGkK | base64 -d", "aGkK\nhi\n"),
    (
        "echo -n abc | sha256sum; echo -n abc | md5sum",
        (
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  "
            "-\n900150983cd24fb0d6963f7d28e17f72  -\n"
        ),
    ),
    (
        "mkdir -p /tmp/t/u; touch /tmp/t/u/f; find /tmp/t -type f; find /tmp/t -name u -type d",
        "/tmp/t/u/f\n/tmp/t/u\n",
    ),
    (
        "echo a > /tmp/a; cp /tmp/a /tmp/b; mv /tmp/b /tmp/c; cat /tmp/c; rm /tmp/c; ls /tmp",
        "a\na\n",
    ),
    (
        "ln -s /etc/passwd /tmp/l; readlink /tmp/l; ls -l /tmp/l | cut -c1-10; head -c4 /tmp/l",
        "/etc/passwd\nlrwxrwxrwx\nroot",
    ),
    (
        (
            "touch -d '2017-07-08 09:10:11' /tmp/t; touch -a -t 201801020304.05 /tmp/t; "
            "stat -c '%Y %X' /tmp/t; cp -p /tmp/t /tmp/p; touch -r /tmp/t -m /tmp/q; "
            "stat -c %Y /tmp/p /tmp/q"
        ),
        "1499505011 1514862245\n1499505011\n1499505011\n",
    ),
    (
        (
            "touch /tmp/m; chmod 750 /tmp/m; stat -c '%a %U %s' /tmp/m; chmod u-x,o+r /tmp/m; "
            "stat -c %a /tmp/m"
        ),
        "750 root 0\n654\n",
    ),
    ("basename /a/b.txt .txt; dirname /a/b.txt", "b\n/a\n"),
    ("id -u; id; whoami; hostname", "0\nuid=0(root) gid=0(root) groups=0(root)\nroot\nbox\n"),
    (
        "date +%Y-%m-%dT%H:%M:%S; date -u; date +%s",
        "2020-01-02T03:04:05\nThu Jan  2 03:04:05 UTC 2020\n1577934245\n",
    ),
    ("uname; uname -r; nproc", "Linux\n5.4.0-60-generic\n2\n"),
    ("dd if=/dev/zero of=/tmp/z bs=1k count=4 2>/dev/null; wc -c < /tmp/z", "4096\n"),
    ("head -c 3 /dev/zero | wc -c; cat /dev/null; echo x > /dev/null", "3\n"),
    (
        "nslookup kubernetes.default",
        (
            "Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\nName:\tkubernetes.default.svc.cluster.local\nAddress: "
            "10.96.0.1\n\n"
        ),
    ),
    (
        "ps | head -1; cat /proc/1/cmdline | tr '\\0' ' '",
        "PID   USER     TIME  COMMAND\nsh -c ps | head -1; cat /proc/1/cmdline | tr '\\0' ' ' ",
    ),
    ("timeout 2 sleep 10; echo $?", "143\n"),
    ("echo data | gzip | gunzip; mktemp -d | grep -c ^/tmp/tmp", "data\n1\n"),
    ("printf '%s\\n' one two | paste -s -d, ; echo abc | rev", "one,two\ncba\n"),
    ("test -t 0 || echo no tty; tty", "no tty\nnot a tty\n"),
    ("cd /tmp; touch a; cp -v a b; mv -v a c", "'a' -> 'b'\n'a' -> 'c'\n"),
    ("printf 'a\\377' | hexdump -C", f"00000000  61 ff {' ' * 44}|a.|\n00000002\n"),
    (
        "head -c 40 /dev/zero | hexdump",
        f"0000000{' 0000' * 8}\n*\n0000020{' 0000' * 4}{' ' * 20}\n0000028\n",
    ),
    ("echo hi | od -An -tx1; echo hi | od -c", " 68 69 0a\n0000000   h   i  \\n\n0000003\n"),
    ("printf abc | xxd; printf abc | xxd -p", f"00000000: 6162 63{' ' * 34}abc\n616263\n"),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line[:40] for line, _ in LINES])
def test_output(box, line: str, expected: str) -> None:
    assert box.sh(line).out == expected


@pytest.mark.parametrize(
    ("argv", "code", "err"),
    [
        (("ls", "/nope"), 1, "ls: /nope: No such file or directory\n"),
        (("mkdir", "/tmp"), 1, "mkdir: can't create directory '/tmp': File exists\n"),
        (("cp", "/nope", "/tmp/x"), 1, "cp: can't stat '/nope': No such file or directory\n"),
        (("rmdir", "/etc"), 1, "rmdir: '/etc': Directory not empty\n"),
        (("wget", "-q", "-O-", "http://nowhere/"), 1, "wget: bad address 'nowhere'\n"),
        (
            ("wget", "-q", "-O-", "http://127.0.0.1/"),
            1,
            "wget: can't connect to remote host (127.0.0.1): Connection refused\n",
        ),
        (
            ("nc", "-w", "1", "127.0.0.1", "9"),
            1,
            "nc: 127.0.0.1 (127.0.0.1:9): Connection refused\n",
        ),
        (("ping", "-c", "1", "nowhere"), 1, "ping: bad address 'nowhere'\n"),
        (("kill", "4711"), 1, "sh: can't kill pid 4711: No such process\n"),
        (
            ("ip", "link", "add", "dummy0", "type", "dummy"),
            2,
            "ip: RTNETLINK answers: Operation not permitted\n",
        ),
        (("false",), 1, ""),
        (("env", "nope"), 127, "env: can't execute 'nope': No such file or directory\n"),
    ],
)
def test_failures(box, argv: tuple[str, ...], code: int, err: str) -> None:
    result = box.run(*argv)
    assert (result.code, result.err) == (code, err)


@pytest.mark.parametrize(
    ("line", "err"),
    [
        ("chmod 8 /tmp", "chmod: invalid mode '8'"),
        ("chmod 99999 /tmp", "chmod: invalid mode '99999'"),
        ("chmod 77777 /tmp", "chmod: invalid mode '77777'"),
        ("mkdir -m 9 /tmp/new", "mkdir: invalid mode '9'"),
        ("umask 9", "umask: Illegal number: 9"),
        ("umask a=rwx,x", "umask: Illegal mode: a=rwx,x"),
        ("echo a | fold -w x", "fold: invalid number of columns: 'x'"),
        ("echo a | xargs -n x", 'xargs: invalid number "x" for -n option'),
        ("echo a | base64 -w x", "base64: invalid wrap size: 'x'"),
        ("echo a | grep -A x a", "grep: x: invalid context length argument"),
        ("echo a | grep -m x a", "grep: invalid max count"),
        ("ping -c x localhost", "ping: invalid argument: 'x'"),
        ("date foo", "date: invalid date 'foo'"),
    ],
)
def test_a_wrong_number_is_an_error_and_no_crash(box, line: str, err: str) -> None:
    result = box.sh(line)
    assert err in result.err
    assert result.code in (1, 2)


def test_nc_with_datagrams(box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(context: Context, server: str, port: int, payload: bytes) -> bytes:
        if port != 8081:
            raise ConnectionRefusedError
        return payload.upper()

    monkeypatch.setattr(Context, "ask", answer)
    result = box.sh("echo hi | nc -w 1 -u 10.0.0.1 8081")
    assert (result.out, result.code, result.seconds) == (
        "HI\n",
        0,
        1.0,
    )  # nothing says that there is no more
    assert box.sh("echo hi | nc -w 1 -u 10.0.0.1 9").code == 1
    assert (
        box.run("nc", "-vuz", "-w", "1", "10.0.0.1", "8081").err
        == "10.0.0.1 (10.0.0.1:8081) open\n"
    )


def test_gnu_has_other_words() -> None:
    box = Box(userland="gnu")
    assert box.run("cat", "/nope").err == "cat: /nope: No such file or directory\n"
    assert box.run("rm", "/nope").err == "rm: cannot remove '/nope': No such file or directory\n"
    with pytest.raises(FileNotFoundError):
        box.run("wget", "http://x/")


async def test_curl(box) -> None:
    box.image = Box(userland="any").image

    server = box.start("agnhost", "netexec")
    await box.clock.run_for(0.1)

    async def curl(*arguments: str) -> tuple[int | None, str, str]:
        context = box.start("curl", *arguments, main=False)
        await box.wait(context, 20)
        return context.code, context.output.decode(), context.errors.decode()

    assert await curl("-s", "http://127.0.0.1:8080/hostname") == (0, "box", "")
    assert await curl(
        "-s", "-o", "/dev/null", "-w", "%{http_code}\\n", "http://127.0.0.1:8080/echo?code=503"
    ) == (
        0,
        "503\n",
        "",
    )
    assert await curl("-sf", "http://127.0.0.1:8080/echo?code=404") == (22, "", "")
    assert await curl("-s", "-w", "%{http_code}", "http://127.0.0.1:1/") == (7, "000", "")
    assert await curl("http://127.0.0.1:1/") == (
        7,
        "",
        "curl: (7) Failed to connect to 127.0.0.1 port 1: Connection refused\n",
    )
    assert await curl("http://nowhere/") == (
        6,
        "",
        "curl: (6) Could not resolve host: nowhere\n",
    )
    assert await curl("-sL", "http://127.0.0.1:8080/redirect?location=/echo%3Fmsg%3Dthere") == (
        0,
        "there",
        "",
    )
    assert server.program is not None
    server.program.kill()


def test_tar_is_what_kubectl_cp_needs(box) -> None:
    box.files.mkdir("/data/sub")
    box.files.write("/data/sub/f", b"content", 0o640)
    context = None

    async def main() -> None:
        nonlocal context
        context = box.start("tar", "cf", "-", "/data", main=False)
        await box.wait(context, 1)

    asyncio.run(main())
    assert context is not None
    with tarfile.open(fileobj=io.BytesIO(bytes(context.output))) as archive:
        assert archive.getnames() == ["data", "data/sub", "data/sub/f"]
        assert archive.getmember("data/sub/f").mode == 0o640
    result = box.run("tar", "xmf", "-", "-C", "/tmp", stdin=bytes(context.output))
    assert (result.code, result.err) == (0, "")
    assert box.files.read("/tmp/data/sub/f") == b"content"
    missing = box.run("tar", "cf", "-", "/nope")
    assert missing.code == 1
    assert "No such file or directory" in missing.err


def test_images_without_tools_have_none() -> None:
    box = Box(userland="none")
    for name in ("sh", "ls", "/bin/sh"):
        with pytest.raises(FileNotFoundError):
            box.run(name)


def test_ping(box) -> None:
    result = box.run("ping", "-c", "3", "127.0.0.1")
    assert (result.seconds, result.code) == (2, 0)
    assert "3 packets transmitted, 3 packets received, 0% packet loss" in result.out


async def test_tail_follow(box) -> None:
    box.files.write("/tmp/log", b"a\n")
    context = box.start("tail", "-f", "/tmp/log")
    await box.clock.run_for(1)
    box.files.append("/tmp/log", b"b\n")
    await box.clock.run_for(2)
    assert context.output == b"a\nb\n"
    assert context.program is not None
    context.program.kill()


async def test_exec_can_signal_the_main_process(box) -> None:
    first = box.start("sh", "-c", "trap 'exit 9' TERM; while true; do sleep 1; done")
    await box.clock.run_for(0.2)
    second = box.start("kill", "1", main=False)
    await box.wait(second, 1)
    assert second.code == 0
    await box.wait(first, 3)
    assert first.code == 9
