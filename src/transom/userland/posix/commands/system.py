"""Commands that show or change the system: date, hostname, id, ps, df, mount, free and others."""

from __future__ import annotations

import base64 as base64_module
import hashlib
import posixpath
import re
import time

from transom.machines.files import MountEntry
from transom.userland.files import error_text
from transom.userland.limits import MAX_PIPE
from transom.userland.posix.commands import mounting
from transom.userland.posix.commands.basic import run_child
from transom.userland.posix.commands.dates import parse_date
from transom.userland.posix.commands.look import human, owner_name, user_number
from transom.userland.posix.commands.options import option_number, parse_options, parse_size
from transom.userland.posix.commands.text import cannot_open, open_input, read_inputs
from transom.userland.process import Command, Process
from transom.userland.procfs import mount_device
from transom.userland.regex import compile_pattern


def linux_date(process: Process) -> int:
    options = parse_options(
        process, "dDrs", long_names={"utc": "u", "date": "d", "set": "s", "iso-8601": "I"}
    )
    moment = process.context.clock.time()
    setting = options.value("s")
    given = setting or options.value("d")
    if given:
        parsed = parse_date(given, moment)
        if parsed is None:
            return process.fail(f"invalid date '{given}'")
        moment = parsed
    if setting:
        node = process.context.node
        if node is None:
            process.fail("can't set date: Operation not permitted")
        else:
            node.set_time(moment)
    for operand in options.operands:
        if not operand.startswith("+") and not operand.isdigit():
            return process.fail(f"invalid date '{operand}'")
    shape = next((operand[1:] for operand in options.operands if operand.startswith("+")), "")
    if not shape:
        shape = "%a %b %e %H:%M:%S UTC %Y"
        if "I" in options:
            shape = {"seconds": "%Y-%m-%dT%H:%M:%S+00:00", "s": "%Y-%m-%dT%H:%M:%S+00:00"}.get(
                options.value("I"), "%Y-%m-%d"
            )
        elif "R" in options:
            shape = "%a, %d %b %Y %H:%M:%S +0000"
    nanoseconds = f"{int(moment % 1 * 1e9):09d}"
    shape = re.sub(r"%(\d?)N", lambda match: nanoseconds[: int(match[1] or 9)], shape)
    shape = (
        shape.replace("%s", str(int(moment)))
        .replace("%z", "+0000")
        .replace("%Z", "UTC")
        .replace("%-", "%")
    )
    process.write(time.strftime(shape, time.gmtime(moment)) + "\n")
    return 0


def linux_hostname(process: Process) -> int:
    context = process.context
    options = parse_options(process)
    if options.operands and context.credentials.uid == 0 and not context.credentials.privileged:
        return process.fail(
            "sethostname: Operation not permitted"
            if not process.gnu
            else "you must be root to change the host name"
        )
    if "i" in options or "I" in options:
        process.write(" ".join(context.network.ips) + (" " if "I" in options else "") + "\n")
        return 0
    name = context.network.hostname
    process.write((name.split(".")[0] if "s" in options else name) + "\n")
    return 0


def id_command(process: Process) -> int:
    context = process.context
    options = parse_options(
        process, long_names={"user": "u", "group": "g", "groups": "G", "name": "n"}
    )
    uid, gid = context.credentials.uid, context.credentials.gid
    named = options.operands[0] if options.operands else ""
    if named:
        found = user_number(process, named)
        if found is None:
            return process.fail(
                f"'{named}': no such user" if process.gnu else f"unknown user {named}"
            )
        uid, gid = found, primary_group(process, found)
    user = owner_name(process, uid)
    group = owner_name(process, gid, "/etc/group")
    groups = list(dict.fromkeys((gid, *(() if named else context.credentials.groups))))
    if "u" in options:
        process.write((user if "n" in options else str(uid)) + "\n")
    elif "g" in options:
        process.write((group if "n" in options else str(gid)) + "\n")
    elif "G" in options:
        process.write(
            " ".join(
                owner_name(process, g, "/etc/group") if "n" in options else str(g) for g in groups
            )
            + "\n"
        )
    else:

        def shown(kind: str, number: int, name: str) -> str:
            return f"{kind}={number}({name})" if name != str(number) else f"{kind}={number}"

        listed = ",".join(
            f"{g}({owner_name(process, g, '/etc/group')})"
            if owner_name(process, g, "/etc/group") != str(g)
            else str(g)
            for g in groups
        )
        text = f"{shown('uid', uid, user)} {shown('gid', gid, group)}"
        process.write(f"{text} groups={listed}\n" if listed else f"{text}\n")
    return 0


