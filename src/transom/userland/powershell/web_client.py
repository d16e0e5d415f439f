"""The classes of .NET that reach other machines: WebClient and TcpClient, and the request of
Invoke-WebRequest.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from transom.userland import http_client as netclient
from transom.userland.powershell.automatic import windows_powershell_version
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    to_number,
    to_text,
)


async def _download(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> str:
    answer = await _requested(evaluator, "DownloadString", arguments)
    return answer.body.decode("utf-8", "replace")


async def _download_file(
    evaluator: PowerShellSession, target: PsObject, arguments: list[Any]
) -> None:
    answer = await _requested(evaluator, "DownloadFile", arguments)
    evaluator.process.files.write(to_text(arguments[1]), answer.body)


async def _requested(
    evaluator: PowerShellSession, method: str, arguments: list[Any]
) -> netclient.Fetched:
    try:
        return await web_request(evaluator, to_text(arguments[0]))
    except PowerShellError as error:
        raise PowerShellError(
            f'Exception calling "{method}" with "{len(arguments)}" argument(s): "{error.message}"',
            "NotSpecified: (:) [], MethodInvocationException",
            "WebException",
            value=error.value,
        ) from None


async def web_request(
    evaluator: PowerShellSession,
    url: str,
    method: str = "GET",
    command: str = "Invoke-WebRequest",
    **more: Any,
) -> netclient.Fetched:
    """Raises PowerShell's errors; `command` reports them."""
    context = evaluator.process.context
    seconds = more.pop("timeout", 100)
    version = windows_powershell_version(context.platform.build)
    agent = f"Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/{version}"
    try:
        answer = await netclient.with_timeout(
            context,
            seconds,
            netclient.fetch(context, url, method, agent=agent, redirects=5, insecure=True, **more),
        )
    except socket.gaierror:
        host = netclient.split_url(url).host
        raise _web_error(command, f"The remote name could not be resolved: '{host}'") from None
    except TimeoutError:
        raise _web_error(command, "The operation has timed out.") from None
    except (OSError, ValueError, EOFError):
        raise _web_error(command, "Unable to connect to the remote server") from None
    if answer.status >= 400:
        raise _web_error(
            command,
            f"The remote server returned an error: ({answer.status}) {answer.reason}.",
            answer,
        )
    return answer


def _status_code(answer: netclient.Fetched) -> PsObject:
    """A value of the enum HttpStatusCode, by the name of its status."""
    name = "".join(answer.reason.title().split()) or str(answer.status)
    return PsObject("System.Net.HttpStatusCode", {"value__": answer.status}, name)


def _web_error(
    command: str, message: str, answer: netclient.Fetched | None = None
) -> PowerShellError:
    status = (
        PsObject(
            "System.Net.HttpWebResponse",
            {
                "StatusCode": _status_code(answer),
                "StatusDescription": answer.reason,
                "Headers": Hashtable(dict(answer.headers)),
            },
        )
        if answer
        else None
    )
    return PowerShellError(
        message,
        (f"InvalidOperation: (System.Net.HttpWebRequest:HttpWebRequest) [{command}], WebException"),
        "WebCmdletWebResponseException,"
        f"Microsoft.PowerShell.Commands.{command.replace('-', '')}Command",
        value=status,
    )


async def tcp_connect(evaluator: PowerShellSession, target: PsObject, arguments: list[Any]) -> None:
    try:
        connection = await evaluator.process.context.network.connect(
            to_text(arguments[0]), int(to_number(arguments[1]))
        )
    except OSError as problem:
        address = f"{to_text(arguments[0])}:{int(to_number(arguments[1]))}"
        why = "No connection could be made because the target machine actively refused it"
        if not isinstance(problem, ConnectionRefusedError):
            why = (
                "A connection attempt failed because the connected party did not properly respond "
                "after a period of time, or established connection failed because connected host "
                "has failed to respond"
            )
        if isinstance(problem, socket.gaierror):
            why, address = "No such host is known", ""
        raise PowerShellError(
            f'Exception calling "Connect" with "2" argument(s): "{why} {address}"',
            "NotSpecified: (:) [], MethodInvocationException",
            "SocketException",
        ) from None
    connection.close()
    target.properties["Connected"] = True


METHODS: dict[tuple[str, str], Callable[..., Any]] = {
    ("System.Net.WebClient", "downloadstring"): _download,
    ("System.Net.WebClient", "downloadfile"): _download_file,
    ("System.Net.Sockets.TcpClient", "connect"): tcp_connect,
}
