"""nssm.exe as a command: creates and configures services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from transom.machines.windows import nssm, services
from transom.machines.windows.nssm import PARAMETERS, NssmParameter
from transom.machines.windows.registry import Value, WindowsRegistry
from transom.machines.windows.services import ServiceError, WindowsService
from transom.userland.process import Process
from transom.userland.windows.services import manager

_USAGE: Final = (
    "NSSM: The non-sucking service manager\r\n"
    + nssm.VERSION
    + "\r\nUsage: nssm <option> [<args> ...]\r\n\r\n"
    "To install a service: nssm install <servicename> <app> [<args> ...]\r\n"
    "To show or change its parameters: nssm get|set|reset <servicename> <parameter> [<value>]\r\n"
    "To manage it: nssm start|stop|restart|status <servicename>\r\n"
    "To remove it: nssm remove <servicename> confirm\r\n"
)
_DONE: Final = "The operation completed successfully."
_STATES: Final[Mapping[services.State, str]] = {
    state: f"SERVICE_{state}" for state in services.NUMBERS
}
_START_NAMES: Final = {value: name for name, value in nssm.STARTS.items()}


class _Problem(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


async def run_nssm(process: Process) -> int:
    words = process.argv[1:]
    verb = words[0].lower() if words else ""
    if verb == "version":
        process.write(nssm.VERSION + "\r\n")
        return 0
    found = _VERBS.get(verb)
    if found is None or len(words) <= found[1]:
        process.complain(_USAGE)
        return 1
    try:
        message = found[0](process, words[1:])
        if not isinstance(message, str):
            message = await message
    except _Problem as problem:
        process.complain(str(problem))
        return problem.code
    if message:
        process.write(message + "\r\n")
    return 0


def _service(process: Process, name: str) -> WindowsService:
    try:
        return manager(process).get(name)
    except ServiceError as error:
        raise _Problem(f"Can't open service!\r\nOpenService(): {error.text}\r\n", 3) from error


def _registry(process: Process) -> WindowsRegistry:
    return process.context.windows.system.registry


# ---- existence ----


def _install(process: Process, words: Sequence[str]) -> str:
    name, application, *arguments = words
    try:
        service = manager(process).create(name, nssm.PATH, start="auto")
    except ServiceError as error:
        raise _Problem(
            f"Error creating service!\r\nCreateService(): {error.text}\r\n", 5
        ) from error
    registry = _registry(process)
    nssm.set_nssm_parameter(
        registry, service.name, PARAMETERS["application"], process.files.absolute(application)
    )
    nssm.set_nssm_parameter(
        registry, service.name, PARAMETERS["appparameters"], nssm.join_words(arguments)
    )
    nssm.set_nssm_parameter(registry, service.name, PARAMETERS["appexit"], "Restart")
    directory = nssm.get_nssm_parameter(registry, service.name, PARAMETERS["appdirectory"])
    nssm.set_nssm_parameter(registry, service.name, PARAMETERS["appdirectory"], directory)
    return f'Service "{service.name}" installed successfully!'


def _remove(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    if words[1:2] != ["confirm"]:
        raise _Problem(
            "To remove a service without confirmation: nssm remove <servicename> confirm", 100
        )
    try:
        manager(process).delete(service.name)
    except ServiceError as error:
        raise _Problem("Error deleting service!", 4) from error
    return f'Service "{service.name}" removed successfully!'


def _list(process: Process, _words: Sequence[str]) -> str:
    return "\r\n".join(
        service.name for service in manager(process).all() if nssm.is_nssm_managed(service.bin_path)
    )


# ---- parameters ----


def _parameter(process: Process, service: WindowsService, name: str) -> NssmParameter | str:
    """A parameter of nssm, or the name of a Windows service parameter."""
    own = PARAMETERS.get(name.lower())
    if own is not None:
        if not nssm.is_nssm_managed(service.bin_path):
            raise _Problem(f'Parameter "{own.name}" is only valid for services managed by NSSM!', 1)
        return own
    native = next((known for known in nssm.NATIVE if known.lower() == name.lower()), "")
    if not native:
        known = "\r\n".join(sorted((*(p.name for p in PARAMETERS.values()), *nssm.NATIVE)))
        raise _Problem(f'Invalid parameter "{name}".  Valid parameters are:\r\n{known}', 1)
    return native


def _get(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    parameter = _parameter(process, service, words[1])
    if isinstance(parameter, str):
        return _NATIVE[parameter][0](service)
    value = nssm.get_nssm_parameter(_registry(process), service.name, parameter)
    return "\r\n".join(value) if isinstance(value, tuple) else str(value)


def _set(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    parameter = _parameter(process, service, words[1])
    values = list(words[2:])
    if isinstance(parameter, str):
        change = _NATIVE[parameter][1]
        if change is None or not values:
            raise _Problem(
                f'Error setting parameter "{parameter}" for service "{service.name}"!', 6
            )
        change(process, service, values)
        manager(process).changed(service)
        return f'Set parameter "{parameter}" for service "{service.name}".'
    if parameter.kind == "exit":
        if not values:
            raise _Problem(f'Parameter "{parameter.name}" requires a subparameter!', 1)
        values = values[1:]
    if not values:
        raise _Problem(
            f'Error setting parameter "{parameter.name}" for service "{service.name}"!', 6
        )
    nssm.set_nssm_parameter(_registry(process), service.name, parameter, _value(parameter, values))
    return f'Set parameter "{parameter.name}" for service "{service.name}".'


def _value(parameter: NssmParameter, values: Sequence[str]) -> Value:
    if parameter.kind == "lines":
        if any("=" not in line for line in values):
            raise _Problem("Environment should comprise strings of the form KEY=VALUE.", 6)
        return tuple(values)
    if parameter.kind == "number":
        if not values[0].isdigit():
            raise _Problem(f'Error setting parameter "{parameter.name}"!', 6)
        return int(values[0])
    if parameter.kind == "exit" and values[0].lower() not in (
        known.lower() for known in nssm.EXITS
    ):
        raise _Problem(
            f'Invalid exit action "{values[0]}".  Valid exit actions are:\r\n'
            + "\r\n".join(nssm.EXITS),
            6,
        )
    return nssm.join_words(values) if parameter.name == "AppParameters" else " ".join(values)


def _reset(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    parameter = _parameter(process, service, words[1])
    if isinstance(parameter, str) or parameter.default is None:
        name = parameter if isinstance(parameter, str) else parameter.name
        raise _Problem(f'Parameter "{name}" has no meaningful default value!', 1)
    nssm.reset_nssm_parameter(_registry(process), service.name, parameter)
    return f'Reset parameter "{parameter.name}" for service "{service.name}" to its default.'


def _set_start(process: Process, service: WindowsService, values: Sequence[str]) -> None:
    found = nssm.STARTS.get(values[0].upper())
    if found is None:
        raise _Problem(
            f'Invalid startup type "{values[0]}".  Valid types are:\r\n' + "\r\n".join(nssm.STARTS),
            6,
        )
    service.start = found


def _set_depends(process: Process, service: WindowsService, values: Sequence[str]) -> None:
    for name in values:
        _service(process, name)
    service.depends = tuple(values)


def _set_name(process: Process, service: WindowsService, values: Sequence[str]) -> None:
    raise _Problem("Services cannot be renamed!", 6)


def _set_text(field: str) -> Callable[[Process, WindowsService, Sequence[str]], None]:
    return lambda _process, service, values: setattr(service, field, " ".join(values))


_Change = Callable[[Process, WindowsService, Sequence[str]], None]
_NATIVE: Final[Mapping[str, tuple[Callable[[WindowsService], str], _Change | None]]] = {
    "DependOnGroup": (lambda _: "", None),
    "DependOnService": (lambda service: "\r\n".join(service.depends), _set_depends),
    "Description": (lambda service: service.description, _set_text("description")),
    "DisplayName": (lambda service: service.display_name, _set_text("display_name")),
    "ImagePath": (lambda service: service.bin_path, _set_text("bin_path")),
    "ObjectName": (lambda service: service.account, _set_text("account")),
    "Name": (lambda service: service.name, _set_name),
    "Start": (lambda service: _START_NAMES[service.start], _set_start),
    "Type": (lambda _: "SERVICE_WIN32_OWN_PROCESS", None),
}


# ---- running ----


async def _start(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    try:
        await manager(process).start(service.name)
    except ServiceError as error:
        if error.code == services.TIMEOUT and nssm.is_nssm_managed(service.bin_path):
            raise _Problem(_unexpected(service, "START"), 1) from error
        raise _Problem(f"{service.name}: START: {error.text}", 1) from error
    if service.state != "RUNNING":
        raise _Problem(_unexpected(service, "START"), 1)
    return f"{service.name}: START: {_DONE}"


def _unexpected(service: WindowsService, control: str) -> str:
    return (
        f"{service.name}: Unexpected status {_STATES[service.state]} in response to {control} "
        "control."
    )


async def _stop(process: Process, words: Sequence[str]) -> str:
    service = _service(process, words[0])
    try:
        await manager(process).stop(service.name)
    except ServiceError as error:
        process.complain(f"{service.name}: STOP: {error.text}")
        if error.code == services.NOT_STARTED:
            return ""
        raise _Problem("", 1) from error
    return f"{service.name}: STOP: {_DONE}"


async def _restart(process: Process, words: Sequence[str]) -> str:
    stopped = await _stop(process, words)
    if stopped:
        process.write(stopped + "\r\n")
    return await _start(process, words)


def _status(process: Process, words: Sequence[str]) -> str:
    return _STATES[_service(process, words[0]).state]


_Verb = Callable[[Process, Sequence[str]], str | Awaitable[str]]
# With the minimum number of words.
_VERBS: Final[Mapping[str, tuple[_Verb, int]]] = {
    "install": (_install, 2),
    "remove": (_remove, 1),
    "list": (_list, 0),
    "get": (_get, 2),
    "set": (_set, 2),
    "reset": (_reset, 2),
    "unset": (_reset, 2),
    "start": (_start, 1),
    "stop": (_stop, 1),
    "restart": (_restart, 1),
    "status": (_status, 1),
}