def primary_group(process: Process, uid: int) -> int:
    for line in process.files.text("/etc/passwd").splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[2] == str(uid):
            return int(fields[3])
    return uid


def linux_whoami(process: Process) -> int:
    name = owner_name(process, process.context.credentials.uid)
    if name.isdigit():
        message = "cannot find name for user ID " if process.gnu else "unknown uid "
        return process.fail(f"{message}{name}")
    process.write(name + "\n")
    return 0


def uname(process: Process) -> int:
    context = process.context
    options = parse_options(
        process, long_names={"all": "a", "kernel-release": "r", "machine": "m", "kernel-name": "s"}
    )
    parts = {
        "s": "Linux",
        "n": context.network.hostname,
        "r": context.platform.build,
        "v": "#1 SMP Mon Jan 4 10:51:13 UTC 2021",
        "m": "x86_64",
        "o": "GNU/Linux",
    }
    if process.windows:
        release, _, rest = context.platform.build.rpartition(".")[0].rpartition(".")
        parts |= {"s": "Windows_NT", "r": release, "v": rest, "o": "MS/Windows"}
    letters = (
        "snrvmo"
        if "a" in options
        else "".join(letter for letter in "snrvmo" if letter in options) or "s"
    )
    shown = [parts[letter] for letter in letters]
    process.write(" ".join(shown) + "\n")
    return 0


def nproc(process: Process) -> int:
    process.write(f"{len(process.context.platform.cpuset)}\n")
    return 0


def arch(process: Process) -> int:
    process.write("x86_64\n")
    return 0


def ps(process: Process) -> int:
    arguments = "".join(process.argv[1:]).replace("-", "")
    entries = sorted(process.context.processes.list())
    now = process.context.clock.time()
    if not process.gnu:
        process.write("PID   USER     TIME  COMMAND\n")
        for entry in entries:
            process.write(
                f"{entry.pid:5d} {entry.user[:8]:<8} {'0:00':>5} {' '.join(entry.argv)}\n"
            )
        return 0
    if "u" in arguments:
        process.write("USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n")
        for entry in entries:
            started = time.strftime("%H:%M", time.gmtime(entry.started))
            kib = entry.memory >> 10
            process.write(
                f"{entry.user[:8]:<8} {entry.pid:5d}  0.0  0.0 {kib * 2:6d} {kib:5d} ?        Ss   "
                f"{started}   0:00 {' '.join(entry.argv)}\n"
            )
        return 0
    if "f" in arguments:
        process.write("UID        PID  PPID  C STIME TTY          TIME CMD\n")
        for entry in entries:
            started = time.strftime("%H:%M", time.gmtime(entry.started))
            process.write(
                f"{entry.user[:8]:<8} {entry.pid:5d} {entry.parent:5d}  0 {started} ?        "
                f"00:00:00 {' '.join(entry.argv)}\n"
            )
        return 0
    process.write("  PID TTY          TIME CMD\n")
    for entry in entries:
        if "e" in arguments or "A" in arguments or now >= entry.started:
            process.write(f"{entry.pid:5d} ?        00:00:00 {posixpath.basename(entry.argv[0])}\n")
    return 0


def _load_text(process: Process) -> str:
    return process.files.text("/proc/loadavg").strip()


