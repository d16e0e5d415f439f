"""The operations on a cluster: start, run in the foreground, stop, delete, status."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transom.cluster import config as configs
from transom.cluster import daemon, kubeconfig, protection
from transom.cluster.config import ClusterConfig
from transom.cluster.options import UpOptions, choose_config, cluster_file
from transom.cluster.pki import ClusterPki, ensure_cluster_pki, import_shared_keys
from transom.kit.files import write_atomic
from transom.kit.garbage import bound_collections
from transom.kit.lazy import lazy_import, load_modules
from transom.kit.user_errors import UserError, name_cluster
from transom.machinery.releases import parse_release
from transom.machinery.releases.features import FeatureSet
from transom.node.runtimes import uses_real_containers
from transom.node.settings import clusters_dir, name_option
from transom.node.spec import NodeSpec

if TYPE_CHECKING:
    import tempfile

    import yaml

    from transom.cluster import probe as probes
    from transom.cluster import run as run_module
    from transom.cluster.ha import layout as server_layout
    from transom.cluster.ha import supervisor
    from transom.cluster.probe import ClusterProbe
    from transom.kit import logs
    from transom.node import real_runtimes
    from transom.scheduler import config as scheduler_config
    from transom.scheduler import errors as scheduler_errors
else:
    probes = lazy_import("transom.cluster.probe")
    run_module = lazy_import("transom.cluster.run")
    server_layout = lazy_import("transom.cluster.ha.layout")
    supervisor = lazy_import("transom.cluster.ha.supervisor")
    logs = lazy_import("transom.kit.logs")
    scheduler_config = lazy_import("transom.scheduler.config")
    scheduler_errors = lazy_import("transom.scheduler.errors")
    real_runtimes = lazy_import("transom.node.real_runtimes")
    tempfile = lazy_import("tempfile")
    yaml = lazy_import("yaml")

READY_SECONDS = 30.0
SERVERS_READY_SECONDS = 90.0  # several processes start at the same time
STOP_SECONDS = 15.0
# The resources that `cluster_status` counts: those users look for first.
_COUNTED = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "deployments": "/apis/apps/v1/deployments",
}

ReportProgress = Callable[[str], None]
ControlCall = Callable[..., Any]  # what control_client returns


def start_cluster(options: UpOptions, report_progress: ReportProgress) -> ClusterConfig:
    """Starts the cluster in the background; returns when it is ready and its context is in the
    kubeconfig.

    If the start fails, the cluster can still be listed, deleted, and started with the options of
    its last successful start.
    """
    target = options.kubeconfig or kubeconfig.default_kubeconfig_path()
    kubeconfig.check_kubeconfig(target)
    lock, config, sockets, pki = _prepare(options, str(target), report_progress)

    def serve(report: Callable[[str], None]) -> None:
        run_cluster(config, pki, sockets, report)

    entries = kubeconfig.make_kubeconfig_entries(config, pki)
    try:
        pipe = daemon.start_daemon(config, lock, sockets, serve)
        # Write it while the cluster starts, so that the cluster is usable even if this process is
        # killed now.
        write_atomic(config.own_kubeconfig, kubeconfig.render_kubeconfig(entries), 0o600)

        try:
            patience = SERVERS_READY_SECONDS if config.servers else READY_SECONDS
            daemon.wait_daemon_ready(pipe, config, patience, report_progress)
        except daemon.NotReadyYet:
            kubeconfig.merge_kubeconfig(target, entries)  # so that later lookups find it
            raise
        _check_ready(config)
        kubeconfig.merge_kubeconfig(target, entries)
    except daemon.NotReadyYet:
        raise
    except BaseException as error:
        if daemon.stop_daemon(config, STOP_SECONDS, report_progress) and isinstance(
            error, KeyboardInterrupt
        ):
            report_progress(f"interrupted; cluster {config.name!r} is stopped")
        raise
    return config


def plan_cluster(
    options: UpOptions, report_progress: ReportProgress
) -> tuple[ClusterConfig, list[NodeSpec]]:
    """What `start_cluster` would start; checks the options and writes nothing."""
    target = options.kubeconfig or kubeconfig.default_kubeconfig_path()
    kubeconfig.check_kubeconfig(target)
    before = configs.load_config(options.name)
    config, machines = choose_config(
        before, options, cluster_file(options), str(target), report_progress
    )
    if machines is None and before is not None:
        machines = configs.load_nodes(before)
    return config, [] if config.no_nodes else list(machines or ())


def serve_in_foreground(
    options: UpOptions,
    report_progress: ReportProgress,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves in this process until a signal. Changes the user's kubeconfig only if one was
    specified. Calls `on_ready` when the control plane and the nodes are ready.
    """
    target = options.kubeconfig
    lock, config, sockets, pki = _prepare_foreground(options, report_progress)
    report_progress(
        f"use it with: kubectl --kubeconfig {target or config.own_kubeconfig} get namespaces"
    )
    try:
        run_cluster(config, pki, sockets, _ready_reporter(config, on_ready))
    finally:
        lock.release()
        if target is not None:
            _forget_context(target, config.name, report_progress)


