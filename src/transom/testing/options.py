"""The options of a test cluster, as values that can be sent to the process that runs it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from transom.cluster.options import NodeOptions, UpOptions

CLUSTER_NAME = "test"  # each test cluster has a state directory of its own


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

    def dump(self) -> str:
        return json.dumps(asdict(self))

    def up_options(self, kubeconfig: Path) -> UpOptions:
        return UpOptions(
            name=CLUSTER_NAME,
            release=self.release,
            nodes=self.nodes,
            kubeconfig=kubeconfig,
            feature_gates=self.feature_gates or None,
            runtime_config=self.runtime_config or None,
            machines=NodeOptions(
                linux=self.linux,
                windows=self.windows,
                build=(self.build, 0) if self.build is not None else None,
                taint_windows=self.taint_windows,
                file=Path(self.config) if self.config else None,
            ),
        )


def load_cluster_options(text: str) -> ClusterOptions:
    values = json.loads(text)
    for name in ("feature_gates", "runtime_config"):
        values[name] = tuple(values[name])
    return ClusterOptions(**values)
