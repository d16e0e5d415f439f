"""docker stats, network, volume and system on a Windows node, from the state of the runtime and the
host networking service.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.runtime.sim.login.machine import WindowsMachine
from transom.runtime.sim.login.runtime_client import Either, RuntimeClient, print_columns
from transom.runtime.sim.records import SimSandbox
from transom.runtime.sim.stats import sim_container_stats, sim_sandbox_stats

_SHORT = 12
_SHORT_CRI = 13
_PAUSE_MEMORY = 2 << 20  # of a pause container


def binary_size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.4g}{unit}"
        size /= 1024
    return ""


def decimal_size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.3g}{unit}"
        size /= 1000
    return ""


def docker_stats(client: RuntimeClient, found: Sequence[tuple[Either, str]]) -> int:
    """`found`: running containers with their names."""
    core = client.core
    rows = [("CONTAINER ID", "NAME", "CPU %", "PRIV WORKING SET", "NET I/O", "BLOCK I/O")]
    for one, name in found:
        sandbox = one if isinstance(one, SimSandbox) else one.sandbox
        busy, memory = 0.0, _PAUSE_MEMORY
        if not isinstance(one, SimSandbox):
            seen = sim_container_stats(core, one)
            if seen is None:
                continue
            busy = ((seen.cpu.nano_cores if seen.cpu is not None else None) or 0) / 1e7
            memory = seen.working_set or 0
        traffic = sim_sandbox_stats(core, sandbox) if one is sandbox else None
        received = sum(each.rx_bytes for each in traffic.interfaces) if traffic else 0
        sent = sum(each.tx_bytes for each in traffic.interfaces) if traffic else 0
        rows.append(
            (
                one.id[:_SHORT],
                name,
                f"{busy:.2f}%",
                binary_size(memory),
                f"{decimal_size(received)} / {decimal_size(sent)}",
                "0B / 0B",
            )
        )
    print_columns(client, rows)
    return 0


def crictl_stats(client: RuntimeClient, words: Sequence[str]) -> int:
    rows = [("CONTAINER", "CPU %", "MEM", "DISK", "INODES")]
    wanted = [word for word in words if not word.startswith("-")]
    for one in client.core.containers.values():
        seen = sim_container_stats(client.core, one)
        if seen is None or (wanted and not any(one.id.startswith(word) for word in wanted)):
            continue
        busy = ((seen.cpu.nano_cores if seen.cpu is not None else None) or 0) / 1e7
        layer = seen.writable_layer
        rows.append(
            (
                one.id[:_SHORT_CRI],
                f"{busy:.2f}",
                decimal_size(seen.working_set or 0),
                decimal_size(layer.used if layer is not None else 0),
                str(layer.inodes_used if layer is not None else 0),
            )
        )
    print_columns(client, rows)
    return 0


def remove_images(client: RuntimeClient, words: Sequence[str]) -> int:
    """`docker rmi` and `crictl rmi`"""
    code, core = 0, client.core
    for word in (word for word in words if not word.startswith("-")):
        found = next(
            (
                image
                for image in core.images.views()
                if word in image.tags
                or f"{word}:latest" in image.tags
                or image.id.partition(":")[2].startswith(word)
            ),
            None,
        )
        users = [one for one in core.containers.values() if found and one.image_name in found.tags]
        if found is None:
            client.process.complain(f"Error: No such image: {word}")
            code = 1
        elif users and client.process.name == "docker":
            client.process.complain(
                f"Error response from daemon: conflict: unable to remove repository reference "
                f'"{word}" (must force) - container {users[0].id[:_SHORT]} is using its '
                "referenced image"
            )
            code = 1
        else:
            core.images.remove(found.id)
            for tag in found.tags:
                client.print_line(
                    f"{'Untagged' if client.process.name == 'docker' else 'Deleted'}: {tag}"
                )
    return code


def docker_network(client: RuntimeClient, words: Sequence[str]) -> int:
    """`network ls`: those of the host networking service."""
    if words[:1] not in (["ls"], ["list"]):
        client.process.complain("Usage:  docker network COMMAND\n\nManage networks")
        return 1
    rows = [("NETWORK ID", "NAME", "DRIVER", "SCOPE")]
    machine = client.machine
    if isinstance(machine, WindowsMachine):
        for network in machine.hns.networks.values():
            digits = str(network["ID"]).replace("-", "").lower()
            name, kind = str(network["Name"]), str(network["Type"]).lower()
            rows.append((digits[:_SHORT], name, kind, "local"))
    rows.append(("0" * _SHORT, "none", "null", "local"))
    print_columns(client, rows)
    return 0


def docker_volume(client: RuntimeClient, words: Sequence[str]) -> int:
    """`volume ls`: the kubelet mounts directories, not volumes of docker."""
    if words[:1] not in (["ls"], ["list"]):
        client.process.complain("Usage:  docker volume COMMAND\n\nManage volumes")
        return 1
    client.print_line("DRIVER              VOLUME NAME")
    return 0


def docker_system(client: RuntimeClient, words: Sequence[str]) -> int:
    """`system df`"""
    if words[:1] != ["df"]:
        client.process.complain("Usage:  docker system COMMAND\n\nManage Docker")
        return 1
    core = client.core
    images = core.images.views()
    used = {container.image_name for container in core.containers.values()}
    active = sum(1 for image in images if used & set(image.tags))
    running = sum(1 for one in core.containers.values() if one.state == "running")
    running += sum(1 for one in core.sandboxes.values() if one.state == "ready")
    total = len(core.containers) + len(core.sandboxes)
    layers = sum(one.files.layer_usage()[0] for one in core.containers.values())
    size = decimal_size(sum(image.size for image in images))
    print_columns(
        client,
        (
            ("TYPE", "TOTAL", "ACTIVE", "SIZE"),
            ("Images", str(len(images)), str(active), size),
            ("Containers", str(total), str(running), decimal_size(layers)),
            ("Local Volumes", "0", "0", "0B"),
            ("Build Cache", "0", "0", "0B"),
        ),
    )
    return 0
