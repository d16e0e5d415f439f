"""Server programs: their responses, logs and exit."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.userland.conftest import Box, Context

from transom.kubelet.prober import grpchealth
from transom.network.api import PortMapping
from transom.userland.servers import gomux

Check = Callable[[Box, Context], Awaitable[None]]


@asynccontextmanager
async def serve(box: Box, argv: tuple[str, ...]) -> AsyncIterator[tuple[Box, Context]]:
    others = len(asyncio.all_tasks())
    context = box.start(*argv)
    await box.clock.run_for(0.1)
    yield (box, context)
    assert context.program is not None
    context.program.kill()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == others


def agnhost(*arguments: str) -> tuple[str, ...]:
    return ("/agnhost", *arguments)


@pytest.fixture
def tester() -> Box:
    return Box(
        name="k8s.gcr.io/e2e-test-images/agnhost:2.25",
        program="agnhost",
        entrypoint=("/agnhost",),
        cmd=("pause",),
    )


async def test_netexec(tester) -> None:
    async with serve(tester, agnhost("netexec", "--http-port=8080")) as (box, context):
        assert (await box.http(8080, "/hostname"))[2] == "box"
        assert (await box.http(8080, "/hostName"))[2] == "box"
        assert (await box.http(8080, "/echo?msg=hi&code=404"))[::2] == (404, "hi")
        assert (await box.http(8080, "/healthz"))[0] == 200
        assert (await box.http(8080, "/"))[2].startswith("NOW: 2020-01-02 03:04:05.")
        assert (await box.http(8080, "/redirect?location=/echo&code=307"))[1]["location"] == "/echo"
        shell = await box.http(8080, "/shell?cmd=echo%20a%3B%20exit%203")
        assert json.loads(shell[2]) == {"output": "a\n", "error": "exit status 3"}
        dialled = await box.http(8080, "/dial?host=127.0.0.1&port=8080&request=hostname&tries=2")
        assert json.loads(dialled[2]) == {"responses": ["box", "box"]}
        refused = json.loads(
            (await box.http(8080, "/dial?host=127.0.0.1&port=1&request=hostname"))[2]
        )
        assert "connection refused" in refused["errors"][0]
        assert (await box.http(8080, "/dial?host=a&port=1"))[::2] == (
            400,
            "request parameter not specified. <nil>\n",
        )
        talk = box.answering[8081]
        assert await talk(b"HostName\n", "10.0.0.9") == b"box"
        assert await talk(b"echo hi", "10.0.0.9") == b"hi"
        assert (await talk(b"clientip", "10.0.0.9")).startswith(b"10.0.0.9:")
        assert await talk(b"nonsense", "10.0.0.9") is None
        silent = json.loads(
            (await box.http(8080, "/dial?host=10.0.0.7&port=8081&protocol=udp&request=hostname"))[2]
        )
        assert silent["errors"][0].endswith("->10.0.0.7:8081: i/o timeout'")
        upload = (
            b'--X\r\nContent-Disposition: form-data; name="file"; '
            b'filename="f"\r\n\r\ndata\r\n--X--\r\n'
        )
        reader, writer = await asyncio.open_connection(sock=box.dial(8080))
        writer.write(
            b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; "
            b"boundary=X\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(upload), upload)
        )
        answer = (await reader.read()).decode()
        assert answer.startswith("HTTP/1.1 201 Created")
        path = json.loads(answer.partition("\r\n\r\n")[2])["output"]
        assert box.files.read(path) == b"data"
        assert context.errors.startswith(b"2020/01/02 03:04:05 Started HTTP server on port 8080\n")
        await box.http(8080, "/exit?code=5&wait=2s")
        assert context.code is None
        box.clock.advance(2)
        assert context.code == 5


async def test_netexec_without_udp(tester) -> None:
    async with serve(tester, agnhost("netexec", "--udp-port", "-1")) as (box, context):
        assert context.code is None and 8081 not in box.answering
        assert (await box.http(8080, "/echo?msg=hi"))[2] == "hi"
        assert [(await box.http(8080, path))[0] for path in ("/healthz", "/readyz")] == [412, 412]
        assert (await box.http(8080, "/serverport"))[2] == "8080"
        assert json.loads((await box.http(8080, "/header"))[2])["Connection"] == ["close"]
        assert (await box.http(8080, "/header?key=connection"))[2] == "close"


async def test_netexec_delays_its_end(tester) -> None:
    command = agnhost("netexec", "--delay-shutdown=5")
    async with serve(tester, command) as (box, context):
        assert (await box.http(8080, "/readyz"))[::2] == (200, "ok")
        context.program.signal("SIGTERM")
        assert (await box.http(8080, "/readyz"))[::2] == (503, "shutting down")
        assert (await box.http(8080, "/healthz"))[0] == 200
        box.clock.advance(5)
        assert context.code == 0


async def test_connect_over_udp_waits_for_the_reply(tester) -> None:
    async with serve(tester, agnhost("netexec")) as (box, _):
        ask = ("/agnhost", "connect", "--protocol=udp", "127.0.0.1:8081")
        assert (await box.run_to_end(*ask, "--timeout=3s"))[1:3] == ("", 0)
        silent = await box.run_to_end(*ask, "--timeout=3s", "--udp-data=nonsense")
        assert (silent.err.partition(":")[0], silent.code) == ("TIMEOUT", 1)


async def test_what_is_no_http_is_a_bad_request_at_once(tester) -> None:
    """`echo hostName | nc HOST PORT` is how the end-to-end tests find out that a port is open."""
    async with serve(tester, agnhost("netexec")) as (box, _):
        reader, writer = await asyncio.open_connection(sock=box.dial(8080))
        writer.write(b"hostName\n")
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()


async def test_servers_in_go_tidy_paths_and_name_what_they_serve(tester) -> None:
    """Kubernetes' hooks ask for //path, and its proxy rewrites what is HTML."""
    tester.env["SERVE_PORT_5000"] = '<a href="/rewriteme">test</a>'

    async with serve(tester, agnhost("netexec")) as (box, _):
        status, headers, _ = await box.http(8080, "//echo?msg=hi")
        assert (status, headers["location"]) == (301, "/echo?msg=hi")
        assert (await box.http(8080, "/a/../echo?msg=hi"))[0] == 301
        assert (await box.http(8080, "/echo?msg=hi"))[1][
            "content-type"
        ] == "text/plain; charset=utf-8"
    async with serve(tester, agnhost("porter")) as (box, _context):
        assert (await box.http(5000))[1]["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<A", "text/plain; charset=utf-8"),
        (b" \n<!doctype html>", "text/html; charset=utf-8"),
        (b"<?xml ?>", "text/xml; charset=utf-8"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"a\x00", "application/octet-stream"),
        (b"\xc3\xa9\x1b", "text/plain; charset=utf-8"),
    ],
)
def test_content_types_that_go_finds(body: bytes, kind: str) -> None:
    assert gomux.content_type_of(body) == kind


