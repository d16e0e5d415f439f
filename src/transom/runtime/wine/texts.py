"""What containerd says when a process in a Windows container cannot be started: the host compute service's words."""

from __future__ import annotations

from typing import Final

from transom.runtime.api import RuntimeFailure

NOT_FOUND, ACCESS_DENIED, BAD_LOGON = 2, 5, 1326
_ERRORS: Final = {
    NOT_FOUND: "The system cannot find the file specified.",
    3: "The system cannot find the path specified.",
    ACCESS_DENIED: "Access is denied.",
    8: "Not enough memory resources are available to process this command.",
    87: "The parameter is incorrect.",
    123: "The filename, directory name, or volume label syntax is incorrect.",
    193: "%1 is not a valid Win32 application.",
    206: "The filename or extension is too long.",
    216: "This version of %1 is not compatible with the version of Windows you're running.",
    267: "The directory name is invalid.",
    BAD_LOGON: "The user name or password is incorrect.",
    1455: "The paging file is too small for this operation to complete.",
}


def error(number: int) -> str:
    return _ERRORS.get(number, f"Win32 error {number:#x}.")


def cannot_start(container: str, number: int) -> RuntimeFailure:
    return RuntimeFailure(
        "Unknown",
        f'failed to start containerd task "{container}": hcs::System::CreateProcess {container}: {error(number)}: unknown',
    )


def cannot_create(text: str) -> RuntimeFailure:
    return RuntimeFailure("Unknown", f"failed to create containerd task: {text}: unknown")


def other_build(container: str) -> RuntimeFailure:
    return cannot_create(
        f"hcs::CreateComputeSystem {container}: The container operating system does not match the host operating system."
    )


def no_command(container: str) -> RuntimeFailure:
    return RuntimeFailure(
        "Unknown", f'failed to generate container "{container}" spec: failed to generate spec: no command specified'
    )


def cannot_exec(container: str, exec_id: str, number: int) -> RuntimeFailure:
    return exec_failed(exec_id, f"hcs::System::CreateProcess {container}: {error(number)}: unknown")


def exec_failed(exec_id: str, text: str) -> RuntimeFailure:
    return RuntimeFailure("Unknown", f'failed to exec in container: failed to start exec "{exec_id}": {text}')
