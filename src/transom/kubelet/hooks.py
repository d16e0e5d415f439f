"""Lifecycle hooks (postStart, preStop): run a command or make an HTTP request.

The caller records events and enforces timeouts. Any HTTP response counts as success, as in
Kubernetes 1.20.
"""

from __future__ import annotations

from transom.kit.goquote import go_quote
from transom.kubelet import httpget
from transom.kubelet.base import KubeletContext
from transom.kubelet.dialing import from_node
from transom.kubelet.httpget import BodyFailure, GetFailure
from transom.kubelet.parts import HookFailure
from transom.kubelet.podstate import format_pod, uid_of
from transom.machinery.objects import Object
from transom.runtime.api import RuntimeFailure

# A hook's request has no limit other than the dial timeout of Go's default transport.
_DIAL_SECONDS = 30.0
_HEADERS = {"User-Agent": ("Go-http-client/1.1",), "Accept-Encoding": ("gzip",)}


class _Problem(Exception):
    """Why a handler failed, and its output up to then."""

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


class HookRunner:
    __slots__ = ("_env",)

    def __init__(self, env: KubeletContext) -> None:
        self._env = env

    async def run(self, pod: Object, container: Object, container_id: str, handler: Object) -> None:
        """Raises HookFailure."""
        name = (
            f"for Container {go_quote(container['name'])} in Pod {go_quote(format_pod(pod))} failed"
        )
        if handler.get("exec") is not None:
            command = handler["exec"].get("command") or []
            try:
                await self._exec(container_id, command)
            except _Problem as problem:
                raise HookFailure(
                    f"Exec lifecycle hook ([{' '.join(command)}]) {name} - error: {problem}, "
                    f"message: {go_quote(problem.output)}",
                    str(problem),
                ) from problem
        elif handler.get("httpGet") is not None:
            action = handler["httpGet"]
            try:
                await self._http_get(pod, container, action)
            except _Problem as problem:
                raise HookFailure(
                    (
                        f"Http lifecycle hook ({action.get('path') or ''}) {name} - error: "
                        f'{problem}, message: ""'
                    ),
                    str(problem),
                ) from problem
        elif handler.get("sleep") is not None:  # only in newer releases
            await self._env.clock.sleep(float(handler["sleep"].get("seconds") or 0))
        else:
            text = f"invalid handler: {_go_text(handler)}"
            raise HookFailure(f"Cannot run handler: {text}", text)

    async def _exec(self, container_id: str, command: list[str]) -> None:
        try:
            result = await self._env.runtime.exec_sync(container_id, command)
        except RuntimeFailure as problem:
            raise _Problem(str(problem)) from problem
        if result.exit_code:
            stderr = result.stderr.decode(errors="replace")
            output = (result.stdout + result.stderr).decode(errors="replace")
            raise _Problem(
                f"command '{' '.join(command)}' exited with {result.exit_code}: {stderr}", output
            )

    async def _http_get(self, pod: Object, container: Object, action: Object) -> None:
        host = action.get("host") or self._pod_ip(pod)
        port = _port(action.get("port", ""), container)
        # Kubernetes prepends a slash to the path even when it has one.
        url = httpget.make_url("http", host, port, "")._replace(
            target="/" + (action.get("path") or "")
        )
        try:
            await httpget.http_get(
                from_node(self._env),
                self._env.clock,
                url,
                _HEADERS,
                seconds=None,
                dial_seconds=_DIAL_SECONDS,
                texts=self._env.os.network_texts,
            )
        except GetFailure as problem:
            raise _Problem(str(problem)) from problem
        except BodyFailure:
            return  # any response will do

    def _pod_ip(self, pod: Object) -> str:
        for sandbox in self._env.runtime.sandboxes(uid_of(pod))[:1]:
            if sandbox.ips:
                return sandbox.ips[0]
        meta = pod["metadata"]
        raise _Problem(
            f"failed to find networking container: &{{{meta['uid']} {meta['name']} "
            f"{meta['namespace']} [] [] []}}"
        )


def _port(port: int | str, container: Object) -> int:
    if isinstance(port, int):
        return port
    if not port:
        return 80
    try:
        return int(port)
    except ValueError:
        for known in container.get("ports") or ():
            if known.get("name") == port:
                return int(known["containerPort"])
    raise _Problem(f"couldn't find port: {{1 0 {port}}} in {container['name']}")


def _go_text(handler: Object) -> str:
    """A handler with neither exec nor httpGet, as Go prints one."""
    action = handler.get("tcpSocket")
    if action is None:
        return "&Handler{Exec:nil,HTTPGet:nil,TCPSocket:nil,}"
    port = action.get("port", 0)
    shown = f"{{1 0 {port}}}" if isinstance(port, str) else f"{{0 {port} }}"
    return f"&Handler{{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{{Port:{shown},Host:{action.get('host') or ''},}},}}"