async def top(process: Process) -> int:
    options = parse_options(process, "nd")
    rounds = int(
        options.value("n", "1" if "b" in options or not process.context.terminal.tty else "0")
    )
    shown = 0
    platform, clock = process.context.platform, process.context.clock
    before, began = platform.machine_resources, platform.machine_resources.boot_time
    if shown == 0:  # the first round shows the average since the start of the machine
        before = before._replace(cpu_seconds=0.0)
    while True:
        found = platform.machine_resources
        busy = found.cpu_seconds - before.cpu_seconds
        passed = max(1e-9, clock.time() - began)
        share = min(100, round(busy * 100 / (passed * found.cpus)))
        before, began = found, clock.time()
        cached = max(0, found.committed - found.working_set)
        process.write(
            f"Mem: {found.committed >> 10}K used, {(found.free_memory - cached) >> 10}K free, "
            f"0K shrd, 0K buff, {cached >> 10}K cached\n"
        )
        process.write(
            f"CPU: {share:>3}% usr   0% sys   0% nic {100 - share:>3}% idle   0% io   0% irq   0% "
            f"sirq\nLoad average: {_load_text(process)}\n"
        )
        process.write("  PID  PPID USER     STAT   VSZ %VSZ CPU %CPU COMMAND\n")
        for entry in sorted(process.context.processes.list()):
            part = entry.memory * 100 // max(1, found.total_memory)
            process.write(
                f"{entry.pid:5d} {entry.parent:5d} {entry.user[:8]:<8} S    "
                f"{entry.memory >> 10:6d} {part:>3}% "
                f"  0   0% {' '.join(entry.argv)}\n"
            )
        shown += 1
        if rounds and shown >= rounds:
            return 0
        await process.sleep(float(options.value("d", "5")))


def pidof(process: Process) -> int:
    names = [argument for argument in process.argv[1:] if not argument.startswith("-")]
    found = [
        str(entry.pid)
        for entry in process.context.processes.list()
        if any(name in (posixpath.basename(entry.argv[0]), entry.argv[0]) for name in names)
        or (
            process.name == "pgrep"
            and any(compile_pattern(name).search(" ".join(entry.argv)) for name in names)
            and entry.pid != process.pid
        )
    ]
    if found:
        process.write(("\n" if process.name == "pgrep" else " ").join(found) + "\n")
    return int(not found)


def _disk_rows(process: Process, paths: list[str]) -> list[MountEntry] | None:
    """The mounts of these paths, or all; None if a path does not exist."""
    entries = process.files.mount_table()
    if not paths:
        return list({id(entry.space): entry for entry in reversed(entries)}.values())[::-1]
    out = []
    for path in paths:
        if not process.files.exists(path):
            process.fail(f"{path}: can't find mount point")
            return None
        full = process.files.absolute(path)
        inside = [e for e in entries if f"{full}/".startswith(e.path.rstrip("/") + "/")]
        out.append(inside[-1])
    return out


def df(process: Process) -> int:
    options = parse_options(process, "t")
    rows = _disk_rows(process, options.operands)
    if rows is None:
        return 1
    if "h" in options:
        process.write("Filesystem                Size      Used Available Use% Mounted on\n")
    else:
        process.write("Filesystem           1K-blocks      Used Available Use% Mounted on\n")
    root = process.files.mount_table()[0]
    for entry in rows:
        device = mount_device(process.context, entry if entry.path != "/" else root, root)[0]
        total, used = entry.space.capacity, min(entry.space.used, entry.space.capacity)
        cells = [human(v) if "h" in options else str(v >> 10) for v in (total, used, total - used)]
        process.write(
            f"{device:<20} {cells[0]:>9} {cells[1]:>9} {cells[2]:>9} "
            f"{-(-used * 100 // max(1, total)):>3}% {entry.path}\n"
        )
    return 0


def _list_mounts(process: Process, kinds: str) -> int:
    for line in process.files.text("/proc/mounts").splitlines():
        device, place, kind, flags, *_ = line.split()
        if not kinds or kind in kinds.split(","):
            process.write(f"{device} on {place} type {kind} ({flags})\n")
    return 0


def linux_mount(process: Process) -> int:
    match process.argv:
        case [_]:
            return _list_mounts(process, "")
        case [_, "-t", kinds]:
            return _list_mounts(process, kinds)
    if not process.context.credentials.privileged:
        return process.fail("permission denied (are you root?)", 1)
    on_node = process.context.node
    return 0 if on_node is None else mounting.mount_on_node(process, on_node)


def linux_umount(process: Process) -> int:
    on_node = process.context.node
    return linux_mount(process) if on_node is None else mounting.unmount_on_node(process, on_node)


