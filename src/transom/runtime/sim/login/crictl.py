"""crictl on a Windows node: its pods and containers, from the records of the runtime."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from transom.runtime.records import cri_exit_code
from transom.runtime.sim import containers
from transom.runtime.sim.login import docker_state
from transom.runtime.sim.login.runtime_client import (
    RuntimeClient,
    elapsed_text,
    exec_in_container,
    parse_flags,
    print_columns,
    print_log,
)
from transom.runtime.sim.records import SimContainer

_ENDPOINTS: Final = {
    "windows": "npipe:////./pipe/containerd-containerd",
    "linux": "unix:///run/containerd/containerd.sock",
}
_CRICTL_DOWN: Final = (
    "connect: connect endpoint '{}', make sure you are running as root and the endpoint "
    "has been started: context deadline exceeded"
)


_CRI_SHORT: Final = 13


def _matching(wanted: Sequence[str], identity: str) -> bool:
    return not wanted or any(identity.startswith(one) for one in wanted)


def _crictl_ps(client: RuntimeClient, words: Sequence[str]) -> int:
    _, options = parse_flags(
        words, ("--name", "--state", "-s", "--pod", "-p", "--id", "--image", "-o", "--output")
    )
    core, now = client.core, client.process.context.clock.time()
    found = sorted(core.containers.values(), key=lambda one: -one.created)
    names, pods = options.get("--name", []), [*options.get("-p", []), *options.get("--pod", [])]
    wanted = [state.lower() for state in (*options.get("-s", []), *options.get("--state", []))]
    if not ({"-a", "--all"} & set(options)) and not wanted:
        wanted = ["running"]
    found = [
        one
        for one in found
        if (not wanted or one.state in wanted)
        and _matching(pods, one.sandbox.id)
        and (not names or any(re.search(name, one.config.name) for name in names))
    ]
    if {"-q", "--quiet"} & set(options):
        for one in found:
            client.print_line(one.id)
        return 0
    if "json" in (*options.get("-o", ()), *options.get("--output", ())):
        client.print_line(
            json.dumps({"containers": [_cri_status(one)["status"] for one in found]}, indent=2),
        )
        return 0
    rows = [("CONTAINER", "IMAGE", "CREATED", "STATE", "NAME", "ATTEMPT", "POD ID")]
    rows += [
        (
            one.id[:_CRI_SHORT],
            one.image_ref.partition(":")[2][:_CRI_SHORT] or one.image_name,
            elapsed_text(now - one.created, " ago"),
            one.state.capitalize(),
            one.config.name,
            str(one.config.attempt),
            one.sandbox.id[:_CRI_SHORT],
        )
        for one in found
    ]
    print_columns(client, rows, 15 if len(rows) == 1 else 3)
    return 0


def _crictl_pods(client: RuntimeClient, words: Sequence[str]) -> int:
    _, options = parse_flags(
        words, ("--name", "--namespace", "--state", "-s", "--id", "-o", "--output")
    )
    core, now = client.core, client.process.context.clock.time()
    found = sorted(core.sandboxes.values(), key=lambda one: -one.created)
    names, spaces = options.get("--name", []), options.get("--namespace", [])
    states = [state.lower() for state in (*options.get("-s", []), *options.get("--state", []))]
    found = [
        one
        for one in found
        if (not names or any(re.search(n, one.config.name) for n in names))
        and (not spaces or any(fnmatch.fnmatch(one.config.namespace, n) for n in spaces))
        and (not states or one.state in states)
    ]
    if {"-q", "--quiet"} & set(options):
        for one in found:
            client.print_line(one.id)
        return 0
    rows = [("POD ID", "CREATED", "STATE", "NAME", "NAMESPACE", "ATTEMPT", "RUNTIME")]
    rows += [
        (
            one.id[:_CRI_SHORT],
            elapsed_text(now - one.created, " ago"),
            "Ready" if one.state == "ready" else "NotReady",
            one.config.name,
            one.config.namespace,
            str(one.config.attempt),
            one.handler or "(default)",
        )
        for one in found
    ]
    print_columns(client, rows, 15 if len(rows) == 1 else 3)
    return 0


def _nanoseconds(moment: float) -> str:
    if not moment:
        return "1970-01-01T00:00:00Z"
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def _cri_status(one: SimContainer) -> dict[str, Any]:
    return {
        "status": {
            "id": one.id,
            "metadata": {"attempt": one.config.attempt, "name": one.config.name},
            "state": f"CONTAINER_{one.state.upper()}",
            "createdAt": _nanoseconds(one.created),
            "startedAt": _nanoseconds(one.started),
            "finishedAt": _nanoseconds(one.finished),
            "exitCode": cri_exit_code(one.exit_code),
            "image": {"image": one.image_name},
            "imageRef": one.image_ref,
            "reason": one.reason,
            "message": one.message,
            "labels": dict(one.config.labels),
            "annotations": dict(one.config.annotations),
            "mounts": [
                {
                    "containerPath": mount.container_path,
                    "hostPath": mount.host_path,
                    "readonly": mount.read_only,
                }
                for mount in one.config.mounts
            ],
            "logPath": one.log.path,
        }
    }


def _crictl_inspect(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, _ = parse_flags(words, ("-o", "--output"))
    for name in plain:
        one = next((c for c in client.core.containers.values() if c.id.startswith(name)), None)
        if one is None:
            return _crictl_missing(client, "container", name)
        info = {
            "pid": one.context.pid if one.context is not None else 0,
            "sandboxID": one.sandbox.id,
        }
        client.print_line(json.dumps({**_cri_status(one), "info": info}, indent=2))
    return 0


def _crictl_inspectp(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, _ = parse_flags(words, ("-o", "--output"))
    for name in plain:
        one = next((s for s in client.core.sandboxes.values() if s.id.startswith(name)), None)
        if one is None:
            return _crictl_missing(client, "sandbox", name)
        config = one.config
        client.print_line(
            json.dumps(
                {
                    "status": {
                        "id": one.id,
                        "metadata": {
                            "attempt": config.attempt,
                            "name": config.name,
                            "namespace": config.namespace,
                            "uid": config.uid,
                        },
                        "state": "SANDBOX_READY" if one.state == "ready" else "SANDBOX_NOTREADY",
                        "createdAt": _nanoseconds(one.created),
                        "network": {
                            "additionalIps": [{"ip": ip} for ip in one.addresses[1:]],
                            "ip": next(iter(one.addresses), ""),
                        },
                        "labels": dict(config.labels),
                        "annotations": dict(config.annotations),
                        "runtimeHandler": one.handler,
                    }
                },
                indent=2,
            ),
        )
    return 0


def _crictl_missing(client: RuntimeClient, kind: str, name: str) -> int:
    why = f"rpc error: code = NotFound desc = an error occurred when try to find {kind}: not found"
    client.process.complain(f'FATA[0000] getting the status of the {kind} "{name}": {why}')
    return 1


def _crictl_logs(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ("--tail", "--since"))
    one = next(
        (c for c in client.core.containers.values() if plain and c.id.startswith(plain[0])), None
    )
    if one is None:
        return _crictl_missing(client, "container", plain[0] if plain else "")
    return print_log(client, one, (options.get("--tail") or ["all"])[-1])


def _crictl_images(client: RuntimeClient, words: Sequence[str]) -> int:
    rows = [("IMAGE", "TAG", "IMAGE ID", "SIZE")]
    for image in client.core.images.views():
        for name in image.tags or ("<none>:<none>",):
            repository, _, tag = name.rpartition(":")
            rows.append(
                (
                    repository,
                    tag,
                    image.id.partition(":")[2][:_CRI_SHORT],
                    f"{image.size / 1e9:.3g}GB",
                )
            )
    print_columns(client, rows, 15)
    return 0


async def _crictl_exec(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, _ = parse_flags(words, ("--timeout",))
    one = next(
        (c for c in client.core.containers.values() if plain and c.id.startswith(plain[0])), None
    )
    if one is None:
        return _crictl_missing(client, "container", plain[0] if plain else "")
    return await exec_in_container(client, one, plain[1:])


async def _crictl_stop(client: RuntimeClient, words: Sequence[str]) -> int:
    plain, options = parse_flags(words, ("-t", "--timeout"))
    seconds = (options.get("-t") or options.get("--timeout") or ["0"])[-1]
    for name in plain:
        one = next((c for c in client.core.containers.values() if c.id.startswith(name)), None)
        if one is None:
            return _crictl_missing(client, "container", name)
        await containers.stop_sim_container(
            client.core, one, float(seconds) if seconds.isdigit() else 0.0
        )
        client.print_line(name)
    return 0


def _crictl_version(client: RuntimeClient, words: Sequence[str]) -> int:
    engine = client.machine.engine
    assert engine is not None
    client.print_line("Version:  0.1.0\nRuntimeName:  containerd")
    client.print_line(f"RuntimeVersion:  v{engine.version.version}\nRuntimeApiVersion:  v1alpha2")
    return 0


def _crictl_info(client: RuntimeClient, words: Sequence[str]) -> int:
    engine = client.machine.engine
    assert engine is not None
    status = engine.status()
    client.print_line(
        json.dumps(
            {
                "status": {
                    "conditions": [
                        {
                            "type": "RuntimeReady",
                            "status": not status.runtime_reason,
                            "reason": status.runtime_reason,
                            "message": status.runtime_message,
                        },
                        {
                            "type": "NetworkReady",
                            "status": not status.network_reason,
                            "reason": status.network_reason,
                            "message": status.network_message,
                        },
                    ]
                }
            },
            indent=2,
        ),
    )
    return 0


_CRICTL: Final[dict[str, Callable[[RuntimeClient, Sequence[str]], Any]]] = {
    "ps": _crictl_ps,
    "pods": _crictl_pods,
    "inspect": _crictl_inspect,
    "inspectp": _crictl_inspectp,
    "logs": _crictl_logs,
    "images": _crictl_images,
    "img": _crictl_images,
    "exec": _crictl_exec,
    "stop": _crictl_stop,
    "version": _crictl_version,
    "info": _crictl_info,
    "rmi": docker_state.remove_images,
    "stats": docker_state.crictl_stats,
}


async def crictl(client: RuntimeClient) -> int:
    words = list(client.process.argv[1:])
    while words and words[0].startswith("-"):  # the endpoint, which is known
        option = words.pop(0)
        if (
            "=" not in option
            and option in ("-r", "--runtime-endpoint", "-i", "--image-endpoint", "-t", "--timeout")
            and words
        ):
            words.pop(0)
    command = _CRICTL.get(words[0]) if words else None
    if command is None:
        client.process.complain(f"No help topic for '{words[0] if words else ''}'")
        return 3
    engine = client.machine.engine
    if engine is None or not engine.service.running:
        client.process.complain(
            f"FATA[0002] {_CRICTL_DOWN.format(_ENDPOINTS[client.process.context.os])}"
        )
        return 1
    result = command(client, words[1:])
    return result if isinstance(result, int) else int(await result)
