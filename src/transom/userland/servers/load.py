"""Programs that use resources: stress, stress-ng, Kubernetes' resource-consumer."""

from __future__ import annotations

from transom.kit.prometheus import Family, Sample, render_metrics
from transom.userland.api import Program, ProgramContext
from transom.userland.posix.commands.options import parse_seconds, parse_size
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)

_LEAST_PAUSE = 0.1  # seconds between allocations


def stress(context: ProgramContext) -> Program:
    """Also vish/stress, which has its own options (`-cpus`, `-mem-total`)."""
    server = ServerProgram(context)
    given = _options(context.argv[1:])
    if not given:
        server.out(
            "`stress' imposes certain types of compute stress on your system\n\nUsage: "
            "stress [OPTION [ARG]] ..."
        )
        server.exit(0)
        return server
    ng = context.argv[0].endswith("stress-ng")
    if "cpus" in given or "mem-total" in given:
        return _vish(server, given)
    workers_cpu = int(given.get("cpu", given.get("c", "0")))
    workers_vm = int(given.get("vm", given.get("m", "0")))
    workers_io = int(given.get("io", given.get("i", "0")))
    workers_hdd = int(given.get("hdd", given.get("d", "0")))
    try:
        each = parse_size(given.get("vm-bytes", "256M"))
        limit = parse_seconds(given.get("timeout", given.get("t", "0")))
    except ValueError:
        server.err(
            f"stress: FAIL: [{context.pid}] (244) not a number: "
            f"{given.get('vm-bytes') or given.get('timeout')}"
        )
        server.exit(1)
        return server
    load = float(given.get("cpu-load", given.get("l", "100"))) / 100
    dispatched = f"{workers_cpu} cpu, {workers_io} io, {workers_vm} vm, {workers_hdd} hdd"
    if ng:
        server.out(
            f"stress-ng: info:  [{context.pid}] dispatching hogs: "
            f"{dispatched.replace(', 0 io', '').replace(', 0 hdd', '')}"
        )
    else:
        server.out(f"stress: info: [{context.pid}] dispatching hogs: {dispatched}")
    hang = "vm-hang" in given or "vm-keep" in given
    context.usage.cpu(workers_cpu * load + (0 if hang else workers_vm))
    server.on_signal = server.as_unhandled
    if workers_vm and not context.usage.memory(workers_vm * each):
        if context.os == "linux":
            return server  # the kernel has killed it
        server.err(
            f"stress: FAIL: [{context.pid}] (494) hogvm malloc failed: Cannot allocate memory"
        )
        server.err(f"stress: FAIL: [{context.pid}] (451) failed run completed in 0s")
        server.exit(1)
        return server
    if limit:
        server.later(limit, _complete, server, limit)
    return server


def _complete(server: ServerProgram, limit: float) -> None:
    server.out(f"stress: info: [{server.context.pid}] successful run completed in {limit:g}s")
    server.exit(0)


def _vish(server: ServerProgram, given: dict[str, str]) -> Program:
    """Allocates memory step by step."""
    context = server.context
    server.on_signal = server.as_go
    total = _quantity(given.get("mem-total", "0"))
    step = _quantity(given.get("mem-alloc-size", "4Ki")) or 4096
    pause = _milliseconds(given.get("mem-alloc-sleep", "1ms"))
    server.go_log(
        f'Allocating "{given.get("mem-total", "0")}" memory, in '
        f'"{given.get("mem-alloc-size", "4Ki")}" chunks, with a '
        f"{given.get('mem-alloc-sleep', '1ms')} sleep between allocations"
    )
    cpus = int(given.get("cpus", "0"))
    for _ in range(cpus):
        server.go_log("Spawning a thread to consume CPU")
    context.usage.cpu(cpus)

    def allocate(held: int) -> None:
        if server.ended:
            return
        # Chunks within a tenth of a second are combined.
        held = min(total, held + step * max(1, int(0.1 / max(pause, 1e-4))))
        if not context.usage.memory(held):
            if context.os == "linux":
                return
            server.err("fatal error: runtime: out of memory")
            server.exit(2)
        elif held < total:
            server.later(max(pause, 0.1), allocate, held)
        else:
            server.go_log(f'Allocated "{given.get("mem-total", "0")}" memory')

    if total:
        allocate(0)
    return server


