"""What lint predicts of a manifest, and what a node does with it: the table `predictions/*.yaml`,
and nodes to try it on.

An entry is for one limit. It says what a plain pod gets that meets the limit:

- `pod`, `container`, `metadata`: fields of its spec, of its container, of its metadata; null takes
  one away
- `both`: the same three, for the pod that does not meet the limit as well; `plain`: for that one
  alone
- `nodes`: the target, where it is not build 17763 with 1.20, docker and l2bridge: {release, build,
  revision, runtime, features}
- `objects`: further objects, for lint and for the cluster

and what is seen of it:

- `also`: what else lint reports
- `reason`, `says`: of the event or state that reports a failure, where the record leaves it open
- `asks`: commands (of cmd) whose answers are the same with the field and without it
- `sees`: a function of test_predictions_of_pods.py that looks closer
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.apiserver.harness import Api
from tests.inline_workers import InlineWorkers
from tests.kubelet.conftest import NODE, Node
from tests.lint.helpers import report

from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ServerOptions, build_api_server
from transom.apiserver.serving.inprocess import InProcessClient
from transom.client.resources import EVENTS, NODES
from transom.controllers.base import ControllerSettings
from transom.controllers.manager import CONTROLLERS, ControllerManager
from transom.runtime.sim.catalogue import catalogue_with
from transom.scheduler.config import KubeSchedulerConfiguration
from transom.scheduler.scheduler import USER, Scheduler
from transom.store.memory import MemoryStore
from transom.windows.builds import BUILDS
from transom.windows.limits import LIMITS
from transom.windows.podchecks import seen_in_objects
from transom.windows.policy import WarningPolicy
from transom.windows.records import WindowsLimit
from transom.windows.releases import parse_release_version
from transom.windows.target_nodes import target_nodes_from_options

Object = dict[str, Any]
_KEY: Final = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
WINDOWS: Final = {"kubernetes.io/os": "windows"}
_FOLDER: Final = Path(__file__).with_name("predictions")
USUAL: Final = {
    "release": "1.20",
    "build": 17763,
    "runtime": "docker",
    "revision": None,
    "network": "l2bridge",
    "features": (),
}
_OLDEST_API: Final = (1, 20)  # older kubelets talk to this one
# Images of our own: one of each kind that is not published.
IMAGES: Final = catalogue_with(
    """
images:
- {name: "example.com/single:1803", windows: [17134], manifest: single, userland: servercore}
- {name: "example.com/single:ltsc2019", windows: [17763], manifest: single, userland: servercore}
- {name: example.com/named, windows: [17763], userland: servercore, options: {users: "web,batch"}, user: web}
- {name: "example.com/app:1-alpine", linux: [amd64], manifest: single}
""",
    "own",
)


@dataclass(frozen=True)
class Prediction:
    id: str
    entry: Mapping[str, Any]

    @property
    def limit(self) -> WindowsLimit:
        return LIMITS[self.id]

    @property
    def nodes(self) -> dict[str, Any]:
        return {**USUAL, **(self.entry.get("nodes") or {})}

    @property
    def group(self) -> str:
        """Those of one group are tried on one node."""
        return json.dumps(self.nodes, sort_keys=True)

    def pod(self, *, meets: bool) -> Object:
        """Named after the limit, with "-not" where it is not met."""
        entry, nodes = self.entry, self.nodes
        made: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name(meets=meets)},
            "spec": {
                "nodeSelector": WINDOWS,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "c",
                        "image": f"mcr.microsoft.com/windows/servercore:{BUILDS[nodes['build']].tags[0]}",
                        "command": ["ping", "-t", "localhost"],
                        "resources": {"limits": {"memory": "16Mi"}},
                    }
                ],
            },
        }
        for layer in (entry.get("both") or {}, entry if meets else entry.get("plain") or {}):
            made["spec"]["containers"][0] = _merged(
                made["spec"]["containers"][0], layer.get("container") or {}
            )
            made["spec"] = _merged(made["spec"], layer.get("pod") or {})
            made["metadata"] = _merged(made["metadata"], layer.get("metadata") or {})
        return made

    def name(self, *, meets: bool = True) -> str:
        return self.id.lower() + ("" if meets else "-not")

    def objects(self) -> list[Object]:
        return list(self.entry.get("objects") or ())

    def found(self, *, meets: bool) -> list[str]:
        """What lint says of the pod and its objects."""
        return linted(self.nodes, *self.objects(), self.pod(meets=meets))

    @property
    def foreseen(self) -> list[str]:
        return sorted({self.id, *(self.entry.get("also") or ())})

    @property
    def warned(self) -> bool:
        """Whether the client that creates the pod is warned."""
        limit = self.limit
        recorded = limit.severity in ("error", "warning") or (
            limit.severity == "info" and limit.effect in ("ignored", "rejected")
        )
        return seen_in_objects(limit) and recorded

    @property
    def reason(self) -> str:
        return str(self.entry.get("reason") or self.limit.reason)

    @property
    def words(self) -> re.Pattern[str]:
        """The record's message, with anything for its {names}."""
        parts = re.split(r"\{\w+\}", str(self.entry.get("says") or self.limit.message))
        return re.compile(".*?".join(map(re.escape, parts)), re.DOTALL)


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    found = {key: _merged(below.get(key), value) for key, value in above.items()}
    return {key: value for key, value in {**below, **found}.items() if value is not None}


