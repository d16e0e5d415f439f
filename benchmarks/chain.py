"""What authentication, authorization and admission add to a pod create, in microseconds of CPU.

Usage: python benchmarks/chain.py [--creates N] [--most MICROSECONDS]

One API server in this process, without sockets and disk. A service account with the role `edit`
creates pods; round by round links of the chain are taken out and put back, so that all lines come
from the same minutes of the same machine. The exit code is 1 when the whole chain costs more than
it may.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import time
from typing import Any

import orjson
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from transom.apiserver.admission.chain import AdmissionChain
from transom.apiserver.authorization.chain import Decision
from transom.apiserver.core.context import UserInfo
from transom.apiserver.server import ApiServer, ServerOptions, build_api_server
from transom.http.messages import HttpRequest, HttpResponse, PeerCertificate
from transom.kit.clock import RealClock
from transom.store.memory import MemoryStore

ROUNDS = 9
ADMIN = PeerCertificate("admin", ["system:masters"])
ACCOUNT = UserInfo(
    "system:serviceaccount:bench:robot", ("system:serviceaccounts", "system:authenticated")
)
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/bench"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "web-", "labels": {"app": "web", "tier": "front"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "registry.example/web:1.19",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                    "limits": {"cpu": "1", "memory": "128Mi"},
                },
            }
        ],
    },
}
LIMITS = {
    "metadata": {"name": "limits"},
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]},
}
HARD = {"pods": "1000000", "requests.cpu": "1000000", "limits.cpu": "1000000"}
QUOTA = {"metadata": {"name": "quota"}, "spec": {"hard": HARD}}


def allow(_user: UserInfo, _info: object) -> Decision:
    return Decision(True)


class Bench:
    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._token = b""
        self._authenticators = server.security.authenticate._authenticators
        self._authorizers = server.security.authorize._authorizers

    async def send(
        self, method: str, path: str, body: Any, peer: PeerCertificate | None = ADMIN
    ) -> Any:
        headers = {
            b"accept": b"application/json",
            b"content-type": b"application/json",
            b"user-agent": b"bench/1",
        }
        if peer is None:
            headers[b"authorization"] = self._token
        answer = self.server.handler(
            HttpRequest(method, path.encode(), path, headers, orjson.dumps(body), peer)
        )
        answer = await answer if asyncio.iscoroutine(answer) else answer
        assert isinstance(answer, HttpResponse)
        data = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data.decode()}")
        return orjson.loads(data)

    async def prepare(self) -> None:
        """A namespace as its controllers leave it, and a user who has access to it."""
        core = "/api/v1/namespaces/bench"
        await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": "bench"}})
        for name in ("default", "robot"):
            made = await self.send("POST", f"{core}/serviceaccounts", {"metadata": {"name": name}})
            about = {"name": name, "uid": made["metadata"]["uid"]}
            annotations = {
                f"kubernetes.io/service-account.{key}": value for key, value in about.items()
            }
            await self.send(
                "POST",
                f"{core}/secrets",
                {
                    "metadata": {"name": f"{name}-token", "annotations": annotations},
                    "type": "kubernetes.io/service-account-token",
                    "stringData": {"token": "t", "ca.crt": "c", "namespace": "bench"},
                },
            )
            await self.send(
                "PUT",
                f"{core}/serviceaccounts/{name}",
                {**made, "secrets": [{"name": f"{name}-token"}]},
            )
        await self.send(
            "POST",
            f"{RBAC}/rolebindings",
            {
                "metadata": {"name": "robot"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "bench"}],
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "edit",
                },
            },
        )
        token = await self.send("POST", f"{core}/serviceaccounts/robot/token", {"spec": {}})
        self._token = b"Bearer " + token["status"]["token"].encode()

    async def limit(self) -> None:
        await self.send("POST", "/api/v1/namespaces/bench/limitranges", LIMITS)
        await self.send("POST", "/api/v1/namespaces/bench/resourcequotas", QUOTA)
        quota = await self.send("GET", "/api/v1/namespaces/bench/resourcequotas/quota", None)
        quota["status"] = {"hard": HARD, "used": dict.fromkeys(HARD, "0")}
        await self.send("PUT", "/api/v1/namespaces/bench/resourcequotas/quota/status", quota)

    def chain(self, *, authentication: bool, authorization: bool, admission: bool) -> None:
        """Nothing but a benchmark takes parts out of a server, so it reaches into their private lists."""
        server, security = self.server, self.server.security
        authenticators = self._authenticators if authentication else (lambda _request: ACCOUNT,)
        security.authenticate._authenticators = authenticators
        security.authorize._authorizers = self._authorizers if authorization else (allow,)
        links = AdmissionChain(
            server.admission_plugins if admission else (), server.options.workers
        )
        server.admission._mutating, server.admission._validating = (
            links._mutating,
            links._validating,
        )

    async def creates(self, number: int) -> float:
        """Microseconds of CPU for each."""
        path, peer = "/api/v1/namespaces/bench/pods", None
        gc.collect()
        begin = time.process_time()
        for _ in range(number):
            await self.send("POST", path, POD, peer)
        return (time.process_time() - begin) / number * 1e6


LINES = {
    "no chain": {"authentication": False, "authorization": False, "admission": False},
    "authentication": {"authentication": True, "authorization": False, "admission": False},
    "authorization": {"authentication": False, "authorization": True, "admission": False},
    "admission": {"authentication": False, "authorization": False, "admission": True},
    "all three": {"authentication": True, "authorization": True, "admission": True},
}


async def measure(bench: Bench, creates: int, title: str) -> float:
    """The cost of the whole chain."""
    times: dict[str, list[float]] = {name: [] for name in LINES}
    for count in range(ROUNDS + 1):
        for name, links in LINES.items():
            bench.chain(**links)
            spent = await bench.creates(creates)
            if count:  # the first round warms up
                times[name].append(spent)

    def added(name: str) -> float:
        return statistics.median(a - b for a, b in zip(times[name], times["no chain"], strict=True))

    print(f"{title}: CPU for a pod create, median of {ROUNDS} rounds of {creates}")
    base = statistics.median(times["no chain"])
    print(f"  {'no chain':15} {base:6.0f} us")
    for name in list(LINES)[1:]:
        print(f"  {name:15} {statistics.median(times[name]):6.0f} us   {added(name):+6.0f} us")
    whole = added("all three")
    print(f"  the chain adds {whole:.0f} us, {whole / base:.0%} of what is left without it")
    return whole


async def run(creates: int) -> float:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    clock = RealClock()
    server = build_api_server(
        ServerOptions(store=MemoryStore(clock), clock=clock, service_account_key=key)
    )
    await server.start()
    bench = Bench(server)
    await bench.prepare()
    plain = await measure(bench, creates, "without limits")
    bench.chain(authentication=True, authorization=True, admission=True)
    await bench.limit()
    await measure(bench, creates, "with a LimitRange and a ResourceQuota")
    await server.stop()
    return plain


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--creates", type=int, default=300, help="pods of each line in each round")
    parser.add_argument("--most", type=float, default=150.0, help="microseconds the chain may add")
    args = parser.parse_args()
    return int(uvloop.run(run(args.creates)) > args.most)


if __name__ == "__main__":
    sys.exit(main())
