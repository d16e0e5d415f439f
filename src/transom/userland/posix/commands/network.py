"""Network commands: nc, ping and others."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from transom.userland import http_client as netclient
from transom.userland.files import error_text
from transom.userland.posix.commands.options import option_number, parse_options
from transom.userland.process import Command, Process


def why(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "Connection refused"
    if isinstance(error, TimeoutError):
        return "Connection timed out"
    return error_text(error)


async def nc(process: Process) -> int:
    options = parse_options(process, "wpqis")
    operands = options.operands
    if "l" in options:
        return await _nc_listen(process, options.value("p") or (operands[-1] if operands else ""))
    if len(operands) < 2 or not operands[1].split("-")[0].isdigit():
        process.complain(
            "nc: missing port number"
            if operands
            else "BusyBox v1.31.1 () multi-call binary.\n\nUsage: nc [OPTIONS] HOST PORT"
        )
        return 1
    host = operands[0]
    port = option_number(process, operands[1].split("-")[0], "port number invalid: {}")
    context = process.context
    limit = float(options.value("w", "0")) or None
    if "u" in options:
        if "z" not in options:
            return await _nc_datagrams(process, host, port, limit)
        code = await _nc_check_port(process, host, port, limit)
        if not code and "v" in options:
            process.complain(f"{host} ({host}:{port}) open")
        return code
    try:
        connection = await netclient.with_timeout(
            context, limit, context.network.connect(host, port)
        )
    except socket.gaierror:
        return process.fail(f"bad address '{host}'")
    except TimeoutError:
        if "v" in options or "z" not in options:
            process.complain(
                f"nc: connect to {host} port {port} (tcp) timed out: Operation in progress"
                if process.gnu
                else f"nc: {host} ({host}:{port}): Connection timed out"
            )
        return 1
    except OSError as error:
        process.complain(f"nc: {host} ({host}:{port}): {why(error)}")
        return 1
    if "v" in options:
        process.complain(f"{host} ({host}:{port}) open")
    if "z" in options:
        connection.close()
        return 0
    await _relay(process, connection)
    return 0


async def _nc_check_port(process: Process, host: str, port: int, limit: float | None) -> int:
    """Over UDP, a port counts as open unless it is reported closed."""
    context = process.context
    try:
        address = (await context.network.resolve(host))[0]
        with contextlib.suppress(TimeoutError):
            await netclient.with_timeout(
                context, limit or 1.0, context.network.ask(address, port, b"X")
            )
    except socket.gaierror:
        return process.fail(f"bad address '{host}'")
    except ConnectionRefusedError:
        return 1
    return 0


async def _nc_datagrams(process: Process, host: str, port: int, limit: float | None) -> int:
    """Sends each chunk of input as a datagram. The end of the other side is not visible: it waits
    for `limit`, or forever.
    """
    context = process.context
    try:
        address = (await context.network.resolve(host))[0]
    except socket.gaierror:
        return process.fail(f"bad address '{host}'")
    while chunk := await process.stdin.read():
        try:
            process.stdout.write(
                await netclient.with_timeout(
                    context, limit, context.network.ask(address, port, chunk)
                )
            )
        except ConnectionRefusedError:
            return 1
        except TimeoutError:
            continue
    await (process.sleep(limit) if limit else asyncio.Event().wait())
    return 0


async def _relay(process: Process, connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)

    async def send() -> None:
        try:
            while chunk := await process.stdin.read():
                await loop.sock_sendall(connection, chunk)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            return

    sending = process.program.spawn(send())
    try:
        while chunk := await loop.sock_recv(connection, 65536):
            process.stdout.write(chunk)
    except ConnectionError:
        return
    finally:
        sending.cancel()
        connection.close()


async def _nc_listen(process: Process, port: str) -> int:
    if not port.isdigit():
        return process.fail("missing port number")
    arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    def accept(connection: socket.socket) -> None:
        if arrived.done():
            connection.close()
        else:
            arrived.set_result(connection)

    try:
        close = process.context.network.listen(int(port), accept)
    except OSError as error:
        return process.fail(f"bind: {error_text(error)}")
    try:
        connection = await arrived
    finally:
        close()
    await _relay(process, connection)
    return 0


async def linux_ping(process: Process) -> int:
    options = parse_options(process, "cwWiIst")
    if not options.operands:
        process.complain("BusyBox v1.31.1 () multi-call binary.\n\nUsage: ping [OPTIONS] HOST")
        return 1
    host = options.operands[0]
    context = process.context
    try:
        address = (await context.network.resolve(host))[0]
    except socket.gaierror:
        return process.fail(
            f"bad address '{host}'" if not process.gnu else f"{host}: Name or service not known",
            2 if process.gnu else 1,
        )
    size = option_number(process, options.value("s", "56"), "invalid argument: '{}'")
    process.write(
        f"PING {host} ({address}): {size} data bytes\n"
        if not process.gnu
        else f"PING {host} ({address}) {size}({size + 28}) bytes of data.\n"
    )
    count = option_number(process, options.value("c", "0"), "invalid argument: '{}'")
    deadline = float(options.value("w", "0"))
    interval = float(options.value("i", "1"))
    started = context.clock.monotonic()
    sent = received = 0
    try:
        while (not count or sent < count) and (
            not deadline or context.clock.monotonic() - started < deadline
        ):
            if await context.network.echo(address, float(options.value("W", "1"))):
                process.write(
                    f"{size + 8} bytes from {address}: seq={sent} ttl=64 time=0.072 ms\n"
                    if not process.gnu
                    else (
                        f"{size + 8} bytes from {address}: icmp_seq={sent + 1} ttl=64 time=0.072 "
                        "ms\n"
                    )
                )
                received += 1
            sent += 1
            if not count or sent < count:
                await process.sleep(interval)
    finally:
        lost = (sent - received) * 100 // sent if sent else 0
        process.write(
            f"\n--- {host} ping statistics ---\n{sent} packets transmitted, {received} "
            f"packets received, {lost}% packet loss\n"
        )
        if received:
            process.write("round-trip min/avg/max = 0.072/0.072/0.072 ms\n")
    return int(received == 0)


async def redis_cli(process: Process) -> int:
    options = parse_options(process, "hpan", stop_at_operand=True)
    host, port = options.value("h", "127.0.0.1"), int(options.value("p", "6379"))
    try:
        connection = await process.context.network.connect(host, port)
    except OSError as error:
        process.complain(f"Could not connect to Redis at {host}:{port}: {why(error)}")
        return 1
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        commands = (
            [options.operands]
            if options.operands
            else [line.split() for line in (await process.read_all()).decode().splitlines()]
        )
        for command in commands:
            parts = b"".join(
                b"$%d\r\n%s\r\n" % (len(argument.encode()), argument.encode())
                for argument in command
            )
            writer.write(b"*%d\r\n%s" % (len(command), parts))
            process.write(await _redis_answer(reader) + "\n")
    finally:
        writer.close()
    return 0


async def _redis_answer(reader: asyncio.StreamReader, depth: str = "") -> str:
    line = (await reader.readline()).decode().rstrip("\r\n")
    kind, rest = line[:1], line[1:]
    if kind == "$":
        if rest == "-1":
            return ""
        data = await reader.readexactly(int(rest) + 2)
        return data[:-2].decode("utf-8", "surrogateescape")
    if kind == "*":
        return "\n".join([await _redis_answer(reader) for _ in range(int(rest))])
    return rest


COMMANDS: dict[str, Command] = {
    "nc": nc,
    "ncat": nc,
    "netcat": nc,
    "ping": linux_ping,
    "redis-cli": redis_cli,
}