async def serve_in_event_loop(
    options: UpOptions, on_ready: Callable[[], None], stopping: asyncio.Event
) -> None:
    """Serves in the running event loop until `stopping` is set, for programs that do other things
    too: it changes neither signals nor logging nor settings of the process.
    """
    lock, config, sockets, pki = _prepare_foreground(options, lambda _: None)
    try:
        report = _ready_reporter(config, on_ready)
        await run_module.serve_cluster(config, pki, sockets, report, stopping)
    finally:
        lock.release()


def _prepare_foreground(
    options: UpOptions, report_progress: ReportProgress
) -> tuple[daemon.ClusterLock, ClusterConfig, list[socket.socket], ClusterPki]:
    target = options.kubeconfig
    if target is not None:
        kubeconfig.check_kubeconfig(target)
    prepared = _prepare(options, str(target or ""), report_progress)
    lock, config, _, pki = prepared
    entries = kubeconfig.make_kubeconfig_entries(config, pki)
    write_atomic(config.own_kubeconfig, kubeconfig.render_kubeconfig(entries), 0o600)
    if target is not None:
        kubeconfig.merge_kubeconfig(target, entries)
    lock.claim()
    return prepared


def _ready_reporter(config: ClusterConfig, on_ready: Callable[[], None]) -> Callable[[str], None]:
    def report(text: str) -> None:
        if not text:
            configs.commit_config(config)
            on_ready()

    return report


def run_cluster(
    config: ClusterConfig,
    pki: ClusterPki,
    sockets: Sequence[socket.socket],
    report: Callable[[str], None],
) -> None:
    """Serves until a signal. Only the serving process imports the API server."""
    logs.set_up_logging()
    if config.servers:
        supervisor.run_supervisor(config, pki, sockets, report)
        return
    bound_collections()
    load_modules(run_module)
    run_module.run_cluster_process(config, pki, sockets, report)


def _prepare(
    options: UpOptions, kubeconfig_file: str, report_progress: ReportProgress
) -> tuple[daemon.ClusterLock, ClusterConfig, list[socket.socket], ClusterPki]:
    """Runs all checks that are possible before anything starts. A new cluster that fails one leaves
    no files.
    """
    before = configs.load_config(options.name)
    file = cluster_file(options)
    config, machines = choose_config(before, options, file, kubeconfig_file, report_progress)
    scheduler = None if file.scheduler is None else _scheduler_document(file.scheduler, config)
    is_new = before is None and not config.state.exists()
    lock = daemon.ClusterLock(config)
    try:
        return lock, *_settle(config, options, lock, machines, scheduler)
    except BaseException:
        if is_new:
            shutil.rmtree(config.state, ignore_errors=True)
        lock.release()
        raise


def _settle(
    config: ClusterConfig,
    options: UpOptions,
    lock: daemon.ClusterLock,
    machines: list[NodeSpec] | None,
    scheduler: bytes | None,
) -> tuple[ClusterConfig, list[socket.socket], ClusterPki]:
    """The steps that need the lock: ports, keys, and the options on disk, which apply to this start
    alone until it succeeds.
    """
    lock.claim(starting=True)
    config = protection.choose_protection(config, options.protection)
    config = protection.keep_attempted_keys(config, configs.load_starting_config(config.name))
    protection.check_protection(config)
    sockets = daemon.open_sockets(config)
    try:
        config = replace(config, port=sockets[0].getsockname()[1])
        if options.server_set.cert_dir is not None:
            import_shared_keys(config, options.server_set.cert_dir)
        pki = ensure_cluster_pki(config)
        if config.servers:
            config = server_layout.choose_layout(config)
            if config.etcd_ports:
                server_layout.ensure_etcd_pki(config)
        parts = {} if machines is None else {"nodes": configs.nodes_document(machines)}
        configs.stage_config(
            config, parts if scheduler is None else parts | {"scheduler": scheduler}
        )
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return config, sockets, pki