def mountpoint(process: Process) -> int:
    options = parse_options(process)
    path = options.operands[0] if options.operands else "."
    on_node = process.context.node
    mounted = on_node is not None and mounting.is_mount(on_node, process.files.absolute(path))
    if "q" not in options:
        process.write(f"{path} is {'' if mounted else 'not '}a mountpoint\n")
    return 0 if mounted else 32


def free(process: Process) -> int:
    options = parse_options(process, "s")
    unit = (
        1 << 20
        if "m" in options
        else 1 << 30
        if "g" in options
        else 1
        if "b" in options
        else 1 << 10
    )
    found = process.context.platform.machine_resources
    cached = max(0, found.committed - found.working_set)
    available = found.free_memory
    sizes = (found.total_memory, found.working_set, available - cached, 0, cached, available)
    row = [size // unit for size in sizes]
    header = ("total", "used", "free", "shared", "buff/cache", "available")
    process.write(" " * 6 + "".join(f"{name:>12}" for name in header) + "\n")
    process.write("Mem:  " + "".join(f"{value:>12}" for value in row) + "\n")
    swap = (found.swap // unit, 0, found.swap // unit)
    process.write("Swap: " + "".join(f"{value:>12}" for value in swap) + "\n")
    return 0


def uptime(process: Process) -> int:
    now, found = process.context.clock.time(), process.context.platform.machine_resources
    minutes = int(now - found.boot_time) // 60
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    long = f"{days} day{'s' if days != 1 else ''}, " if days else ""
    time_up = f"{hours:2d}:{minutes:02d}" if hours else f"{minutes} min"
    load = ", ".join(f"{value:.2f}" for value in found.load)
    process.write(
        f" {time.strftime('%H:%M:%S', time.gmtime(now))} up {long}{time_up},  load average: {load}\n"
    )
    return 0


async def _hexdigest(process: Process, name: str, path: str) -> str:
    digest = hashlib.new(name, usedforsecurity=False)
    source = open_input(process, path)
    while chunk := await source.read():
        digest.update(chunk)
        await process.breathe()
    return digest.hexdigest()


async def _digest(process: Process, name: str) -> int:
    options = parse_options(process)
    code = 0
    if "c" in options:
        return await _verify(process, name, options.operands)
    for path in options.operands or ["-"]:
        try:
            digest = await _hexdigest(process, name, path)
        except OSError as error:
            code = cannot_open(process, path, error)
            continue
        process.write(f"{digest}  {path}\n")
    return code


async def _verify(process: Process, name: str, paths: list[str]) -> int:
    data, code = await read_inputs(process, paths)
    for line in data.decode().splitlines():
        wanted, _, path = line.partition("  ")
        try:
            good = await _hexdigest(process, name, path) == wanted
        except OSError:
            good = False
        process.write(f"{path}: {'OK' if good else 'FAILED'}\n")
        code |= not good
    return code


async def md5sum(process: Process) -> int:
    return await _digest(process, "md5")


async def sha1sum(process: Process) -> int:
    return await _digest(process, "sha1")


async def sha256sum(process: Process) -> int:
    return await _digest(process, "sha256")


async def sha512sum(process: Process) -> int:
    return await _digest(process, "sha512")


async def base64(process: Process) -> int:
    options = parse_options(process, "w", long_names={"decode": "d", "wrap": "w"})
    data, code = await read_inputs(process, options.operands)
    if "d" in options:
        try:
            process.stdout.write(base64_module.b64decode(data, validate=False))
        except ValueError:
            return process.fail("invalid input")
        return code
    text = base64_module.b64encode(data).decode()
    width = option_number(process, options.value("w", "76"), "invalid wrap size: '{}'")
    if width:
        text = "".join(text[start : start + width] + "\n" for start in range(0, len(text), width))
    process.write(text)
    return code


async def dd(process: Process) -> int:
    values: dict[str, str] = {}
    for argument in process.argv[1:]:
        name, _, value = argument.partition("=")
        values[name] = value
    try:
        block = parse_size(values.get("bs", "512"))
        count = int(values["count"]) if "count" in values else None
    except ValueError:
        return process.fail("invalid number")
    if block > MAX_PIPE:
        return process.fail(
            "out of memory"
            if not process.gnu
            else f"memory exhausted by input buffer of size {block} bytes"
        )
    path = values.get("if", "-")
    try:
        source = open_input(process, path)
        sink = (
            process.stdout
            if "of" not in values
            else process.open_output(values["of"], "notrunc" in values.get("conv", ""))
        )
    except OSError as error:
        return process.fail(
            f"can't open '{path}': {error_text(error)}"
            if not process.gnu
            else f"failed to open '{path}': {error_text(error)}"
        )
    started = process.context.clock.monotonic()
    for _ in range(int(values.get("skip", "0"))):
        await source.read(block)
    full = partial = total = 0
    while count is None or full + partial < count:
        chunk = await source.read(block)
        if not chunk:
            break
        while len(chunk) < block and (more := await source.read(block - len(chunk))):
            chunk += more
        full, partial = (full + 1, partial) if len(chunk) == block else (full, partial + 1)
        total += len(chunk)
        try:
            sink.write(chunk)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            process.complain(f"dd: error writing '{values.get('of', '')}': {error_text(error)}")
            return 1
        await process.breathe()
    process.complain(f"{full}+{partial} records in\n{full}+{partial} records out")
    if values.get("status") != "none":
        seconds = max(process.context.clock.monotonic() - started, 0.000001)
        process.complain(
            f"{total} bytes ({human(total)}B) copied, {seconds:.6f} seconds, "
            f"{human(total / seconds)}B/s"
        )
    return 0


_FORWARDING = "net.ipv4.ip_forward"


def sysctl(process: Process) -> int:
    code = 0
    for word in process.argv[1:]:
        if word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        name = name.strip().replace("/", ".")
        if equals and name == _FORWARDING:
            code |= _set_forwarding(process, value.strip())
            continue
        path = "/proc/sys/" + name.replace(".", "/")
        try:
            process.write(f"{name} = {process.files.text(path).strip()}\n")
        except OSError:
            code = process.fail(
                f"error: '{path}' is an unknown key"
                if not process.gnu
                else f"cannot stat {path}: No such file or directory"
            )
    return code


def _set_forwarding(process: Process, value: str) -> int:
    view = process.context.network.stack_view()
    if view is None or not process.context.credentials.privileged:
        return process.fail(f"error setting key '{_FORWARDING}': Read-only file system")
    view.stack.set_forwarding(value == "1")
    process.write(f"{_FORWARDING} = {value}\n")
    return 0


async def linux_watch(process: Process) -> int:
    options = parse_options(process, "n", stop_at_operand=True)
    while True:
        await run_child(process, ["sh", "-c", " ".join(options.operands)])
        await process.sleep(float(options.value("n", "2")))


async def su(process: Process) -> int:
    arguments = process.argv[1:]
    if "-c" in arguments[:-1]:
        return await run_child(process, ["sh", "-c", arguments[arguments.index("-c") + 1]])
    return await run_child(process, ["sh"])


def tty(process: Process) -> int:
    process.write("/dev/pts/0\n" if process.context.terminal.tty else "not a tty\n")
    return int(not process.context.terminal.tty)


def stty(process: Process) -> int:
    if "size" in process.argv:
        columns, rows = process.context.terminal.tty_size
        process.write(f"{rows} {columns}\n")
    return 0


def succeed(process: Process) -> int:
    return 0


COMMANDS: dict[str, Command] = {
    "arch": arch,
    "base64": base64,
    "clear": succeed,
    "date": linux_date,
    "dd": dd,
    "df": df,
    "dmesg": succeed,
    "free": free,
    "hostname": linux_hostname,
    "id": id_command,
    "md5sum": md5sum,
    "mount": linux_mount,
    "mountpoint": mountpoint,
    "nproc": nproc,
    "pgrep": pidof,
    "pidof": pidof,
    "ps": ps,
    "reset": succeed,
    "sha1sum": sha1sum,
    "sha256sum": sha256sum,
    "sha512sum": sha512sum,
    "stty": stty,
    "su": su,
    "sysctl": sysctl,
    "top": top,
    "tty": tty,
    "umount": linux_umount,
    "uname": uname,
    "uptime": uptime,
    "watch": linux_watch,
    "whoami": linux_whoami,
}