def linted(nodes: Mapping[str, Any], *objects: Object) -> list[str]:
    """What lint says of objects for such nodes, by id."""
    given = {key: value for key, value in nodes.items() if key != "revision"}
    target_nodes = target_nodes_from_options(
        **{**given, "release": parse_release_version(nodes["release"])}
    )
    target_nodes = replace(
        target_nodes,
        nodes=tuple(
            replace(node, target=node.target._replace(revision=nodes["revision"]))
            for node in target_nodes.nodes
        ),
    )
    return sorted(
        {
            finding.id
            for finding in report(yaml.safe_dump_all(objects), target_nodes=target_nodes).findings
        }
    )


def predictions() -> dict[str, Prediction]:
    found: dict[str, Prediction] = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        for id, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            assert id not in found, f"{id} is there twice"
            found[id] = Prediction(id, entry)
    return found


class TryNode(Node):
    """A node of a cluster with a scheduler, whose API server warns of what Windows cannot do."""

    def __init__(self, nodes: Mapping[str, Any], controllers: Sequence[str] = ()) -> None:
        revision = nodes["revision"]
        made = BUILDS[nodes["build"]]
        super().__init__(
            "windows",
            nodes["runtime"],
            machine={"build": replace(made, ubr=revision) if revision else made},
            runtime={"catalogue": IMAGES},
            version=f"v{nodes['release']}.15",
            max_pods=250,
            event_record_qps=0.0,
            registry_pull_qps=0.0,
            feature_gates={name: True for name in nodes["features"] if name[0].isupper()},
        )
        release = max(parse_release_version(nodes["release"]), _OLDEST_API)
        self.api = build_api_server(
            ServerOptions(
                store=MemoryStore(self.clock),
                workers=InlineWorkers(),
                clock=self.clock,
                rng=self.rng,
                release=f"{release[0]}.{release[1]}",
                windows=WarningPolicy(),
                service_account_key=_KEY,
            )
        )
        self.client = InProcessClient(
            self.api, UserInfo("admin", ("system:masters", "system:authenticated"))
        )
        self.http = Api(self.api, self.clock)
        self._controller_names = controllers
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await super().start()
        # What the node lifecycle controller does when a node is ready.
        await self.client.patch(NODES, "", NODE, {"spec": {"taints": []}})
        client = InProcessClient(
            self.api, UserInfo(USER, ("system:authenticated",)), user_agent="kube-scheduler"
        )
        self._loops.append(
            asyncio.create_task(
                Scheduler(client, self.clock, random.Random(1), KubeSchedulerConfiguration()).run()
            )
        )
        if self._controller_names:
            manager = ControllerManager(
                lambda _: self.client,
                self.clock,
                self.rng,
                ControllerSettings(cloud=self.cloud),
                controllers=self._controller_names,
                table=CONTROLLERS,
            )
            self._loops.append(asyncio.create_task(manager.run()))
        await self.settle(1)

    async def stop(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await super().stop()

    async def taint(self, key: str, value: str) -> None:
        await self.client.patch(
            NODES,
            "",
            NODE,
            {"spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}},
        )
        await self.settle(1)

    async def put(self, obj: Object) -> tuple[int, str, list[str]]:
        """Status, message of a refusal, and ids of the limits in the warnings."""
        plural = _PLURALS[obj["kind"]]
        group = (
            f"apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else f"api/{obj['apiVersion']}"
        )
        place = "" if obj["kind"] in _OF_THE_CLUSTER else "namespaces/default/"
        answer = await self.http.send("POST", f"/{group}/{place}{plural}", obj)
        given = [value.decode() for name, value in answer.headers if name == b"Warning"]
        body = json.loads(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
        ids = [text.removeprefix('299 - "').partition(":")[0] for text in given]
        return answer.status, str(body.get("message", "")), ids

    async def about(self, name: str) -> Iterator[tuple[str, str, str]]:
        """The events of a pod: type, reason, message."""
        found = (
            await self.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
        ).items
        return ((event["type"], event["reason"], event["message"]) for event in found)


_PLURALS: Final = {
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "RuntimeClass": "runtimeclasses",
    "CSIDriver": "csidrivers",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "DaemonSet": "daemonsets",
}
_OF_THE_CLUSTER: Final = ("RuntimeClass", "CSIDriver", "PersistentVolume")


@asynccontextmanager
async def on_node(
    nodes: Mapping[str, Any], controllers: Sequence[str] = ()
) -> AsyncIterator[TryNode]:
    made = TryNode(nodes, controllers)
    async with asyncio.timeout(120):
        await made.start()
        try:
            yield made
        finally:
            await made.stop()