def _scheduler_document(content: dict[str, Any], config: ClusterConfig) -> bytes:
    document = yaml.safe_dump(content).encode()
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(document)
        file.flush()
        try:
            scheduler_config.load_scheduler_config(
                Path(file.name), FeatureSet(parse_release(config.release))
            )
        except scheduler_errors.SchedulerConfigError as problem:
            raise UserError(
                f"the section scheduler of the cluster file is not valid: {problem}"
            ) from problem
    return document


def no_nodes_error(cluster: str) -> UserError:
    option = name_option(cluster)
    return UserError(
        f"cluster {cluster!r} has no nodes of its own: it runs with --no-nodes",
        f"give it nodes: transom down{option} && transom up --nodes{option}",
    )


def control_client(config: ClusterConfig, timeout: float = 5.0) -> ControlCall:
    """`call(method, path, body=None, media=...)`: calls the running cluster as its admin and
    returns the decoded response. `timeout`: seconds that the cluster may take for a response.
    """
    if daemon.running_pid(config) is None:
        raise UserError(
            f"cluster {config.name!r} is not running",
            f"start it with: transom up{name_option(config.name)}",
        )
    probe = probes.ClusterProbe(config, timeout)

    def call(method: str, path: str, body: Any = None, media: str = "application/json") -> Any:
        try:
            status, content = probe.request(method, path, body, media)
        except probes.ClusterUnreachable as error:
            raise UserError(
                f"cluster {config.name!r} does not respond: {error}", _see_logs(config)
            ) from error
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value = None  # the text of a different error
        if status == 404 and path.startswith("/transom"):
            raise no_nodes_error(config.name)
        if status >= 300:
            problem = value if isinstance(value, dict) else {}
            code = problem.get("code")
            raise UserError(
                problem.get("message") or f"answer {status}",
                name_cluster(str(problem.get("hint", "")), name_option(config.name)),
                code if code in (1, 2) else 1,
            )
        return value

    return call


def _check_ready(config: ClusterConfig) -> None:
    """Waits until a client sees the readiness that the process reported."""
    probe = probes.ClusterProbe(config)
    deadline = time.monotonic() + READY_SECONDS
    while not probe.ready():
        if daemon.running_pid(config) is None:
            raise UserError(
                f"cluster {config.name!r} ended after its start; the end of its "
                f"log:\n{daemon.tail_log(config.log, 15)}"
            )
        if time.monotonic() > deadline:
            raise UserError(
                f"cluster {config.name!r} is not ready: {probe.not_ready()}", _see_logs(config)
            )
        time.sleep(0.01)


def _see_logs(config: ClusterConfig) -> str:
    return f"see transom logs{name_option(config.name)}"


def _starting(name: str) -> ClusterConfig | None:
    """The configuration of a cluster that is just starting."""
    config = configs.load_starting_config(name)
    return config if config is not None and daemon.running_pid(config) is not None else None


def existing_cluster(name: str) -> ClusterConfig:
    config = _starting(name) or configs.load_config(name)
    if config is None:
        others = configs.known_clusters()
        hint = f"existing clusters: {', '.join(others)}; " if others else ""
        raise UserError(
            f"there is no cluster {name!r}",
            f"{hint}create one with: transom up{name_option(name)}",
        )
    return config


def stop_cluster(name: str, report_progress: ReportProgress) -> bool:
    """Stops the cluster and removes its context from the kubeconfig; its objects stay on disk.
    False: it was not running.
    """
    if configs.check_cluster_name(name) not in configs.known_clusters():
        existing_cluster(name)
    return _stop(configs.load_or_default_config(name)[0], report_progress)


def _stop(config: ClusterConfig, report_progress: ReportProgress) -> bool:
    stopped = daemon.stop_daemon(config, STOP_SECONDS, report_progress)
    if not stopped and uses_real_containers(config):
        real_runtimes.end_real_containers(config)
    attempt = configs.load_starting_config(config.name)
    for file in dict.fromkeys(
        [config.kubeconfig, attempt.kubeconfig if attempt is not None else ""]
    ):
        if file:
            _forget_context(Path(file), config.name, report_progress)
    return stopped


def _forget_context(file: Path, name: str, report_progress: ReportProgress) -> None:
    try:
        kubeconfig.remove_from_kubeconfig(file, name)
    except UserError as error:
        report_progress(f"note: context {name!r} is still in the kubeconfig: {error.message}")
    except OSError as error:
        report_progress(
            f"note: context {name!r} is still in the kubeconfig {file}: {error.strerror}"
        )