async def test_nettest_counts_writers(tester) -> None:
    async with serve(tester, agnhost("nettest")) as (box, context):
        assert (await box.http(8080, "/write", "POST", b'{"Source": "prestop"}'))[
            2
        ] == '{"Hostname":"box"}\n'
        await box.http(8080, "/write", "POST", b"{}")
        state = json.loads((await box.http(8080, "/read"))[2])
        assert (state["Received"], state["Sent"]) == ({"prestop": 1}, None)
        assert state["Errors"] == ["box: Got request with no source"]
        assert (await box.http(8080, "/status"))[2] == "running"
        await box.http(8080, "/quit")
        assert context.code == 0


async def test_audit_proxy_prints_events(tester) -> None:
    async with serve(tester, agnhost("audit-proxy")) as (box, context):
        assert (await box.http(8080, "/", "POST", b'{"items": [{"level": "Metadata"}]}'))[0] == 200
        assert (
            context.output
            == b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata"}\n'
        )
        assert (await box.http(8080, "/", "POST", b"x"))[0] == 500


async def test_agnhost_small_ones(tester) -> None:
    tester.env |= {"SERVE_PORT_5000": "five", "SERVE_PORT_5001": "six"}
    tester.files.write("/tmp/index.html", b"<p>hi</p>")

    async with serve(tester, agnhost("porter")) as (box, context):
        assert (await box.http(5000))[2] == "five"
        assert (await box.http(5001))[2] == "six"
    async with serve(tester, agnhost("test-webserver")) as (box, context):
        status, headers, body = await box.http(80, "/tmp/")
        assert (status, body, headers["cache-control"]) == (200, "<p>hi</p>", "private")
        assert (await box.http(80, "/nope"))[0] == 404
        assert '<a href="passwd">passwd</a>' in (await box.http(80, "/etc/"))[2]
    async with serve(tester, agnhost("serve-hostname")) as (box, context):
        assert (await box.http(9376))[2] == "box"
        context.signal("SIGTERM")
        assert context.code is None
        box.clock.advance(60)
        assert context.code == 0
    async with serve(tester, agnhost("pause")) as (box, context):
        assert context.output == b"Paused\n"
        context.signal("SIGTERM")
        assert context.code == 2
    assert (
        await tester.run_to_end("/agnhost", "entrypoint-tester", "a", "b")
    ).out == "[/agnhost entrypoint-tester a b]\n"
    assert (await tester.run_to_end("/agnhost", "connect", "127.0.0.1:1", "--timeout=3s"))[1:3] == (
        "REFUSED\n",
        1,
    )
    assert (
        await tester.run_to_end("/agnhost", "connect", "nowhere:80")
    ).err == "DNS: lookup nowhere: no such host\n"
    assert (await tester.run_to_end("/agnhost", "connect", "--protocol=udp", "127.0.0.1:1"))[
        1:3
    ] == (
        "REFUSED: read udp 127.0.0.1:1: read: connection refused\n",
        1,
    )
    assert (
        await tester.run_to_end("/agnhost", "dns-suffix")
    ).out == "default.svc.cluster.local,svc.cluster.local,cluster.local\n"
    logged = await tester.run_to_end(
        "/agnhost", "logs-generator", "--log-lines-total", "5", "--run-duration", "10s"
    )
    assert (len(logged.err.splitlines()), logged.code, round(logged.seconds, 6)) == (5, 0, 10)


