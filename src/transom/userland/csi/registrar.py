"""csi-node-driver-registrar, which registers a driver with its kubelet, and livenessprobe."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping
from typing import Any, Final

from transom.kit.rpc import RpcError
from transom.userland.api import Program, ProgramContext
from transom.userland.csi.flags import parse_csi_flags, socket_path
from transom.userland.csi.volumes import volumes_of
from transom.userland.servers.base import ServerProgram
from transom.userland.servers.http import Handler, ProgramHttpRequest, ProgramHttpResponse

_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0
_REGISTRATION: Final = {"linux": "/registration", "windows": "C:\\registration"}


async def call_plugin(
    context: ProgramContext, socket: str, method: str, request: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Calls a CSI method. Raises RpcError, also when nothing listens on the socket."""
    try:
        answer = volumes_of(context).dial_socket(socket)
    except OSError as problem:
        why = f'connection error: desc = "transport: Error while dialing dial unix {socket}"'
        raise RpcError("Unavailable", why) from problem
    return await answer(method, request)


async def driver_name(context: ProgramContext, server: ServerProgram, socket: str) -> str:
    """The driver's name; waits until the driver answers."""
    wait, reported = _FIRST_WAIT, False
    while True:
        try:
            return str(
                (await call_plugin(context, socket, "/csi.v1.Identity/GetPluginInfo", {}))["name"]
            )
        except RpcError:
            if not reported:
                server.out(f"Still connecting to unix://{socket}")
                reported = True
        await context.clock.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


def csi_registrar(context: ProgramContext) -> Program:
    server, flags = ServerProgram(context), parse_csi_flags(context.argv)
    windows = context.os == "windows"
    socket = socket_path(
        flags.get("csi-address") or context.env.get("ADDRESS") or "/run/csi/socket", windows
    )
    endpoint = flags.get("kubelet-registration-path") or ""
    if not endpoint:
        server.err("kubelet-registration-path is a required parameter")
        server.exit(1)
        return server
    folder = flags.get("plugin-registration-path") or _REGISTRATION[context.os]

    async def main() -> None:
        name = await driver_name(context, server, socket)
        server.out(f'CSI driver name: "{name}"')
        path = (ntpath if windows else posixpath).join(folder, f"{name}-reg.sock")

        async def answer(method: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
            if method.endswith("/GetInfo"):
                server.out("Received GetInfo call: &InfoRequest{}")
                return {
                    "type": "CSIPlugin",
                    "name": name,
                    "endpoint": endpoint,
                    "supported_versions": ["1.0.0"],
                }
            taken, error = bool(request.get("plugin_registered")), request.get("error", "")
            status = f"&RegistrationStatus{{PluginRegistered:{str(taken).lower()},Error:{error},}}"
            server.out(f"Received NotifyRegistrationStatus call: {status}")
            if not taken:
                server.err(
                    f"Registration process failed with error: {error}, restarting "
                    "registration container."
                )
                server.later(0.0, server.exit, 1)
            return {}

        try:
            volumes_of(context).serve_socket(path, answer)
        except OSError as problem:
            server.err(f"failed to listen on socket: {path} with error: {problem}")
            server.exit(1)
            return
        server.at_end(lambda: context.files.remove(path, recursive=True))
        server.out(f"Registration Server started at: {path}")

        async def healthy(_: ProgramHttpRequest) -> ProgramHttpResponse:
            found = context.files.exists(path)
            return ProgramHttpResponse(200 if found else 404, b"ok" if found else b"")

        _serve_health(server, flags, healthy)

    server.spawn(main())
    return server


def csi_liveness(context: ProgramContext) -> Program:
    """Answers /healthz as long as the driver answers."""
    server, flags = ServerProgram(context), parse_csi_flags(context.argv)
    socket = socket_path(flags.get("csi-address") or "/run/csi/socket", context.os == "windows")

    async def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        try:
            await call_plugin(context, socket, "/csi.v1.Identity/Probe", {})
        except RpcError as problem:
            return ProgramHttpResponse(500, str(problem).encode())
        return ProgramHttpResponse(200, b"ok")

    _serve_health(server, flags, handle, usual_port=9808)
    return server


def _serve_health(
    server: ServerProgram, flags: Mapping[str, str], handle: Handler, usual_port: int = 0
) -> None:
    """Serves at `--http-endpoint`, or at `--health-port` of all addresses."""
    host, _, port = flags.get("http-endpoint", "").rpartition(":")
    number = int(port or flags.get("health-port") or usual_port)
    if not number:
        return
    try:
        server.serve(
            number, handle, address="127.0.0.1" if host == "localhost" else host.strip("[]")
        )
    except OSError as problem:
        server.err(f"failed to start http server with error: {problem}")
        server.exit(1)


def csi_waiting(context: ProgramContext) -> Program:
    """A sidecar that has nothing to do here."""
    server = ServerProgram(context)
    server.out(f"{context.image.name} is simulated: it only waits")
    return server
