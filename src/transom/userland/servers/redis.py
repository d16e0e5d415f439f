"""A Redis server with the commands that examples and health checks use."""

from __future__ import annotations

import asyncio
import fnmatch
import socket
import time
from collections.abc import Callable

from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.simple import flag


class _Store:
    def __init__(self, context: ProgramContext) -> None:
        self.context = context
        self.values: dict[str, str | list[str] | dict[str, str]] = {}
        self.expires: dict[str, float] = {}

    def get(self, key: str) -> str | list[str] | dict[str, str] | None:
        if self.expires.get(key, float("inf")) <= self.context.clock.time():
            self.values.pop(key, None)
            self.expires.pop(key, None)
        return self.values.get(key)

    def text(self, key: str) -> str | None:
        value = self.get(key)
        return value if isinstance(value, str) else None


def _bulk(value: str | None) -> bytes:
    if value is None:
        return b"$-1\r\n"
    data = value.encode("utf-8", "surrogateescape")
    return b"$%d\r\n%s\r\n" % (len(data), data)


def _array(values: list[str | None]) -> bytes:
    return b"*%d\r\n" % len(values) + b"".join(_bulk(value) for value in values)


def _integer(value: int) -> bytes:
    return b":%d\r\n" % value


_OK = b"+OK\r\n"


def _ping(store: _Store, arguments: list[str]) -> bytes:
    return _bulk(arguments[0]) if arguments else b"+PONG\r\n"


def _set(store: _Store, arguments: list[str]) -> bytes:
    if len(arguments) < 2:
        return b"-ERR wrong number of arguments for 'set' command\r\n"
    store.values[arguments[0]] = arguments[1]
    store.expires.pop(arguments[0], None)
    options = [argument.upper() for argument in arguments[2:]]
    if "EX" in options:
        store.expires[arguments[0]] = store.context.clock.time() + float(
            arguments[2:][options.index("EX") + 1]
        )
    return _OK


def _increment(store: _Store, key: str, step: int) -> bytes:
    try:
        value = int(store.text(key) or 0) + step
    except ValueError:
        return b"-ERR value is not an integer or out of range\r\n"
    store.values[key] = str(value)
    return _integer(value)


def _delete(store: _Store, arguments: list[str]) -> bytes:
    return _integer(sum(store.values.pop(key, None) is not None for key in arguments))


def _flush(store: _Store, arguments: list[str]) -> bytes:
    store.values.clear()
    return _OK


def _list(store: _Store, key: str) -> list[str]:
    value = store.get(key)
    if not isinstance(value, list):
        value = store.values[key] = []
    return value


def _push(store: _Store, arguments: list[str], left: bool) -> bytes:
    values = _list(store, arguments[0])
    for argument in arguments[1:]:
        values.insert(0 if left else len(values), argument)
    return _integer(len(values))


def _pop(store: _Store, arguments: list[str], left: bool) -> bytes:
    values = store.get(arguments[0])
    if not isinstance(values, list) or not values:
        return _bulk(None)
    popped = values.pop(0 if left else -1)
    if not values:
        del store.values[arguments[0]]
    return _bulk(popped)


def _range(store: _Store, arguments: list[str]) -> bytes:
    values = store.get(arguments[0])
    if not isinstance(values, list):
        return _array([])
    first, last = int(arguments[1]), int(arguments[2])
    return _array(list(values[first : len(values) + last + 1 if last < 0 else last + 1]))


def _hash_set(store: _Store, arguments: list[str]) -> bytes:
    value = store.get(arguments[0])
    if not isinstance(value, dict):
        value = store.values[arguments[0]] = {}
    before = len(value)
    value.update(zip(arguments[1::2], arguments[2::2], strict=False))
    return _integer(len(value) - before)


def _hash_get(store: _Store, arguments: list[str]) -> bytes:
    value = store.get(arguments[0])
    return _bulk(value.get(arguments[1]) if isinstance(value, dict) else None)


def _hash_all(store: _Store, arguments: list[str]) -> bytes:
    value = store.get(arguments[0])
    return _array(
        [text for pair in value.items() for text in pair] if isinstance(value, dict) else []
    )


def _info(store: _Store, arguments: list[str]) -> bytes:
    version = store.context.env.get("REDIS_VERSION", "6.0.9")
    return _bulk(
        f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n# "
        "Replication\r\nrole:master\r\n"
        "connected_slaves:0\r\n# "
        f"Keyspace\r\ndb0:keys={len(store.values)},expires={len(store.expires)}\r\n"
    )


def _config(store: _Store, arguments: list[str]) -> bytes:
    if arguments and arguments[0].upper() == "GET":
        known = {
            "maxmemory": "0",
            "maxmemory-policy": "noeviction",
            "save": "3600 1 300 100 60 10000",
            "appendonly": "no",
        }
        known.update(_options(store.context))
        found: list[str | None] = []
        for key, value in known.items():
            if fnmatch.fnmatchcase(key, arguments[1].lower()):
                found += [key, value]
        return _array(found)
    return _OK


def _options(context: ProgramContext) -> dict[str, str]:
    """Options from the configuration file that the command line names."""
    found: dict[str, str] = {}
    path = next((argument for argument in context.argv[1:] if argument.endswith(".conf")), "")
    files = FileView(context, context.cwd)
    if path and files.exists(path):
        for line in files.text(path).splitlines():
            name, _, value = line.strip().partition(" ")
            if name and not name.startswith("#"):
                found[name.lower()] = (
                    _memory(value.strip()) if name.lower() == "maxmemory" else value.strip()
                )
    return found


