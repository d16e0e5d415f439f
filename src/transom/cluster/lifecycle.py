"""What people do with a cluster: bring it up, run it in the foreground, take it down, delete it, look at it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from transom.cluster import config as configs
from transom.cluster import daemon, engines, families, kubeconfig, netconfig, nodes, protection, windows
from transom.cluster.config import RELEASES, ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.features import gates
from transom.cluster.file import ClusterFile
from transom.cluster.netconfig import NetworkSettings, WantedNetwork
from transom.cluster.pki import ClusterPki, ensure
from transom.cluster.protection import Protection
from transom.cluster.windows import Windows
from transom.kit.files import write_atomic

READY_SECONDS = 30.0
STOP_SECONDS = 15.0
_SMALL = 250  # nodes that the usual range has room for, each with a /24 of it
LARGE_POD_CIDR = "10.128.0.0/9"
# What `status` counts: the things people look for first.
_COUNTED = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "deployments": "/apis/apps/v1/deployments",
}

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """Nothing said: the nodes of the last start, or those of the demo."""

    linux: int | None = None
    windows: int | None = None
    build: int | None = None
    taint_windows: bool = False
    file: Path | None = None

    @property
    def said(self) -> bool:
        return self != WantedNodes()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user said; None leaves it as it was, or at its default."""

    name: str = configs.DEFAULT_NAME
    port: int | None = None
    release: str | None = None
    nodes: bool | None = None
    kubeconfig: Path | None = None
    protection: Protection = field(default_factory=Protection)
    feature_gates: tuple[str, ...] | None = None
    machines: WantedNodes = field(default_factory=WantedNodes)
    windows: Windows = field(default_factory=Windows)
    network: WantedNetwork = field(default_factory=WantedNetwork)
    engine: str | None = None


def up(wanted: Wanted, tell: Tell) -> ClusterConfig:
    """Starts the cluster in the background; returns when it is ready and its context is in the kubeconfig."""
    target = wanted.kubeconfig or kubeconfig.default_path()
    lock, config, sockets, pki = _prepare(wanted, str(target), tell)

    def serve(report: Callable[[str], None]) -> None:
        from transom.cluster.run import run
        from transom.kit import logs

        logs.setup()
        run(config, pki, sockets, report)

    entries = kubeconfig.entries(config, pki)
    pipe = daemon.start(config, lock, sockets, serve)
    own = kubeconfig.render(entries)  # while the cluster starts

    def introduce() -> None:
        write_atomic(config.own_kubeconfig, own, 0o600)
        kubeconfig.merge(target, entries)

    try:
        daemon.wait_ready(pipe, config, READY_SECONDS, tell)
    except daemon.NotReadyYet:
        introduce()  # whoever looks for it later finds it
        raise
    try:
        _check_ready(config)
        introduce()
    except ClusterError:
        daemon.stop(config, STOP_SECONDS, tell)
        raise
    return config


def foreground(wanted: Wanted, tell: Tell) -> None:
    """Serves in this process until a signal. The user's kubeconfig is changed only if it was named."""
    from transom.cluster.run import run
    from transom.kit import logs

    target = wanted.kubeconfig
    lock, config, sockets, pki = _prepare(wanted, str(target or ""), tell)
    entries = kubeconfig.entries(config, pki)
    write_atomic(config.own_kubeconfig, kubeconfig.render(entries), 0o600)
    if target is not None:
        kubeconfig.merge(target, entries)
    lock.claim()
    logs.setup()
    tell(f"use it with: kubectl --kubeconfig {target or config.own_kubeconfig} get namespaces")
    try:
        run(config, pki, sockets, lambda _: None)
    finally:
        lock.release()
        if target is not None:
            kubeconfig.remove(target, config.name)


