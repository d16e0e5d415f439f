"""certutil -store, -addstore, -delstore and -dump."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_import
from transom.machines.windows.certificate_stores import (
    NAMES,
    add_certificate,
    pem_certificates,
    remove_certificate,
    stored_certificates,
    thumbprint_of,
)
from transom.userland.process import Process

if TYPE_CHECKING:
    from transom.userland.windows import certificate_text
else:  # it needs packages that Wine's stand-ins do not have
    certificate_text = lazy_import("transom.userland.windows.certificate_text")

VERBS: Final = ("store", "addstore", "delstore", "dump")
_NOT_FOUND, _DENIED = 0x80070002, 0x80070005
_TEXTS: Final = {
    _NOT_FOUND: ("WIN32: 2 ERROR_FILE_NOT_FOUND", "The system cannot find the file specified."),
    _DENIED: ("WIN32: 5 ERROR_ACCESS_DENIED", "Access is denied."),
}
_TITLES: Final = {
    "My": "Personal",
    "Root": "Trusted Root Certification Authorities",
    "CA": "Intermediate Certification Authorities",
}


def _failed(process: Process, verb: str, code: int) -> int:
    name, text = _TEXTS[code]
    process.complain(f"CertUtil: -{verb} command FAILED: {code:#x} ({name})\r\nCertUtil: {text}")
    return code - (1 << 32)


def _moment(moment: float) -> str:
    return time.strftime("%-m/%-d/%Y %-I:%M %p", time.gmtime(moment))


def _describe(process: Process, number: int, der: bytes) -> None:
    fields = certificate_text.certificate_fields(der)
    process.print_line(
        f"================ Certificate {number} ================\r\n"
        f"Serial Number: {fields.serial.lower()}\r\nIssuer: {fields.issuer}\r\n"
        f" NotBefore: {_moment(fields.not_before)}\r\n NotAfter: {_moment(fields.not_after)}\r\n"
        f"Subject: {fields.subject}"
    )
    if fields.subject == fields.issuer:
        process.print_line(
            "Signature matches Public Key\r\nRoot Certificate: Subject matches Issuer"
        )
    else:
        process.print_line("Non-root Certificate")
    process.print_line(f"Cert Hash(sha1): {thumbprint_of(der).lower()}\r\n")


def certificate_store_verb(process: Process, verb: str, words: list[str]) -> int:
    operands = [word for word in words if not word.startswith(("-", "/"))]
    if verb == "dump":
        return _dump(process, operands)
    wanted = operands[0] if operands else "CA"
    store = next((one for one in NAMES if one.lower() == wanted.lower()), "")
    if not store:
        return _failed(process, verb, _NOT_FOUND)
    title = _TITLES.get(store, store)
    process.print_line(f'{store if store != "Root" else "root"} "{title}"')
    registry = process.context.windows.system.registry
    if verb == "store":
        for number, one in enumerate(stored_certificates(registry, "LocalMachine", store)):
            _describe(process, number, one.der)
    elif not process.context.windows.account.administrator:
        return _failed(process, verb, _DENIED)
    elif verb == "addstore":
        code = _add(process, store, operands[1:])
        if code:
            return code
    else:
        _delete(process, store, operands[1:])
    process.print_line(f"CertUtil: -{verb} command completed successfully.")
    return 0


def _read(process: Process, operands: list[str]) -> list[bytes] | None:
    try:
        found = pem_certificates(process.files.read(operands[0] if operands else ""))
    except OSError:
        return None
    return found or None


def _dump(process: Process, operands: list[str]) -> int:
    found = _read(process, operands)
    if found is None:
        return _failed(process, "dump", _NOT_FOUND)
    for number, der in enumerate(found):
        _describe(process, number, der)
    process.print_line("CertUtil: -dump command completed successfully.")
    return 0


def _add(process: Process, store: str, operands: list[str]) -> int:
    found = _read(process, operands)
    if found is None:
        return _failed(process, "addstore", _NOT_FOUND)
    registry = process.context.windows.system.registry
    for der in found:
        subject = certificate_text.certificate_fields(der).subject
        add_certificate(registry, "LocalMachine", store, der)
        process.print_line(f'Certificate "{subject}" added to store.')
    return 0


def _delete(process: Process, store: str, operands: list[str]) -> None:
    registry = process.context.windows.system.registry
    wanted = operands[0].upper() if operands else ""
    for number, one in enumerate(stored_certificates(registry, "LocalMachine", store)):
        subject = certificate_text.certificate_fields(one.der).subject
        if wanted in (one.thumbprint, str(number)) or (wanted and wanted in subject.upper()):
            process.print_line(f"Deleting Certificate {number}")
            remove_certificate(registry, "LocalMachine", store, one.thumbprint)
