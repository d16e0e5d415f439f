"""A cluster for the duration of a test: its options, and the process that serves it
(`python -m transom.cluster.temporary OPTIONS FOLDER`).

The process writes its progress to standard output, one JSON object in a line, and stops when its
standard input is closed. It then removes the folder: a test run that is killed leaves nothing
behind. It is not part of `transom.testing`, because it must not import what only tests need.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from transom.cluster.options import NodeOptions, TemporaryOptions, UpOptions
from transom.kit.garbage import bound_collections
from transom.kit.lazy import lazy_import, load_modules
from transom.kit.lazy_dataclass import dataclass
from transom.kit.user_errors import UserError

if TYPE_CHECKING:
    from transom.cluster import lifecycle
else:
    lifecycle = lazy_import("transom.cluster.lifecycle")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Without `linux` and `windows`, the cluster has the nodes of `transom up`. With `nodes=False`
    it has a control plane only.
    """

    release: str | None = None
    linux: int | None = None
    windows: int | None = None
    build: int | None = None
    taint_windows: bool = False
    nodes: bool = True
    feature_gates: tuple[str, ...] = ()
    runtime_config: tuple[str, ...] = ()
    config: str = ""  # a cluster file, as for `transom up --config`
    virtual_time: bool = False  # the time can be advanced
    in_process: bool = False  # in a thread of this process instead of a child process

    def dump(self) -> str:
        return json.dumps(asdict(self))

    def up_options(self, folder: Path) -> UpOptions:
        """A cluster with all its files in this folder. Its name, and so the addresses of its load
        balancers, differ from those of others.
        """
        return UpOptions(
            name=f"test-{secrets.token_hex(4)}",
            release=self.release,
            nodes=self.nodes,
            kubeconfig=kubeconfig_file(folder),
            feature_gates=self.feature_gates or None,
            runtime_config=self.runtime_config or None,
            temporary=TemporaryOptions(
                home=str(folder), in_memory=True, virtual_time=self.virtual_time
            ),
            machines=NodeOptions(
                linux=self.linux,
                windows=self.windows,
                build=(self.build, 0) if self.build is not None else None,
                taint_windows=self.taint_windows,
                file=Path(self.config) if self.config else None,
            ),
        )


def kubeconfig_file(folder: Path) -> Path:
    return folder / "kubeconfig"


def _load_options(text: str) -> ClusterOptions:
    values = json.loads(text)
    for name in ("feature_gates", "runtime_config"):
        values[name] = tuple(values[name])
    return ClusterOptions(**values)


def main() -> int:
    options = _load_options(sys.argv[1])
    bound_collections()
    load_modules(lifecycle)
    orphaned = threading.Event()
    threading.Thread(target=_stop_with_parent, args=(orphaned,), daemon=True).start()
    try:
        lifecycle.serve_in_foreground(
            options.up_options(Path(sys.argv[2])),
            lambda text: _report({"progress": text}),
            on_ready=lambda: _report({"ready": True}),
        )
    except UserError as problem:
        _report({"error": problem.message, "hint": problem.hint})
        return problem.code
    finally:
        if orphaned.is_set():
            shutil.rmtree(sys.argv[2], ignore_errors=True)
    return 0


def _report(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201


def _stop_with_parent(orphaned: threading.Event) -> None:
    """The parent closes its end of the pipe to stop the cluster; when it is killed, the kernel does."""
    os.read(sys.stdin.fileno(), 1)
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