def _prepare(
    wanted: Wanted, kubeconfig_file: str, tell: Tell
) -> tuple[daemon.Lock, ClusterConfig, list[socket.socket], ClusterPki]:
    from transom.cluster.run import open_sockets

    before = configs.load(wanted.name)
    config = before or ClusterConfig(name=configs.check_name(wanted.name))
    file = _cluster_file(wanted)
    release = wanted.release or file.release
    if release is not None:
        if release not in RELEASES:
            raise ClusterError(f"unknown release {release!r}", f"choose one of {', '.join(RELEASES)}")
        config = replace(config, release=release)
    if wanted.port is not None:
        config = replace(config, port=wanted.port)
    if wanted.nodes is not None:
        config = replace(config, no_nodes=not wanted.nodes)
    feature_gates = wanted.feature_gates if wanted.feature_gates is not None else file.feature_gates
    if feature_gates is not None:
        gates(feature_gates)
        config = replace(config, feature_gates=feature_gates)
    config = replace(
        config, kubeconfig=kubeconfig_file, pod_cidr=file.pod_cidr or config.pod_cidr,
        service_cidr=file.service_cidr or config.service_cidr, images=str(file.images or config.images),
    )
    config = _engine(config, wanted.engine or file.engine)
    config = windows.choose(config, wanted.windows, file.windows)
    config = replace(config, network=netconfig.choose(config.network, wanted.network, file.network))
    config = families.choose(config)
    _keeps_families(before, config)
    machines = _machines(config, wanted.machines, file)
    large = machines is not None and len(machines) > _SMALL
    if large and config.pod_cidr == configs.DEFAULT_POD_CIDR:
        config = replace(config, pod_cidr=LARGE_POD_CIDR)
    config = families.fill(config, large=large)
    if not config.no_nodes:
        config = _check_engine(config, machines, tell)
        _check_network(config, machines, tell)
    lock = daemon.Lock(config)
    try:
        config = protection.choose(config, wanted.protection)
        protection.check(config)
        sockets = open_sockets(config)
        config = replace(config, port=sockets[0].getsockname()[1])
        pki = ensure(config)
        configs.save(config)
        if machines is not None:
            nodes.save(config, machines)
        if file.scheduler is not None:
            _save_scheduler(config, file.scheduler)
    except BaseException:
        lock.release()
        raise
    return lock, config, sockets, pki


def _cluster_file(wanted: Wanted) -> ClusterFile:
    if wanted.machines.file is None:
        return ClusterFile()
    from transom.cluster.file import read

    return read(wanted.machines.file)


def _machines(config: ClusterConfig, wanted: WantedNodes, file: ClusterFile) -> list[nodes.NodeSpec] | None:
    """The nodes to start with, when they are not those of the last start."""
    if config.no_nodes:
        return None
    counted = wanted.linux is not None or wanted.windows is not None or wanted.build is not None
    if file.nodes is not None:
        if counted:
            raise ClusterError("the cluster file lists the nodes already", "leave out --linux, --windows and --build")
        return nodes.from_file(config, file.nodes)
    if wanted.said or nodes.load(config) is None:
        return nodes.demo(config, wanted.linux, wanted.windows, wanted.build, wanted.taint_windows)
    return None


def _keeps_families(before: ClusterConfig | None, config: ClusterConfig) -> None:
    """A node keeps the ranges that it got when it joined."""
    if before is not None and before.network.dual_stack != config.network.dual_stack:
        made, wanted = ("one family", "both families")[:: 1 if config.network.dual_stack else -1]
        raise ClusterError(f"cluster {config.name!r} was made for {made} of addresses",
                           f"to have {wanted}, delete it first (transom delete), or make another one (--name)")


def _engine(config: ClusterConfig, wanted: str | None) -> ClusterConfig:
    if wanted is not None and wanted not in engines.ENGINES:
        raise ClusterError(f"unknown runtime {wanted!r}", f"choose one of {', '.join(engines.ENGINES)}")
    return config if wanted is None else replace(config, engine=wanted)


def _check_engine(config: ClusterConfig, machines: list[nodes.NodeSpec] | None, tell: Tell) -> ClusterConfig:
    """Real containers need the kernel's data plane."""
    wanted = machines if machines is not None else nodes.load(config) or []
    chosen = engines.choose(config, wanted)
    for note in chosen.notes:
        tell(note)
    for node in wanted:
        engines.check(node, chosen.of(node))
    if any(chosen.of(node) == "oci" for node in wanted) and config.network.dataplane != "kernel":
        return replace(config, network=replace(config.network, dataplane="kernel"))
    return config


def _check_network(config: ClusterConfig, machines: list[nodes.NodeSpec] | None, tell: Tell) -> None:
    """The usual network fits everything, and needs no look at what the others need."""
    wanted = machines if machines is not None else nodes.load(config) or []
    four = families.of(config.pod_cidr, 4) and families.of(config.service_cidr, 4)
    if config.network != NetworkSettings() or not four or any(node.network_mode for node in wanted):
        from transom.cluster import netcheck

        for warning in netcheck.check(config, wanted):
            tell(f"note: {warning}")


def _save_scheduler(config: ClusterConfig, content: dict[str, Any]) -> None:
    import yaml

    from transom.cluster.scheduling import config_file
    from transom.scheduler.config import load
    from transom.scheduler.framework import ConfigError

    path = config_file(config)
    write_atomic(path, yaml.safe_dump(content).encode(), 0o600)
    try:
        load(path)
    except ConfigError as problem:
        path.unlink()
        raise ClusterError(f"the scheduler's part of the cluster file is wrong: {problem}") from problem


