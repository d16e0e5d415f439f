"""docker on a Windows node: its containers, from the records and process tables of the runtime."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from transom.kit.clock import rfc3339
from transom.runtime.sim import containers, sandboxes
from transom.runtime.sim.core import SimCore
from transom.runtime.sim.login import docker_state
from transom.runtime.sim.login.runtime_client import (
    Either,
    RuntimeClient,
    elapsed_text,
    exec_in_container,
    parse_flags,
    print_columns,
    print_log,
)
from transom.runtime.sim.records import SimContainer, SimSandbox
from transom.userland.windows.unsupported_programs import unsupported_message

_DOCKER_DOWN: Final = (
    "error during connect: Get http://%2F%2F.%2Fpipe%2Fdocker_engine/v1.40/{}: open //./pipe/docker_engine: The system cannot "
    "find the file specified. In the default daemon configuration on Windows, the docker client must be run elevated to "
    "connect. This error may also indicate that the docker daemon is not running."
)


_SHORT: Final = 12


def _docker_name(one: Either) -> str:
    sandbox = one if isinstance(one, SimSandbox) else one.sandbox
    config = sandbox.config
    name, attempt = (
        ("POD", config.attempt)
        if isinstance(one, SimSandbox)
        else (one.config.name, one.config.attempt)
    )
    return f"k8s_{name}_{config.name}_{config.namespace}_{config.uid}_{attempt}"


def _docker_all(core: SimCore) -> list[Either]:
    """Newest first."""
    found: list[Either] = [*core.sandboxes.values(), *core.containers.values()]
    return sorted(found, key=lambda one: -one.created)


def _runs(one: Either) -> bool:
    return one.state in ("ready", "running")


def _find(core: SimCore, wanted: str) -> Either | None:
    found = [
        one
        for one in _docker_all(core)
        if one.id.startswith(wanted) or _docker_name(one) == wanted.lstrip("/")
    ]
    return found[0] if found else None


def _status(one: Either, now: float) -> str:
    if isinstance(one, SimSandbox):
        return (
            f"Up {elapsed_text(now - one.created)}"
            if _runs(one)
            else f"Exited (0) {elapsed_text(now - one.created, ' ago')}"
        )
    if one.state == "running":
        return f"Up {elapsed_text(now - one.started)}"
    if one.state == "created":
        return "Created"
    return f"Exited ({one.exit_code}) {elapsed_text(now - one.finished, ' ago')}"


def _image(one: Either) -> str:
    return one.image.info.name if isinstance(one, SimSandbox) else one.image_name


def _command_of(one: Either) -> str:
    return "/pause.exe" if isinstance(one, SimSandbox) else " ".join(one.argv)


def _docker_row(one: Either, now: float) -> dict[str, str]:
    command = json.dumps(_command_of(one))
    return {
        "ID": one.id,
        "Image": _image(one),
        "Command": command,
        "CreatedAt": rfc3339(one.created),
        "RunningFor": elapsed_text(now - one.created, " ago"),
        "Status": _status(one, now),
        "Ports": "",
        "Names": _docker_name(one),
        "State": "running" if _runs(one) else "exited",
    }


def _docker_ps(client: RuntimeClient, words: Sequence[str]) -> int:
    _, options = parse_flags(words, ("-f", "--filter", "--format", "-n", "--last"))
    core, now = client.core, client.process.context.clock.time()
    rows = [
        _docker_row(one, now)
        for one in _docker_all(core)
        if _runs(one) or "-a" in options or "--all" in options
    ]
    for condition in (*options.get("-f", ()), *options.get("--filter", ())):
        key, _, value = condition.partition("=")
        field = {"name": "Names", "id": "ID", "status": "State", "ancestor": "Image"}.get(key)
        if field is None:
            client.process.complain(f"Error response from daemon: Invalid filter '{key}'")
            return 1
        rows = [row for row in rows if re.search(value, row[field])]
    short = "--no-trunc" not in options
    for row in rows if short else ():
        row["ID"] = row["ID"][:_SHORT]
        row["Command"] = row["Command"] if len(row["Command"]) <= 22 else f'{row["Command"][:20]}…"'
    if "-q" in options or "--quiet" in options:
        for row in rows:
            client.print_line(row["ID"])
        return 0
    shape = (options.get("--format") or [""])[-1]
    if shape:
        for row in rows:
            client.print_line(_filled(shape.removeprefix("table ").replace("\\t", "\t"), row))
        return 0
    head = ("CONTAINER ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES")
    shown = [
        [row[name] for name in ("ID", "Image", "Command", "RunningFor", "Status", "Ports", "Names")]
        for row in rows
    ]
    print_columns(client, [head, *shown], 8 if not shown else 3)
    return 0


def _filled(shape: str, row: dict[str, Any]) -> str:
    """A Go template with only fields, or `json`."""

    def value(match: re.Match[str]) -> str:
        path = match[1].strip()
        if path.startswith("json"):
            path = path.removeprefix("json").strip()
            found = _at(row, path)
            return json.dumps(found)
        found = _at(row, path)
        return str(found).lower() if isinstance(found, bool) else str(found)

    return re.sub(r"\{\{([^}]*)\}\}", value, shape)


def _at(row: Any, path: str) -> Any:
    for part in path.strip(".").split(".") if path.strip(".") else ():
        row = row.get(part, "<no value>") if isinstance(row, dict) else "<no value>"
    return row


def _pid(client: RuntimeClient, one: Either) -> int:
    entries = client.machine.processes.of_container(one.id)
    if isinstance(one, SimContainer) and one.context is not None:
        return one.context.pid
    return entries[0].pid if entries else 0


def _docker_details(client: RuntimeClient, one: Either) -> dict[str, Any]:
    core = client.core
    sandbox = one if isinstance(one, SimSandbox) else one.sandbox
    exited = isinstance(one, SimContainer)
    mounts = one.config.mounts if isinstance(one, SimContainer) else ()
    return {
        "Id": one.id,
        "Created": rfc3339(one.created),
        "Path": _command_of(one).split(" ")[0],
        "Args": list(one.argv[1:]) if isinstance(one, SimContainer) else [],
        "State": {
            "Status": "running" if _runs(one) else "exited",
            "Running": _runs(one),
            "Paused": False,
            "Restarting": False,
            "OOMKilled": isinstance(one, SimContainer) and one.reason == "OOMKilled",
            "Dead": False,
            "Pid": _pid(client, one) if _runs(one) else 0,
            "ExitCode": one.exit_code if exited and isinstance(one, SimContainer) else 0,
            "Error": "",
            "StartedAt": rfc3339(one.started if isinstance(one, SimContainer) else one.created),
            "FinishedAt": rfc3339(one.finished)
            if isinstance(one, SimContainer) and one.finished
            else "0001-01-01T00:00:00Z",
        },
        "Image": one.image_ref if isinstance(one, SimContainer) else one.image.info.name,
        "Name": f"/{_docker_name(one)}",
        "RestartCount": 0,
        "Driver": "windowsfilter",
        "Platform": "windows",
        "LogPath": one.log.path if isinstance(one, SimContainer) else "",
        "HostConfig": {
            "NetworkMode": "none" if isinstance(one, SimSandbox) else f"container:{sandbox.id}",
            "Isolation": "hyperv" if sandbox.isolation.hyperv else "process",
        },
        "Mounts": [
            {
                "Type": "bind",
                "Source": mount.host_path,
                "Destination": mount.container_path,
                "RW": not mount.read_only,
            }
            for mount in mounts
        ],
        "Config": {
            "Hostname": core.hostname_in(sandbox),
            "Image": _image(one),
            "Env": [f"{name}={value}" for name, value in one.config.env]
            if isinstance(one, SimContainer)
            else [],
            "Labels": dict(one.config.labels),
        },
        "NetworkSettings": {"Networks": {"none": {"IPAddress": "", "EndpointID": ""}}},
    }


def _docker_inspect(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ("-f", "--format", "--type"))
    shape = (options.get("-f") or options.get("--format") or [""])[-1]
    found, code = [], 0
    for name in plain:
        one = _find(client.core, name)
        if one is None:
            client.process.complain(f"Error: No such object: {name}")
            code = 1
        else:
            found.append(_docker_details(client, one))
    if shape:
        for details in found:
            client.print_line(_filled(shape, details))
    else:
        client.print_line(json.dumps(found, indent=4))
    return code


def _named(client: RuntimeClient, words: Sequence[str]) -> Either | None:
    one = _find(client.core, words[0]) if words else None
    if one is None:
        client.process.complain(f"Error: No such container: {words[0] if words else ''}")
    return one


def _docker_top(client: RuntimeClient, words: Sequence[str]) -> int:
    one = _named(client, words)
    if one is None:
        return 1
    if not _runs(one):
        client.process.complain(f"Error response from daemon: Container {one.id} is not running")
        return 1
    rows = [("Name", "PID", "CPU", "Private Working Set")]
    for entry in client.machine.processes.of_container(one.id):
        name = entry.argv[0].strip('"').rpartition("\\")[2]
        cpu = (
            time.strftime("%H:%M:%S", time.gmtime(entry.cpu)) + f".{int(entry.cpu % 1 * 1000):03d}"
        )
        rows.append(
            (
                name if "." in name else f"{name}.exe",
                str(entry.pid),
                cpu,
                f"{entry.memory / 1e6:.4g}MB",
            )
        )
    print_columns(client, rows, 20)
    return 0


def _docker_logs(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ("--tail", "-n", "--since", "--until"))
    one = _named(client, plain)
    return (
        1
        if one is None
        else print_log(client, one, (options.get("--tail") or options.get("-n") or ["all"])[-1])
    )


def _docker_images(client: RuntimeClient, words: Sequence[str]) -> int:
    _, options = parse_flags(words, ("-f", "--filter", "--format"))
    rows: list[dict[str, str]] = []
    for image in client.core.images.views():
        number = image.id if "--no-trunc" in options else image.id.partition(":")[2][:_SHORT]
        for name in image.tags or ("<none>:<none>",):
            repository, _, tag = name.rpartition(":")
            large = image.size >= 1_000_000_000
            size = f"{image.size / (1e9 if large else 1e6):.3g}{'GB' if large else 'MB'}"
            rows.append({"Repository": repository, "Tag": tag, "ID": number, "Size": size})
    if "-q" in options or "--quiet" in options:
        for number in dict.fromkeys(row["ID"] for row in rows):
            client.print_line(number)
        return 0
    shape = (options.get("--format") or [""])[-1]
    for row in rows if shape else ():
        client.print_line(_filled(shape.removeprefix("table ").replace("\\t", "\t"), row))
    if not shape:
        head = ("REPOSITORY", "TAG", "IMAGE ID", "SIZE")
        print_columns(client, [head, *(tuple(row.values()) for row in rows)])
    return 0


async def _docker_exec(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, _ = parse_flags(words, ("-e", "--env", "-u", "--user", "-w", "--workdir"))
    one = _named(client, plain)
    if one is None:
        return 1
    if not isinstance(one, SimContainer) or one.state != "running":
        client.process.complain(f"Error response from daemon: Container {one.id} is not running")
        return 1
    return await exec_in_container(client, one, plain[1:])


async def _docker_stop(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ("-t", "--time", "-s", "--signal"))
    code, core = 0, client.core
    kill = client.process.argv[1].lower() == "kill"
    seconds = (options.get("-t") or options.get("--time") or ["10"])[-1]
    for name in plain:
        one = _named(client, [name])
        if one is None:
            code = 1
        elif isinstance(one, SimContainer):
            if kill:
                containers.kill_sim_container(core, one)
            else:
                await containers.stop_sim_container(
                    core, one, float(seconds) if seconds.isdigit() else 10.0
                )
            client.print_line(name)
        else:
            sandboxes.power_off_sandbox(core, one)
            core.emit("died", one, one.id)
            client.print_line(name)
    return code


def _docker_rm(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ())
    code = 0
    for name in plain:
        one = _named(client, [name])
        if one is None or not isinstance(one, SimContainer):
            code = 1
        elif one.state == "running" and not ({"-f", "--force"} & set(options)):
            client.process.complain(
                f"Error response from daemon: You cannot remove a running container {one.id}. Stop the container before "
                "attempting removal or force remove"
            )
            code = 1
        else:
            containers.remove_sim_container(client.core, one)
            client.print_line(name)
    return code


def _docker_version(client: RuntimeClient, words: Sequence[str]) -> int:
    engine = client.machine.engine
    assert engine is not None
    version = engine.version.version
    build = client.core.build
    for line in (
        "Client: Docker Engine - Enterprise",
        f" Version:           {version}",
        " API version:       1.40",
        " OS/Arch:           windows/amd64",
        "",
        "Server: Docker Engine - Enterprise",
        " Engine:",
        f"  Version:          {version}",
        "  API version:      1.40 (minimum version 1.24)",
        "  OS/Arch:          windows/amd64",
        f"  Kernel build:     {build}",
    ):
        client.print_line(line)
    return 0


def _docker_info(client: RuntimeClient, words: Sequence[str]) -> int:
    core = client.core
    all_ = _docker_all(core)
    running = sum(map(_runs, all_))
    engine = client.machine.engine
    assert engine is not None
    host = core.host
    for line in (
        "Server:",
        f" Containers: {len(all_)}",
        f"  Running: {running}",
        "  Paused: 0",
        f"  Stopped: {len(all_) - running}",
        f" Images: {len(core.images.views())}",
        f" Server Version: {engine.version.version}",
        " Storage Driver: windowsfilter",
        "  Windows:",
        " Logging Driver: json-file",
        " Plugins:",
        "  Volume: local",
        "  Network: ics internal l2bridge l2tunnel nat null overlay private transparent",
        " Default Isolation: process",
        f" Kernel Version: {host.identity.kernel_version}",
        f" Operating System: {host.identity.os_image}",
        " OSType: windows",
        " Architecture: x86_64",
        f" CPUs: {host.hardware.cpus}",
        f" Total Memory: {host.hardware.memory / (1 << 30):.3g}GiB",
        f" Name: {host.name}",
        r" Docker Root Dir: C:\ProgramData\docker",
    ):
        client.print_line(line)
    return 0


def _docker_stats(client: RuntimeClient, words: Sequence[str]) -> int:
    """Once: there is no screen to refresh."""
    wanted = [word for word in words if not word.startswith("-")]
    found = [one for one in _docker_all(client.core) if _runs(one)]
    if wanted:
        named = [_find(client.core, word) for word in wanted]
        for word, one in zip(wanted, named, strict=True):
            if one is None:
                client.process.complain(f"Error: No such container: {word}")
                return 1
        found = [one for one in named if one is not None]
    return docker_state.docker_stats(client, [(one, _docker_name(one)) for one in found])


_DOCKER: Final[dict[str, Callable[[RuntimeClient, Sequence[str]], Any]]] = {
    "ps": _docker_ps,
    "inspect": _docker_inspect,
    "top": _docker_top,
    "logs": _docker_logs,
    "images": _docker_images,
    "exec": _docker_exec,
    "stop": _docker_stop,
    "kill": _docker_stop,
    "rm": _docker_rm,
    "version": _docker_version,
    "info": _docker_info,
    "rmi": docker_state.remove_images,
    "stats": _docker_stats,
    "network": docker_state.docker_network,
    "volume": docker_state.docker_volume,
    "system": docker_state.docker_system,
}
_NOT_SUPPORTED: Final = (
    "attach",
    "build",
    "builder",
    "commit",
    "config",
    "context",
    "cp",
    "create",
    "diff",
    "engine",
    "events",
    "export",
    "history",
    "import",
    "load",
    "login",
    "logout",
    "manifest",
    "node",
    "pause",
    "plugin",
    "port",
    "pull",
    "push",
    "rename",
    "restart",
    "run",
    "save",
    "search",
    "secret",
    "service",
    "stack",
    "start",
    "swarm",
    "tag",
    "trust",
    "unpause",
    "update",
    "wait",
)
"""Commands of docker that are not simulated."""


async def docker(client: RuntimeClient) -> int:
    words = list(client.process.argv[1:])
    if len(words) > 1 and words[0].lower() in ("container", "image"):
        words.pop(0)
        words[0] = {"ls": "ps" if client.process.argv[1].lower() == "container" else "images"}.get(
            words[0].lower(), words[0]
        )
    command = _DOCKER.get(words[0].lower()) if words else None
    if words and words[0].lower() in _NOT_SUPPORTED:
        client.process.complain(unsupported_message(f"docker {words[0].lower()}"))
        return 1
    if command is None:
        client.process.complain(
            f"docker: '{words[0] if words else ''}' is not a docker command.\nSee 'docker --help'"
        )
        return 1
    engine = client.machine.engine
    if engine is None or not engine.service.running:
        client.process.complain(
            _DOCKER_DOWN.format("version" if words[0] == "version" else "containers/json")
        )
        return 1
    result = command(client, words[1:])
    return result if isinstance(result, int) else int(await result)
