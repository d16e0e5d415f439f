"""What containers want done after their start and before their end: a command, or a page to get.

Events and limits of time are the caller's. Any answer of a server is good, as in Kubernetes 1.20.
"""

from __future__ import annotations

from transom.kubelet import httpget
from transom.kubelet.base import Env
from transom.kubelet.dialing import from_node
from transom.kubelet.httpget import BodyFailure, GetFailure
from transom.kubelet.parts import HookFailure
from transom.kubelet.podstate import describe, uid_of
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.runtime.api import RuntimeFailure

# Nobody limits a hook's request but the dialler of Go's default transport.
_DIAL_SECONDS = 30.0
_HEADERS = {"User-Agent": ("Go-http-client/1.1",), "Accept-Encoding": ("gzip",)}


class _Problem(Exception):
    """Why a handler failed, and what it had said by then."""

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


class HookRunner:
    __slots__ = ("_env",)

    def __init__(self, env: Env) -> None:
        self._env = env

    async def run(self, pod: Object, container: Object, container_id: str, handler: Object) -> None:
        """Raises HookFailure."""
        name = f"for Container {go_quote(container['name'])} in Pod {go_quote(describe(pod))} failed"
        if handler.get("exec") is not None:
            command = handler["exec"].get("command") or []
            try:
                await self._exec(container_id, command)
            except _Problem as problem:
                raise HookFailure(
                    f"Exec lifecycle hook ([{' '.join(command)}]) {name} - error: {problem}, "
                    f"message: {go_quote(problem.output)}", str(problem),
                ) from problem
        elif handler.get("httpGet") is not None:
            action = handler["httpGet"]
            try:
                await self._http_get(pod, container, action)
            except _Problem as problem:
                raise HookFailure(
                    f"Http lifecycle hook ({action.get('path') or ''}) {name} - error: {problem}, message: \"\"",
                    str(problem),
                ) from problem
        elif handler.get("sleep") is not None:  # of newer releases
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
            raise _Problem(f"command '{' '.join(command)}' exited with {result.exit_code}: {stderr}", output)

    async def _http_get(self, pod: Object, container: Object, action: Object) -> None:
        host = action.get("host") or self._pod_ip(pod)
        port = _port(action.get("port", ""), container)
        # Kubernetes puts a slash in front of the path even when it has one.
        url = httpget.make_url("http", host, port, "")._replace(target="/" + (action.get("path") or ""))
        try:
            await httpget.get(from_node(self._env), self._env.clock, url, _HEADERS, seconds=None,
                              dial_seconds=_DIAL_SECONDS)
        except GetFailure as problem:
            raise _Problem(str(problem)) from problem
        except BodyFailure:
            return  # it has answered

    def _pod_ip(self, pod: Object) -> str:
        for sandbox in self._env.runtime.sandboxes(uid_of(pod))[:1]:
            if sandbox.ips:
                return sandbox.ips[0]
        meta = pod["metadata"]
        raise _Problem(f"failed to find networking container: &{{{meta['uid']} {meta['name']} {meta['namespace']} [] [] []}}")


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
    """A handler without a command and without a page, as Go prints one."""
    action = handler.get("tcpSocket")
    if action is None:
        return "&Handler{Exec:nil,HTTPGet:nil,TCPSocket:nil,}"
    port = action.get("port", 0)
    shown = f"{{1 0 {port}}}" if isinstance(port, str) else f"{{0 {port} }}"
    return f"&Handler{{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{{Port:{shown},Host:{action.get('host') or ''},}},}}"