def test_mounttest(tester) -> None:
    tester.files.write("/tmp/f", b"content", 0o640)
    result = tester.run(
        "/agnhost",
        "mounttest",
        "--new_file_0644=/tmp/n",
        "--file_mode=/tmp/f",
        "--file_perm=/tmp/f",
        "--file_owner=/tmp/f",
        "--file_content=/tmp/f",
    )
    assert result.code == 0
    assert result.out == (
        'content of file "/tmp/n": mount-tester new file\n\nmode of file "/tmp/f": '
        "-rw-r-----\nperms of "
        'file "/tmp/f": -rw-r-----\n'
        'owner UID of "/tmp/f": 0\nowner GID of "/tmp/f": 0\ncontent of file "/tmp/f": content\n'
    )
    tester.files.mount_tmpfs("/tmp", 1 << 20)
    kinds = (
        tester.run("/agnhost", "mounttest", "--fs_type=/tmp").out
        + tester.run("/agnhost", "mounttest", "--fs_type=/").out
    )
    assert kinds == 'mount type of "/tmp": tmpfs\nmount type of "/": 61267\n'
    missing = tester.run("/agnhost", "mounttest", "--file_content=/nope")
    assert missing[::2][:2] == (
        'error reading file content for "/nope": open /nope: no such file or directory\n',
        1,
    )


