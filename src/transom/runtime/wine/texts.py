"""The errors of containerd and docker when a process in a Windows container cannot start, with the
host compute service's texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from transom.runtime.api import RuntimeFailure
from transom.runtime.native.platform import CannotStart
from transom.runtime.sim.texts import DockerTexts

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


def windows_error_text(number: int) -> str:
    return _ERRORS.get(number, f"Win32 error {number:#x}.")


class WineTexts(Protocol):
    def cannot_start(self, container: str, number: int) -> CannotStart:
        """`number` is Win32's."""

    def cannot_create(self, container: str, text: str) -> CannotStart: ...
    def other_build(self, container: str, hostname: str) -> CannotStart: ...
    def no_command(self, container: str) -> RuntimeFailure: ...
    def cannot_exec(self, container: str, exec_id: str, number: int) -> RuntimeFailure: ...
    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure: ...


class _Containerd:
    def cannot_start(self, container: str, number: int) -> CannotStart:
        why = f"hcs::System::CreateProcess {container}: {windows_error_text(number)}: unknown"
        return CannotStart(
            RuntimeFailure("Unknown", f'failed to start containerd task "{container}": {why}')
        )

    def cannot_create(self, container: str, text: str) -> CannotStart:
        return CannotStart(
            RuntimeFailure("Unknown", f"failed to create containerd task: {text}: unknown")
        )

    def other_build(self, container: str, hostname: str) -> CannotStart:
        why = "The container operating system does not match the host operating system."
        return self.cannot_create(container, f"hcs::CreateComputeSystem {container}: {why}")

    def no_command(self, container: str) -> RuntimeFailure:
        return RuntimeFailure(
            "Unknown",
            (
                f'failed to generate container "{container}" spec: failed to generate spec: no '
                "command specified"
            ),
        )

    def cannot_exec(self, container: str, exec_id: str, number: int) -> RuntimeFailure:
        return self.exec_failed(
            exec_id,
            f"hcs::System::CreateProcess {container}: {windows_error_text(number)}: unknown",
        )

    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure:
        return RuntimeFailure(
            "Unknown", f'failed to exec in container: failed to start exec "{exec_id}": {text}'
        )


class _Docker:
    """In the format of the simulated docker, for any error."""

    _same: Final = DockerTexts()
    _codes: Final = {NOT_FOUND: 127, ACCESS_DENIED: 126}

    def cannot_start(self, container: str, number: int) -> CannotStart:
        broken = self._same.start_failed(container, self._call(container, number))
        return CannotStart(
            broken.failure, self._codes.get(number, broken.exit_code), broken.message
        )

    def cannot_create(self, container: str, text: str) -> CannotStart:
        broken = self._same.start_failed(container, text)
        return CannotStart(broken.failure, broken.exit_code, broken.message)

    def other_build(self, container: str, hostname: str) -> CannotStart:
        return self.cannot_create(container, self._same.other_build(container, hostname))

    def no_command(self, container: str) -> RuntimeFailure:
        return self._same.no_command(container)

    def cannot_exec(self, container: str, exec_id: str, number: int) -> RuntimeFailure:
        return self.exec_failed(exec_id, self._call(container, number))

    def exec_failed(self, exec_id: str, text: str) -> RuntimeFailure:
        return self._same.exec_failed(exec_id, text)

    @staticmethod
    def _call(container: str, number: int) -> str:
        return (
            f"container {container} encountered an error during hcsshim::System::CreateProcess: "
            f"failure in a Windows system call: {windows_error_text(number)} ({number:#x})"
        )


TEXTS: Final[Mapping[str, WineTexts]] = {"containerd": _Containerd(), "docker": _Docker()}