_REMOVED: Final = ".deleted."  # the beginning of the names of folders that are being removed


def delete_cluster(name: str, report_progress: ReportProgress) -> bool:
    """Stops the cluster and removes all its data, whatever its state. False: it did not exist."""
    state = clusters_dir() / configs.check_cluster_name(name)
    if not state.exists():
        return False
    config, problem = configs.load_or_default_config(name)
    if problem:
        report_progress(f"note: {problem}")
    lock = _stop_and_lock(config, report_progress)
    try:
        if uses_real_containers(config):
            real_runtimes.clear_real_containers(config)
        # renamed first: from now on another `up` or `delete` of this name has its own folder
        removed = state.with_name(f"{_REMOVED}{name}.{secrets.token_hex(4)}")
        state.rename(removed)
    finally:
        lock.release()
    for rest in (removed, *clusters_dir().glob(f"{_REMOVED}*")):  # others: of a killed `delete`
        shutil.rmtree(rest, onerror=_ignore_missing)
    return True


def _ignore_missing(function: Callable[..., Any], path: str, raised: Any) -> None:
    """Another `delete` may remove the same leftovers."""
    error = raised[1]
    if not isinstance(error, FileNotFoundError):
        raise error


def _stop_and_lock(config: ClusterConfig, report_progress: ReportProgress) -> daemon.ClusterLock:
    """Another `up` or `delete` of the same name may hold the lock for a moment."""
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        _stop(config, report_progress)
        try:
            return daemon.ClusterLock(config)
        except UserError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def cluster_status_by_name(name: str) -> dict[str, Any]:
    """Like `cluster_status`, but also works if the configuration cannot be read."""
    if configs.check_cluster_name(name) not in configs.known_clusters():
        existing_cluster(name)
    starting = _starting(name)
    config, problem = (
        (starting, "") if starting is not None else configs.load_or_default_config(name)
    )
    return cluster_status(config) | ({"problem": problem} if problem else {})


def cluster_status(config: ClusterConfig) -> dict[str, Any]:
    """The status of a cluster; the keys are stable."""
    pid = daemon.running_pid(config)
    report: dict[str, Any] = {
        "name": config.name,
        "state": "stopped" if pid is None else "starting" if pid == 0 else "running",
        "ready": False,
        "url": config.url if config.port else None,
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
        "failedChecks": [],
        "store": None,
        "network": None
        if config.no_nodes
        else {"mode": config.network.mode, "dataplane": config.network.dataplane},
        "relays": None,
        "servers": None,
    }
    if pid and config.port:
        started = os.stat(config.pid_file).st_mtime
        report["startedAt"] = datetime.fromtimestamp(int(started), UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        report["uptimeSeconds"] = max(0, int(time.time() - started))
        if config.servers:
            report["servers"] = _processes(config)
        _ask(config, report)
    return report


def _processes(config: ClusterConfig) -> dict[str, Any] | None:
    """The processes of a cluster with several API servers; None if the first does not answer."""
    try:
        return supervisor.ask_supervisor(config, "status")
    except UserError:
        return None


def _reason(probe: ClusterProbe, check: str) -> str:
    return (
        probe.get(f"/readyz/{check}")[1]
        .decode(errors="replace")
        .removeprefix("internal server error: ")
        .strip()
    )


def _ask(config: ClusterConfig, report: dict[str, Any]) -> None:
    """Adds what only the API server can report, if it responds."""
    try:
        probe = probes.ClusterProbe(config)
        status, body = probe.get("/readyz")
        report["ready"] = status == 200
        failed = [
            line[3:].partition(" failed:")[0]
            for line in body.decode().splitlines()
            if line.startswith("[-]")
        ]
        report["failedChecks"] = [f"{check}: {_reason(probe, check)}" for check in failed]
        report["store"] = probe.get_json("/transom/store")
        version = probe.get_json("/version")
        report["version"] = (version or {}).get("gitVersion", report["version"])
        counts = {}
        for resource, path in _COUNTED.items():
            found = probe.get_json(path + "?limit=1")
            if found is not None:
                counts[resource] = len(found.get("items") or []) + found["metadata"].get(
                    "remainingItemCount", 0
                )
        report["objects"] = counts
        if not config.no_nodes:
            report["relays"] = (probe.get_json("/transom/relays") or {}).get("items")
    except probes.ClusterUnreachable as error:
        report["problem"] = str(error)