def test_mounttest_reads_access_lists_on_windows() -> None:
    box = Box(
        "windows",
        name="k8s.gcr.io/e2e-test-images/agnhost:2.21",
        program="agnhost",
        entrypoint=("/agnhost",),
    )
    box.files.mkdir("C:\\etc")
    box.files.write("C:\\etc\\f", b"content", 0o444)  # the read-only attribute
    result = box.run(
        "/agnhost", "mounttest", "--file_mode=/etc/f", "--file_perm=/etc/f", "--file_owner=/etc/f"
    )
    assert (
        result.out
        == 'mode of Windows file "/etc/f": -rwxrwxr-x\nperms of Windows file "/etc/f": -rwxrwxr-x\n'
    )


async def test_liveness_fails_after_ten_seconds() -> None:
    box = Box(
        name="k8s.gcr.io/liveness", program="liveness", entrypoint=("/server",), userland="none"
    )

    async with serve(box, ("/server",)) as (box, context):
        assert (await box.http(8080, "/healthz"))[::2] == (200, "ok")
        box.clock.advance(11)
        status, _, body = await box.http(8080, "/healthz")
        assert (status, body[:9]) == (500, "error: 11")
        context.signal("SIGTERM")
        assert context.code == 2


NGINX = {
    "name": "nginx",
    "program": "nginx",
    "userland": "gnu",
    "entrypoint": ("/docker-entrypoint.sh",),
    "cmd": ("nginx", "-g", "daemon off;"),
}


async def test_nginx() -> None:
    box = Box(**NGINX)
    box.env["NGINX_VERSION"] = "1.19.6"

    async with serve(box, ("/docker-entrypoint.sh", "nginx", "-g", "daemon off;")) as (
        box,
        context,
    ):
        status, headers, body = await box.http(80)
        assert (status, headers["server"], headers["content-length"]) == (
            200,
            "nginx/1.19.6",
            "612",
        )
        assert "<title>Welcome to nginx!</title>" in body
        assert (await box.http(80, "/nope"))[0] == 404
        box.files.mkdir("/usr/share/nginx/html")
        assert (await box.http(80))[0] == 403  # an empty volume lies over the page
        assert (await box.http(80, "/index.html"))[0] == 404
        box.files.write("/usr/share/nginx/html/index.html", b"mine")
        assert (await box.http(80))[2] == "mine"
        assert (
            b'127.0.0.1 - - [02/Jan/2020:03:04:05 +0000] "GET / HTTP/1.1" 200 612 "-" "-" "-"\n'
            in context.output
        )
        assert context.output.startswith(
            b"/docker-entrypoint.sh: /docker-entrypoint.d/ is not empty"
        )
        context.signal("SIGQUIT")
        assert context.code == 0
    # Other commands through the same entrypoint, and the configuration's port.
    assert (await box.run_to_end("/docker-entrypoint.sh", "sh", "-c", "echo hi")).out == "hi\n"
    box.files.mkdir("/etc/nginx/conf.d")
    box.files.write(
        "/etc/nginx/conf.d/a.conf",
        b"server {\n  listen 8080;\n  location /ok { return 200 'fine'; }\n}\n",
    )

    async with serve(box, ("nginx", "-g", "daemon off;")) as (box, context):
        assert list(box.listening) == [8080]
        assert (await box.http(8080, "/ok"))[2] == "fine"
    assert (await box.run_to_end("sh", "-c", "nginx -t")).err.endswith("test is successful\n")


async def test_script_may_become_a_server() -> None:
    box = Box(**NGINX)

    async with serve(box, ("sh", "-c", "echo starting; exec nginx -g 'daemon off;'")) as (
        box,
        context,
    ):
        assert (await box.http(80))[0] == 200
        context.signal("SIGTERM")
        await box.clock.run_for(0.1)
        assert context.code == 0