def _quantity(text: str) -> int:
    try:
        return parse_size(text + "B" if text.endswith("i") else text)
    except ValueError:
        return 0


def _milliseconds(text: str) -> float:
    try:
        return float(text[:-2]) / 1000 if text.endswith("ms") else parse_seconds(text)
    except ValueError:
        return 0.001


def testlimit(context: ProgramContext) -> Program:
    """Sysinternals' Testlimit, as far as it takes memory: `-d SIZE` or `-m SIZE`, in megabytes,
    with `-e SECONDS` between allocations and `-c COUNT` of them. It holds what it has until it
    is stopped.
    """
    server = ServerProgram(context)
    given = _options(context.argv[1:])
    asked = given.get("d") or given.get("m") or ""
    try:
        size = int(asked.lower().removesuffix("b").removesuffix("m")) << 20
        count, pause = int(given.get("c", "0")), float(given.get("e", "0"))
    except ValueError:
        server.err("Testlimit tests limits: testlimit [-d|-m [MB]] [-e SECONDS] [-c COUNT]")
        server.exit(1)
        return server
    server.out(f"Process ID: {context.pid}\n\nLeaking private bytes {size >> 20} MB at a time...")

    def allocate(times: int) -> None:
        if server.ended:
            return
        if not context.usage.memory(times * size):
            server.out(f"Leaked {(times - 1) * size >> 20} MB of private memory")
            server.out("Lasterror: 1455\nThe paging file is too small for this operation.")
        elif not count or times < count:
            server.later(max(pause, _LEAST_PAUSE), allocate, times + 1)
        else:
            server.out(f"Leaked {times * size >> 20} MB of private memory")

    allocate(1)
    return server


def _options(arguments: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        if not equals and position < len(arguments) and not arguments[position].startswith("-"):
            value = arguments[position]
            position += 1
        found[name] = value
    return found


class _Consumption:
    """The resources that requests have asked for, until they expire."""

    def __init__(self, server: ServerProgram) -> None:
        self.server = server
        self.cores = 0.0
        self.memory = 0

    def add(self, cores: float, memory: int, duration: float) -> None:
        self.change(cores, memory)
        self.server.context.clock.call_later(duration, self.change, -cores, -memory)

    def change(self, cores: float, memory: int) -> None:
        if not self.server.ended:
            self.cores += cores
            self.memory += memory
            self.server.context.usage.cpu(self.cores)
            self.server.context.usage.memory(self.memory)


def resource_consumer(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    consumption = _Consumption(server)
    metrics: dict[str, float] = {}

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        if request.path == "/metrics":
            families = [Family(n, "gauge", "", [Sample((), v)]) for n, v in metrics.items()]
            lines = render_metrics(families)
            return program_text_response(lines, kind="text/plain; version=0.0.4")
        if request.method != "POST":
            return program_text_response("not a http.Request.Method == POST", 400)
        query = request.query
        try:
            duration = float(query.get("durationSec", ""))
            if request.path == "/ConsumeCPU":
                amount = float(query.get("millicores", ""))
                consumption.add(amount / 1000, 0, duration)
                return program_text_response(
                    f"ConsumeCPU\n{amount:g} millicores\n{duration:g} durationSec\n"
                )
            if request.path == "/ConsumeMem":
                amount = float(query.get("megabytes", ""))
                consumption.add(0, int(amount) << 20, duration)
                return program_text_response(
                    f"ConsumeMem\n{amount:g} megabytes\n{duration:g} durationSec\n"
                )
            if request.path == "/BumpMetric":
                name, delta = query.get("metric", ""), float(query.get("delta", ""))
                metrics[name] = metrics.get(name, 0) + delta
                return program_text_response(
                    f"BumpMetric\n{name} metric\n{delta:g} delta\n{duration:g} durationSec\n"
                )
        except ValueError:
            return program_text_response("incorrect function argument", 400)
        return program_text_response("unknown function", 404)

    try:
        server.serve(8080, handle)
    except OSError as error:
        server.go_log(f"listen tcp :8080: bind: {why_not(error)}")
        server.exit(1)
    return server
