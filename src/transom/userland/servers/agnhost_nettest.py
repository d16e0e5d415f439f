"""agnhost's nettest: servers that find each other through a service, and count their contacts."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

from transom.userland import http_client as netclient
from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.servers import gomux
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)
from transom.userland.servers.simple import as_json, flag

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_ROUNDS = 15
_LOG_LINES = 500


def nettest(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    server.on_signal = server.as_go
    delay = float(flag(context, "delay-shutdown", "0"))
    if delay > 0:
        server.on_signal = partial(_slowly, server, delay)
    port = int(flag(context, "port", "8080"))
    tester = _Tester(server)
    try:
        server.serve(port, gomux.served_file(tester.answer))
    except OSError as error:
        server.go_log(f"listen tcp :{port}: bind: {why_not(error)}")
        server.exit(1)
        return server
    server.spawn(tester.contact_others())
    return server


def _slowly(server: ServerProgram, delay: float, name: str) -> bool:
    if name != "SIGTERM":
        return server.as_go(name)
    server.go_log(f"Sleeping {delay:g} seconds before exit ...")
    server.later(delay, server.exit, 0)
    return True


class _Tester:
    def __init__(self, server: ServerProgram) -> None:
        self.server = server
        self.context = context = server.context
        self.peers = int(flag(context, "peers", "8"))
        self.service, self.namespace = (
            flag(context, "service", "nettest"),
            flag(context, "namespace", "default"),
        )
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.errors: list[str] = []
        self.log: list[str] = []
        self.contacting = True

    def write_log(self, line: str) -> None:
        self.log.append(line)
        del self.log[:-_LOG_LINES]

    def answer(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        match request.path:
            case "/quit":
                self.server.exit(0)
                return ProgramHttpResponse(200)
            case "/read":
                return gomux.written(self._state())
            case "/write":
                return self._write(request.body)
            case "/status":
                return gomux.written(self._status())
        return program_text_response("404 page not found\n", 404)

    def _state(self) -> str:
        state = {
            "Hostname": self.context.network.hostname,
            "Sent": dict(sorted(self.sent.items())) or None,
            "Received": dict(sorted(self.received.items())) or None,
            "Errors": self.errors or None,
            "Log": self.log or None,
            "StillContactingPeers": self.contacting,
        }
        return json.dumps(state, indent="\t", ensure_ascii=False)

    def _write(self, body: bytes) -> ProgramHttpResponse:
        source = ""
        try:
            source = json.loads(body).get("Source", "")
        except (ValueError, AttributeError) as error:
            self.errors.append(str(error))
        if source:
            self.received[source] += 1
        else:
            self.errors.append(f"{self.context.network.hostname}: Got request with no source")
        return gomux.written(as_json({"Hostname": self.context.network.hostname}) + "\n")

    def _status(self) -> str:
        if len(self.sent) >= self.peers and len(self.received) >= self.peers:
            return "pass"
        if self.contacting:
            return "running"
        self.write_log(
            f"Declaring failure for {self.namespace}/{self.service} with {len(self.sent)} "
            f"sent and {len(self.received)} "
            f"received and {self.peers} peers"
        )
        return "fail"

    async def contact_others(self) -> None:
        clock = self.context.clock
        pause, patience = max(5.0, self.peers // 10), max(300.0, self.peers)
        end = clock.monotonic() + patience
        while clock.monotonic() < end and len(found := await self._endpoints()) < self.peers:
            self.write_log(
                f"{self.namespace}/{self.service} has {len(found)} endpoints "
                f"([{' '.join(found)}]), which is less than "
                f"{self.peers} as expected. Waiting for all endpoints to come up."
            )
            await clock.sleep(pause)
        for _ in range(_ROUNDS):
            for url in await self._endpoints():
                self.write_log(f"Attempting to contact {url}")
                await self._contact(url)
            await clock.sleep(pause)
        self.contacting = False

    async def _endpoints(self) -> list[str]:
        context, files = self.context, FileView(self.context, "/")
        host, port = (
            context.env.get("KUBERNETES_SERVICE_HOST", ""),
            context.env.get("KUBERNETES_SERVICE_PORT", "443"),
        )
        url = f"https://{host}:{port}/api/v1/namespaces/{self.namespace}/endpoints/{self.service}"
        try:
            headers = [("Authorization", f"Bearer {files.text(f'{_ACCOUNT}/token')}")]
            answer = await netclient.fetch(
                context, url, headers=headers, ca=files.read(f"{_ACCOUNT}/ca.crt")
            )
            found = json.loads(answer.body)
        except (OSError, ValueError) as error:
            self.write_log(
                f"Unable to read the endpoints for {self.namespace}/{self.service}: {error}."
            )
            return []
        if answer.status != 200:
            self.write_log(
                f"Unable to read the endpoints for {self.namespace}/{self.service}: "
                f"{found.get('message', '')}."
            )
            return []
        return sorted(
            f"http://[{address['ip']}]:{port['port']}"
            if ":" in address["ip"]
            else f"http://{address['ip']}:{port['port']}"
            for subset in found.get("subsets") or ()
            for address in subset.get("addresses") or ()
            for port in subset.get("ports") or ()
        )

    async def _contact(self, url: str) -> None:
        body = as_json({"Source": self.context.network.hostname, "Dest": url}).encode()
        try:
            answer = await netclient.fetch(
                self.context, f"{url}/write", "POST", (("Content-Type", "application/json"),), body
            )
            self.sent[json.loads(answer.body)["Hostname"]] += 1
        except OSError as error:
            self.write_log(f'Warning: unable to contact the endpoint "{url}": {error}')
        except (ValueError, KeyError) as error:
            self.write_log(f"Warning: unable to unmarshal response from '{url}': '{error}'")
