"""Lifecycle hooks (postStart, preStop): run a command or make an HTTP request.

The caller records events of failures and enforces timeouts. Any HTTP response counts as success.
"""

from __future__ import annotations

from transom.client.events import WARNING
from transom.http.goerrors import HTTP_INSTEAD_OF_TLS
from transom.kit.goquote import go_quote
from transom.kubelet import httpget
from transom.kubelet.base import KubeletContext
from transom.kubelet.dialing import from_node
from transom.kubelet.features import has_consistent_http_get
from transom.kubelet.httpget import BodyFailure, GetFailure, Headers, ProbeUrl
from transom.kubelet.interfaces import HookFailure
from transom.kubelet.podstate import format_pod, uid_of
from transom.kubelet.refs import pod_ref
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
    __slots__ = ("_consistent", "_env")

    def __init__(self, env: KubeletContext) -> None:
        config = env.config
        self._env = env
        self._consistent = has_consistent_http_get(config.release, config.feature_gates)

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
        if not self._consistent:
            port = _port(action.get("port", ""), container)
            # Kubernetes prepends a slash to the path even when it has one.
            url = httpget.make_url("http", host, port, "")._replace(
                target="/" + (action.get("path") or "")
            )
            await self._get(url, _HEADERS)
            return
        try:
            port = httpget.resolve_port(action.get("port", 0), container)
        except httpget.PortError as problem:
            raise _Problem(str(problem)) from problem
        scheme = (action.get("scheme") or "HTTP").lower()
        url = httpget.make_url(scheme, host, port, action.get("path") or "")
        headers = httpget.action_headers(self._env.config.release, action, "lifecycle")
        try:
            await self._get(url, headers)
        except _Problem as problem:
            if HTTP_INSTEAD_OF_TLS not in str(problem):
                raise
            await self._get_without_tls(pod, url, headers, problem)

    async def _get_without_tls(
        self, pod: Object, url: ProbeUrl, headers: Headers, problem: _Problem
    ) -> None:
        """The server of an HTTPS hook speaks HTTP. Raises `problem` if it does not answer."""
        public = {name: values for name, values in headers.items() if name != "Authorization"}
        try:
            await self._get(url._replace(scheme="http"), public)
        except _Problem:
            raise problem from None
        self._env.events.event(
            pod_ref(pod),
            WARNING,
            "LifecycleHTTPFallback",
            f"request to HTTPS lifecycle hook {url.authority} got HTTP response, "
            "retry with HTTP succeeded",
        )

    async def _get(self, url: ProbeUrl, headers: Headers) -> None:
        try:
            await httpget.http_get(
                from_node(self._env),
                self._env.clock,
                url,
                headers,
                seconds=None,
                dial_seconds=_DIAL_SECONDS,
                host=(headers.get("Host") or ("",))[0],
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
