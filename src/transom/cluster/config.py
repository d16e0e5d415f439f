"""A cluster's configuration and the files it lives in: one folder for each cluster, so that
clusters stay separate.

The folder is `$XDG_DATA_HOME/transom/NAME`. The options of the last successful start are in
`cluster.json`, `nodes.json` and `scheduler.yaml`, so a restart needs no options. A start in
progress keeps its options in separate files (`stage_config`); they replace the others once the
cluster is ready (`commit_config`), so the options of a failed start are discarded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from transom.kit.files import make_private, sync_directory, write_atomic
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import EXIT_USAGE, UserError
from transom.node import network_settings
from transom.node.settings import ENGINES, RELEASES, ClusterSettings, clusters_dir, name_option
from transom.node.spec import NodeSpec

PID_FILE = "transom.pid"

_LAST_PORT = 65535
_TAKEN = ("images", "snapshots", "wine")  # folders that are not clusters
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterConfig(ClusterSettings):
    node_ports: tuple[int, int] = (30000, 32767)
    load_balancer_cidr: str = "198.18.0.0/16"  # in the cluster network; relayed on loopback
    no_nodes: bool = False
    audit_policy: str = ""  # the audit policy; "" disables auditing
    audit_log: str = ""  # the destination; "" for the state folder
    encryption_key_file: str = ""
    encrypt: bool = False  # for Secrets on disk
    # additional keys that this start may need to read the data
    former_key_files: tuple[str, ...] = ()
    runtime_config: tuple[str, ...] = ()  # "GROUP/VERSION=true", as in Kubernetes' flag
    # "authentication-config=FILE": the flags of kube-apiserver for authentication and authorization
    access_flags: tuple[str, ...] = ()
    warn_windows: bool = True  # for pods that use features unsupported on Windows
    reject_windows: tuple[str, ...] = ()  # ids of limitations; pods that hit one are rejected
    loop_budget: str = ""  # CPU time per event loop callback; "" for no limit
    store: str = ""  # the address of an etcd cluster; "" for the database in the state folder
    servers: int = 0  # API servers on this machine, each a process; 0: one, with the nodes
    server_ports: tuple[int, ...] = ()
    etcd_ports: tuple[int, ...] = ()  # for each member that runs here: for clients, for members
    # The address of this server in the endpoints of `kubernetes`; "" if the nodes keep them.
    advertise_address: str = ""
    # more names and addresses in the certificate of the server, as that of a load balancer
    cert_extra_sans: tuple[str, ...] = ()
    kubeconfig: str = ""  # the file with the cluster's context; "" for none
    in_memory: bool = False  # objects are lost when the cluster stops
    virtual_time: bool = False  # the time can be advanced, for tests

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def database(self) -> Path:
        return self.state / "store.db"

    @property
    def log(self) -> Path:
        return self.state / "transom.log"

    @property
    def pid_file(self) -> Path:
        return self.state / PID_FILE

    @property
    def own_kubeconfig(self) -> Path:
        """The cluster's own copy, for commands that must find the cluster regardless of the user's
        kubeconfig.
        """
        return self.state / "kubeconfig"

    @property
    def url(self) -> str:
        host = self.bind
        if host in ("0.0.0.0", "::"):
            host = self.advertise_address or "127.0.0.1"
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"


_DEFAULTS = ClusterConfig()


def check_cluster_name(name: str) -> str:
    if not _is_name(name):
        raise UserError(
            f"{name!r} cannot be the name of a cluster",
            (
                "use lower case letters, digits and dashes, at most 63 of them, for example "
                "--name blue"
            ),
            EXIT_USAGE,
        )
    return name


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _TAKEN


def load_config(name: str) -> ClusterConfig | None:
    """The configuration of an existing cluster, or None. A cluster that never started successfully
    has the defaults.
    """
    folder = clusters_dir() / check_cluster_name(name)
    path = folder / _COMMITTED["cluster"]
    config = _read(path, name)
    if config is not None:
        return replace(config, former_key_files=())
    return ClusterConfig(name=name) if _is_cluster(folder) else None


def load_or_default_config(name: str) -> tuple[ClusterConfig, str]:
    """Like `load_config`, but if the configuration cannot be read, returns the defaults and the
    problem.
    """
    try:
        return load_config(name) or ClusterConfig(name=name), ""
    except (UserError, OSError) as error:
        return ClusterConfig(name=name), str(error)


def load_starting_config(name: str) -> ClusterConfig | None:
    """The configuration of a start that is in progress or failed; None if there is no readable
    one.
    """
    try:
        return _read(clusters_dir() / check_cluster_name(name) / _STAGED["cluster"], name)
    except (UserError, OSError):
        return None


def _read(path: Path, name: str) -> ClusterConfig | None:
    try:
        raw: Any = json.loads(path.read_bytes())
        if not isinstance(raw, dict):
            raise ValueError("it must be a mapping")
        return replace(config_from_document(raw, path), name=name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged: {error}",
            f"repair it, or delete the cluster with: transom delete{name_option(name)}",
        ) from error


def config_from_document(raw: dict[str, Any], path: Path) -> ClusterConfig:
    """Decodes a saved configuration; `path` is for messages. Raises UserError, or ValueError,
    TypeError or AttributeError for values of the wrong type.
    """
    known = {f.name for f in fields(ClusterConfig)}
    raw = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k in known}
    raw["network"] = network_settings.load_network_settings(raw.get("network") or {})
    config = ClusterConfig(**raw)
    for name in raw:
        _check_type(name, getattr(config, name), getattr(_DEFAULTS, name))
    _check_values(config)
    if config.release not in RELEASES:
        raise UserError(
            f"{path} names the unknown release {config.release!r}",
            f"known are {', '.join(RELEASES)}; start it with the version of transom that made it, or "
            "delete it with transom delete",
        )
    return config


def _check_type(name: str, value: Any, default: Any) -> None:
    """A saved value has the type of its default."""
    if type(value) is not type(default):
        raise ValueError(f"{name} is not a {type(default).__name__}")
    if isinstance(value, tuple):
        item = int if name.endswith("_ports") else str
        if not all(type(one) is item for one in value):
            raise ValueError(f"{name} has items other than {item.__name__}")


def _check_values(config: ClusterConfig) -> None:
    if not 0 <= config.port <= _LAST_PORT:
        raise ValueError(f"port {config.port} is not a port")
    ports = config.node_ports
    if len(ports) != 2 or not 0 < ports[0] <= ports[1] <= _LAST_PORT:
        raise ValueError(f"node_ports {list(ports)} is not a range of ports")
    if config.engine not in ENGINES:
        raise ValueError(f"engine {config.engine!r} is none of {', '.join(ENGINES)}")


def make_state(config: ClusterConfig) -> None:
    """The cluster's folder, accessible only to its owner. Raises OSError, which the command line
    reports (EXIT_DISK).
    """
    make_private(config.state)


def save_config(config: ClusterConfig) -> None:
    make_state(config)
    write_atomic(config.state / _COMMITTED["cluster"], _document(config), 0o600)


def _document(config: ClusterConfig) -> bytes:
    return json.dumps(asdict(config), indent=2).encode() + b"\n"


# ---- a start ----

# The files with the options of a start, while it is in progress and after it succeeded. The
# configuration is last.
_STAGED = {
    "nodes": "starting-nodes.json",
    "scheduler": "starting-scheduler.yaml",
    "cluster": "starting.json",
}
_COMMITTED = {"nodes": "nodes.json", "scheduler": "scheduler.yaml", "cluster": "cluster.json"}


def staged_file(config: ClusterConfig, part: str) -> Path:
    return config.state / _STAGED[part]


def stage_config(config: ClusterConfig, parts: Mapping[str, bytes]) -> None:
    """Saves the options of this start and discards those of a failed one. Needs the cluster's
    lock.
    """
    for part in _STAGED:
        if part != "cluster" and part not in parts:
            staged_file(config, part).unlink(missing_ok=True)
    for part, content in parts.items():
        write_atomic(staged_file(config, part), content, 0o600, sync_name=False)
    write_atomic(staged_file(config, "cluster"), _document(config), 0o600)


def commit_config(config: ClusterConfig) -> None:
    """Makes the options of a successful start the ones that later starts use. Needs the cluster's
    lock.
    """
    for part, staged in _STAGED.items():
        with contextlib.suppress(FileNotFoundError):
            os.replace(config.state / staged, config.state / _COMMITTED[part])
    sync_directory(config.state)


def known_clusters() -> list[str]:
    """The names of all clusters of this user, including those that never became ready."""
    try:
        return sorted(
            path.name
            for path in clusters_dir().iterdir()
            if _is_name(path.name) and _is_cluster(path)
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_cluster(folder: Path) -> bool:
    """An empty folder is left over from a start that was killed immediately."""
    if any(
        (folder / name).exists() for name in (_COMMITTED["cluster"], _STAGED["cluster"], PID_FILE)
    ):
        return True
    return folder.is_dir() and not any(folder.iterdir())


def scheduler_config_file(config: ClusterConfig) -> Path:
    """The scheduler configuration file of a cluster, if it has one."""
    return config.state / _COMMITTED["scheduler"]


# ---- nodes ----


def save_nodes(config: ClusterConfig, nodes: Iterable[NodeSpec]) -> None:
    """While a cluster starts, its nodes are part of that start's options."""
    make_state(config)
    staged = staged_file(config, "nodes")
    path = staged if staged.exists() else config.state / _COMMITTED["nodes"]
    write_atomic(path, nodes_document(nodes), 0o600)