async def test_redis() -> None:
    box = Box(
        name="redis",
        program="redis",
        userland="gnu",
        entrypoint=("docker-entrypoint.sh",),
        cmd=("redis-server",),
    )

    async with serve(box, ("docker-entrypoint.sh", "redis-server")) as (box, context):
        reader, writer = await asyncio.open_connection(sock=box.dial(6379))
        writer.write(
            b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n42\r\nINCR a\r\nGET a\r\nGET "
            b"b\r\nNOPE\r\n"
        )
        expected = b"+PONG\r\n+OK\r\n:43\r\n$2\r\n43\r\n$-1\r\n-ERR unknown command `NOPE`"
        assert await reader.readexactly(len(expected)) == expected
        writer.close()
        ping = box.start("redis-cli", "ping", main=False)
        await box.wait(ping, 1)
        assert ping.output == b"PONG\n"
        context.signal("SIGTERM")
        assert context.code == 0
        assert b"Redis is now ready to exit, bye bye..." in context.output


async def test_unknown_image_serves_its_declared_ports() -> None:
    box = Box(userland="any")
    box.ports = [PortMapping(8080, 0), PortMapping(9000, 0)]

    async with serve(box, ("/app/server", "--flag")) as (box, context):
        assert sorted(box.listening) == [8080, 9000]
        assert (await box.http(8080, "/anything"))[0] == 200
        reader, writer = await asyncio.open_connection(sock=box.dial(9000))
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        context.signal("SIGTERM")
        assert context.code == 0


async def test_pause(windows) -> None:
    async with serve(
        Box(name="pause", program="pause", entrypoint=("/pause",), userland="none"), ("/pause",)
    ) as (_, context):
        context.signal("SIGTERM")
        assert (context.code, bytes(context.errors)) == (
            0,
            b"Shutting down, got signal: Terminated\n",
        )
    async with serve(
        Box(
            "windows",
            name="pause",
            program="pause",
            entrypoint=("C:\\pause.exe",),
            userland="nanoserver",
        ),
        ("C:\\pause.exe",),
    ) as (_box, context):
        context.signal("CTRL_C_EVENT")
        assert (context.code, bytes(context.errors)) == (0, b"Shutting down, got signal\n")


async def test_iis(windows) -> None:
    box = Box("windows", program="iis", entrypoint=("C:\\ServiceMonitor.exe", "w3svc"))

    async with serve(box, ("C:\\ServiceMonitor.exe", "w3svc")) as (box, context):
        status, headers, body = await box.http(80)
        assert (status, headers["server"]) == (200, "Microsoft-IIS/10.0")
        assert "<title>IIS Windows Server</title>" in body
        context.signal("CTRL_SHUTDOWN_EVENT")
        assert context.code == 0


async def test_testlimit_takes_memory_step_by_step() -> None:
    limit = "/bin/testlimit.exe -accepteula -d 100Mb -e 5 20000s -c 3"
    box = Box(
        "windows",
        name="resource-consumer",
        program="resource-consumer",
        options={"programs": "testlimit"},
    )
    async with serve(box, tuple(limit.split())) as (box, context):
        held = []
        for _ in range(4):
            held.append(box.usage.held >> 20)
            box.clock.advance(5)
        assert held == [100, 200, 300, 300]
        assert context.code is None


async def test_stress_takes_the_requested_memory() -> None:
    box = Box(name="polinux/stress", program="stress", cmd=("stress",))

    async with serve(
        box,
        (
            "stress",
            "--cpu",
            "2",
            "--vm",
            "1",
            "--vm-bytes",
            "250M",
            "--vm-hang",
            "1",
            "--timeout",
            "60s",
        ),
    ) as (box, context):
        assert (box.usage.cores, box.usage.held) == (2, 250 << 20)
        assert context.output == b"stress: info: [1] dispatching hogs: 2 cpu, 0 io, 1 vm, 0 hdd\n"
        box.clock.advance(60)
        assert context.code == 0
    # The kernel kills a process that asks for too much; on Windows the allocation fails.
    assert (await box.run_to_end("stress", "--vm", "2", "--vm-bytes", "1G")).err == ""
    windows = Box("windows", name="stress", program="stress", cmd=("stress.exe",))
    refused = await windows.run_to_end("stress.exe", "--vm", "2", "--vm-bytes", "1G")
    assert (refused.code, "malloc failed: Cannot allocate memory" in refused.err) == (1, True)