def _memory(text: str) -> str:
    units = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "k": 1000, "m": 10**6, "g": 10**9}
    for unit, size in units.items():
        if text.lower().endswith(unit) and text[: -len(unit)].isdigit():
            return str(int(text[: -len(unit)]) * size)
    return text


COMMANDS: dict[str, Callable[[_Store, list[str]], bytes]] = {
    "PING": _ping,
    "ECHO": lambda store, arguments: _bulk(arguments[0]),
    "SET": _set,
    "GET": lambda store, arguments: _bulk(store.text(arguments[0])),
    "MGET": lambda store, arguments: _array([store.text(key) for key in arguments]),
    "DEL": _delete,
    "EXISTS": lambda store, arguments: _integer(
        sum(store.get(key) is not None for key in arguments)
    ),
    "INCR": lambda store, arguments: _increment(store, arguments[0], 1),
    "DECR": lambda store, arguments: _increment(store, arguments[0], -1),
    "INCRBY": lambda store, arguments: _increment(store, arguments[0], int(arguments[1])),
    "KEYS": lambda store, arguments: _array(
        [key for key in store.values if fnmatch.fnmatchcase(key, arguments[0])]
    ),
    "DBSIZE": lambda store, arguments: _integer(len(store.values)),
    "FLUSHALL": _flush,
    "FLUSHDB": _flush,
    "LPUSH": lambda store, arguments: _push(store, arguments, True),
    "RPUSH": lambda store, arguments: _push(store, arguments, False),
    "LPOP": lambda store, arguments: _pop(store, arguments, True),
    "RPOP": lambda store, arguments: _pop(store, arguments, False),
    "LLEN": lambda store, arguments: _integer(len(_list(store, arguments[0]))),
    "LRANGE": _range,
    "HSET": _hash_set,
    "HGET": _hash_get,
    "HGETALL": _hash_all,
    "INFO": _info,
    "CONFIG": _config,
    "COMMAND": lambda store, arguments: _array([]),
    "CLIENT": lambda store, arguments: _OK,
    "SELECT": lambda store, arguments: _OK,
    "AUTH": lambda store, arguments: _OK,
    "TTL": lambda store, arguments: _integer(
        int(store.expires[arguments[0]] - store.context.clock.time())
        if arguments[0] in store.expires
        else -1
    ),
}


def redis(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    store = _Store(context)
    port = int(flag(context, "port", context.image.options.get("port", "6379")))

    def log(mark: str, message: str) -> None:
        now = context.clock.time()
        moment = time.strftime("%d %b %Y %H:%M:%S", time.gmtime(now))
        server.out(f"{context.pid}:M {moment}.{int(now % 1 * 1000):03d} {mark} {message}")

    async def serve(connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        try:
            while chunk := await loop.sock_recv(connection, 65536):
                buffer += chunk
                while (request := _take(buffer)) is not None:
                    if not request:
                        continue
                    await loop.sock_sendall(connection, _answer(store, request))
                    if request[0].upper() == "QUIT":
                        return
                    if request[0].upper() == "SHUTDOWN":
                        server.exit(0)
        except ConnectionError:
            return
        finally:
            connection.close()

    def signalled(name: str) -> bool:
        if name not in ("SIGTERM", "SIGINT"):
            return False
        server.out(
            f"{context.pid}:signal-handler ({int(context.clock.time())}) Received {name} "
            "scheduling shutdown..."
        )
        log("#", "User requested shutdown...")
        log("#", "Redis is now ready to exit, bye bye...")
        server.exit(0)
        return True

    server.on_signal = signalled
    version = context.env.get("REDIS_VERSION", "6.0.9")
    server.out(f"{context.pid}:C oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo")
    server.out(
        f"{context.pid}:C Redis version={version}, bits=64, commit=00000000, modified=0, "
        f"pid={context.pid}, just started"
    )
    try:
        server.listen(port, serve)
    except OSError:
        log(
            "#",
            f"Could not create server TCP listening socket *:{port}: bind: Address already in use",
        )
        server.exit(1)
        return server
    log("*", f"Running mode=standalone, port={port}.")
    log("#", "Server initialized")
    log("*", "Ready to accept connections")
    return server


def _answer(store: _Store, request: list[str]) -> bytes:
    command = COMMANDS.get(request[0].upper())
    if request[0].upper() == "QUIT":
        return _OK
    if command is None:
        shown = "".join(f"`{argument}`, " for argument in request[1:])
        return (
            f"-ERR unknown command `{request[0]}`, with args beginning with: {shown}\r\n".encode()
        )
    try:
        return command(store, request[1:])
    except IndexError:
        return f"-ERR wrong number of arguments for '{request[0].lower()}' command\r\n".encode()
    except ValueError:
        return b"-ERR value is not an integer or out of range\r\n"


def _take(buffer: bytearray) -> list[str] | None:
    """Takes a whole request from the buffer; None if it is incomplete."""
    end = buffer.find(b"\r\n")
    line_end = end if end >= 0 else buffer.find(b"\n")
    if line_end < 0:
        return None
    if not buffer.startswith(b"*"):
        line = bytes(buffer[:line_end]).decode("utf-8", "surrogateescape")
        del buffer[: line_end + (2 if end >= 0 else 1)]
        return line.split()
    count = int(buffer[1:end])
    position = end + 2
    out: list[str] = []
    for _ in range(count):
        end = buffer.find(b"\r\n", position)
        if end < 0:
            return None
        size = int(buffer[position + 1 : end])
        start = end + 2
        if len(buffer) < start + size + 2:
            return None
        out.append(bytes(buffer[start : start + size]).decode("utf-8", "surrogateescape"))
        position = start + size + 2
    del buffer[:position]
    return out