def control(config: ClusterConfig) -> Callable[..., Any]:
    """`call(method, path, body=None, media=...)`: asks the running cluster as its admin; the answer as a value."""
    from transom.cluster.probe import Probe, Unreachable

    if daemon.running_pid(config) is None:
        option = "" if config.name == configs.DEFAULT_NAME else f" --name {config.name}"
        raise ClusterError(f"cluster {config.name!r} does not run", f"start it with: transom up{option}")
    probe = Probe(config)

    def call(method: str, path: str, body: Any = None, media: str = "application/json") -> Any:
        try:
            status, content = probe.request(method, path, body, media)
        except Unreachable as error:
            raise ClusterError(f"cluster {config.name!r} does not answer: {error}", "see transom logs") from error
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value = None  # a text about something else that went wrong
        if status == 404 and path.startswith("/transom"):
            raise ClusterError(f"cluster {config.name!r} has no nodes of its own", "it runs with --no-nodes")
        if status >= 300:
            problem = value if isinstance(value, dict) else {}
            raise ClusterError(problem.get("message") or f"answer {status}", problem.get("hint", ""))
        return value

    return call


def _check_ready(config: ClusterConfig) -> None:
    """The process says it is ready; a client must see it too."""
    from transom.cluster.probe import Probe

    probe = Probe(config)
    deadline = time.monotonic() + READY_SECONDS
    while not probe.ready():
        if daemon.running_pid(config) is None:
            raise ClusterError(
                f"cluster {config.name!r} ended after its start; the end of its log:\n{daemon.tail(config.log, 15)}"
            )
        if time.monotonic() > deadline:
            raise ClusterError(f"cluster {config.name!r} does not answer {config.url}/readyz", "see transom logs")
        time.sleep(0.01)


def existing(name: str) -> ClusterConfig:
    config = configs.load(name)
    if config is None:
        others = configs.known_clusters()
        hint = f"there is {', '.join(others)}; " if others else ""
        option = "" if name == configs.DEFAULT_NAME else f" --name {name}"
        raise ClusterError(f"there is no cluster {name!r}", f"{hint}make one with: transom up{option}")
    return config


def down(name: str, tell: Tell) -> tuple[ClusterConfig, bool]:
    """Stops the cluster and takes its context out of the kubeconfig; all its objects stay on disk."""
    config = existing(name)
    stopped = daemon.stop(config, STOP_SECONDS, tell)
    if not stopped:
        engines.end(config)
    if config.kubeconfig:
        kubeconfig.remove(Path(config.kubeconfig), name)
    return config, stopped


def delete(name: str, tell: Tell) -> ClusterConfig:
    """Stops the cluster and removes everything it has."""
    config, _ = down(name, tell)
    engines.clear(config)
    shutil.rmtree(config.state)
    return config


def status(config: ClusterConfig) -> dict[str, Any]:
    """What there is to say about a cluster; the keys are stable."""
    pid = daemon.running_pid(config)
    report: dict[str, Any] = {
        "name": config.name,
        "state": "stopped" if pid is None else "starting" if pid == 0 else "running",
        "ready": False,
        "url": config.url,
        "release": config.release,
        "version": config.git_version,
        "nodes": not config.no_nodes,
        "encrypted": config.encrypt,
        "auditLog": str(protection.audit_log(config)) if config.audit_policy else None,
        "pid": pid or None,
        "startedAt": None,
        "uptimeSeconds": None,
        "stateDir": str(config.state),
        "log": str(config.log),
        "kubeconfig": config.kubeconfig or str(config.own_kubeconfig),
        "context": config.name,
        "objects": None,
        "network": None if config.no_nodes else {"mode": config.network.mode, "dataplane": config.network.dataplane},
        "relays": None,
    }
    if pid:
        started = os.stat(config.pid_file).st_mtime
        report["startedAt"] = datetime.fromtimestamp(int(started), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        report["uptimeSeconds"] = max(0, int(time.time() - started))
        _ask(config, report)
    return report


def _ask(config: ClusterConfig, report: dict[str, Any]) -> None:
    """Adds what only the API server knows, if it answers."""
    from transom.cluster.probe import Probe, Unreachable

    try:
        probe = Probe(config)
        report["ready"] = probe.get("/readyz")[0] == 200
        version = probe.get_json("/version")
        report["version"] = (version or {}).get("gitVersion", report["version"])
        counts = {}
        for resource, path in _COUNTED.items():
            found = probe.get_json(path + "?limit=1")
            if found is not None:
                counts[resource] = len(found.get("items") or []) + found["metadata"].get("remainingItemCount", 0)
        report["objects"] = counts
        if not config.no_nodes:
            report["relays"] = (probe.get_json("/transom/relays") or {}).get("items")
    except Unreachable as error:
        report["problem"] = str(error)