async def test_resource_consumer() -> None:
    box = Box(
        name="resource-consumer",
        program="resource-consumer",
        entrypoint=("/consumer",),
        userland="gnu",
    )

    async with serve(box, ("/consumer",)) as (box, _context):
        answer = await box.http(8080, "/ConsumeCPU?millicores=300&durationSec=10", "POST")
        assert answer[::2] == (200, "ConsumeCPU\n300 millicores\n10 durationSec\n")
        assert box.usage.cores == 0.3
        await box.http(8080, "/ConsumeMem?megabytes=64&durationSec=10", "POST")
        assert box.usage.held == 64 << 20
        box.clock.advance(10)
        assert (box.usage.cores, box.usage.held) == (0, 0)


def test_pi_of_the_job_example() -> None:
    box = Box(name="perl", program="perl", cmd=("perl", "-de0"), userland="gnu")
    result = box.run("perl", "-Mbignum=bpi", "-wle", "print bpi(2000)")
    assert result.code == 0
    assert result.out.startswith("3.14159265358979323846264338327950288419716939937510")
    assert len(result.out.strip()) == 2001


async def test_python_serves_files() -> None:
    box = Box(name="python", program="python", cmd=("python3",), userland="gnu")
    box.files.write("/tmp/a.txt", b"abc")
    box.cwd = "/tmp"

    async with serve(box, ("python3", "-m", "http.server", "8000")) as (box, _context):
        assert (await box.http(8000, "/a.txt"))[2] == "abc"
    assert (await box.run_to_end("python3", "-c", "print('hi')")).out == "hi\n"


def test_sixth_listener_is_refused(box) -> None:
    box.listening[80] = lambda connection: None
    nginx = Box(**NGINX)
    nginx.listening = box.listening
    result = nginx.run("nginx")
    assert result.code == 1
    assert "bind() to 0.0.0.0:80 failed (98: Address already in use)" in result.err


async def test_grpc_health(tester) -> None:
    """With the kubelet's own client."""

    async with serve(tester, agnhost("grpc-health-checking", "--service=web")) as (box, _context):

        async def dial(address: str, port: int) -> socket.socket:
            return box.dial(port)

        async def probe(service: str) -> str:
            try:
                return await grpchealth.check_grpc_health(
                    dial, box.clock, "10.244.1.2", 5000, service, "kube-probe/1.24", 1.0
                )
            except grpchealth.Unhealthy as unhealthy:
                return str(unhealthy)

        assert await probe("web") == grpchealth.HEALTHY
        assert "unknown service" in await probe("other")
        await box.http(8080, "/make-not-serving")
        assert "NOT_SERVING" in await probe("web")


async def test_https(tester) -> None:
    """An unknown image answers HTTPS probes; porter shows the configured certificate."""
    unknown = Box(userland="any")
    unknown.ports = [PortMapping(8443, 0)]
    tester.env["SERVE_TLS_PORT_8443"] = "secret"

    async def get(box: Box) -> bytes:
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            sock=box.dial(8443), ssl=trusting, server_hostname="box"
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async with serve(unknown, ("/app",)) as (box, _):
        assert (await get(box)).startswith(b"HTTP/1.1 200 OK\r\n")
    async with serve(tester, agnhost("porter")) as (box, _context):
        assert (await get(box)).endswith(b"\r\n\r\nsecret")


async def test_callers_are_known_by_their_name(tester) -> None:
    async with serve(tester, agnhost("netexec")) as (box, _context):
        near = box.dial(8080)
        near.bind(b"\0test/10.244.3.4:40000")
        await asyncio.get_running_loop().sock_sendall(near, b"GET /clientip HTTP/1.0\r\n\r\n")
        answer = await asyncio.get_running_loop().sock_recv(near, 4096)
        assert answer.endswith(b"\r\n\r\n10.244.3.4:40000")
        near.close()