def nodes_document(nodes: Iterable[NodeSpec]) -> bytes:
    return json.dumps([asdict(node) for node in nodes], indent=1).encode() + b"\n"


def load_nodes(config: ClusterConfig) -> list[NodeSpec] | None:
    """The nodes of the last successful start; None before the first."""
    return _read_nodes(config.state / _COMMITTED["nodes"])


def load_starting_nodes(config: ClusterConfig) -> list[NodeSpec]:
    """The nodes of the start that is in progress."""
    staged = _read_nodes(staged_file(config, "nodes"))
    return (load_nodes(config) or []) if staged is None else staged


def _read_nodes(path: Path) -> list[NodeSpec] | None:
    try:
        return nodes_from_document(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged: {error}", "repair it, or remove it to start with new nodes"
        ) from error


def nodes_from_document(document: bytes) -> list[NodeSpec]:
    """Reads what `nodes_document` has written. Raises ValueError, TypeError or AttributeError."""
    known = {f.name for f in fields(NodeSpec)}

    def spec(row: Mapping[str, Any]) -> NodeSpec:
        values: dict[str, Any] = {
            k: tuple(v) if k == "taints" else v for k, v in row.items() if k in known
        }
        return NodeSpec(**values)

    return [spec(row) for row in json.loads(document)]
