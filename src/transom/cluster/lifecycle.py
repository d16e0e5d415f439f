"""What people do with a cluster: bring it up, run it in the foreground, take it down, delete it, look at it."""

from __future__ import annotations

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
from transom.cluster import daemon, kubeconfig, protection
from transom.cluster.config import RELEASES, ClusterConfig
from transom.cluster.errors import ClusterError
from transom.cluster.features import gates
from transom.cluster.pki import ClusterPki, ensure
from transom.cluster.protection import Protection
from transom.kit.files import write_atomic

READY_SECONDS = 30.0
STOP_SECONDS = 15.0
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
class Wanted:
    """What the user said; None leaves it as it was, or at its default."""

    name: str = configs.DEFAULT_NAME
    port: int | None = None
    release: str | None = None
    nodes: bool | None = None
    kubeconfig: Path | None = None
    protection: Protection = field(default_factory=Protection)
    feature_gates: tuple[str, ...] | None = None


def up(wanted: Wanted, tell: Tell) -> ClusterConfig:
    """Starts the cluster in the background; returns when it is ready and its context is in the kubeconfig."""
    target = wanted.kubeconfig or kubeconfig.default_path()
    lock, config, sockets, pki = _prepare(wanted, str(target))

    def serve(ready: Callable[[], None]) -> None:
        from transom.cluster.run import run
        from transom.kit import logs

        logs.setup()
        run(config, pki, sockets, ready)

    entries = kubeconfig.entries(config, pki)
    pipe = daemon.start(config, lock, sockets, serve)
    own = kubeconfig.render(entries)  # while the cluster starts
    daemon.wait_ready(pipe, config, READY_SECONDS, tell)
    try:
        _check_ready(config)
        write_atomic(config.own_kubeconfig, own, 0o600)
        kubeconfig.merge(target, entries)
    except ClusterError:
        daemon.stop(config, STOP_SECONDS, tell)
        raise
    return config


def foreground(wanted: Wanted, tell: Tell) -> None:
    """Serves in this process until a signal. The user's kubeconfig is changed only if it was named."""
    from transom.cluster.run import run
    from transom.kit import logs

    target = wanted.kubeconfig
    lock, config, sockets, pki = _prepare(wanted, str(target or ""))
    entries = kubeconfig.entries(config, pki)
    write_atomic(config.own_kubeconfig, kubeconfig.render(entries), 0o600)
    if target is not None:
        kubeconfig.merge(target, entries)
    lock.claim()
    logs.setup()
    tell(f"use it with: kubectl --kubeconfig {target or config.own_kubeconfig} get namespaces")
    try:
        run(config, pki, sockets, lambda: None)
    finally:
        lock.release()
        if target is not None:
            kubeconfig.remove(target, config.name)


def _prepare(
    wanted: Wanted, kubeconfig_file: str
) -> tuple[daemon.Lock, ClusterConfig, list[socket.socket], ClusterPki]:
    from transom.cluster.run import open_sockets

    config = configs.load(wanted.name) or ClusterConfig(name=configs.check_name(wanted.name))
    if wanted.release is not None:
        if wanted.release not in RELEASES:
            raise ClusterError(f"unknown release {wanted.release!r}", f"choose one of {', '.join(RELEASES)}")
        config = replace(config, release=wanted.release)
    if wanted.port is not None:
        config = replace(config, port=wanted.port)
    if wanted.nodes is not None:
        config = replace(config, no_nodes=not wanted.nodes)
    if wanted.feature_gates is not None:
        gates(wanted.feature_gates)
        config = replace(config, feature_gates=wanted.feature_gates)
    config = replace(config, kubeconfig=kubeconfig_file)
    lock = daemon.Lock(config)
    try:
        config = protection.choose(config, wanted.protection)
        protection.check(config)
        sockets = open_sockets(config)
        config = replace(config, port=sockets[0].getsockname()[1])
        pki = ensure(config)
        configs.save(config)
    except BaseException:
        lock.release()
        raise
    return lock, config, sockets, pki


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
    if config.kubeconfig:
        kubeconfig.remove(Path(config.kubeconfig), name)
    return config, stopped


def delete(name: str, tell: Tell) -> ClusterConfig:
    """Stops the cluster and removes everything it has."""
    config, _ = down(name, tell)
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
    except Unreachable as error:
        report["problem"] = str(error)
