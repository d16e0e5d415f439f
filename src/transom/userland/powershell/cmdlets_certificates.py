r"""The `Cert:` drive, and the cmdlets that change certificate stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from transom.kit.lazy import lazy_import
from transom.machines.windows.certificate_stores import (
    LOCATIONS,
    NAMES,
    StoredCertificate,
    add_certificate,
    pem_certificates,
    remove_certificate,
    stored_certificates,
)
from transom.machines.windows.registry import WindowsRegistry
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.operators import matches_wildcard
from transom.userland.powershell.values import DateTime, PsObject, to_items, to_text

if TYPE_CHECKING:
    from transom.userland.windows import certificate_text
else:  # it needs packages that Wine's stand-ins do not have
    certificate_text = lazy_import("transom.userland.windows.certificate_text")

_DRIVE: Final = "cert:"
CERTIFICATE_PROVIDER: Final = r"Microsoft.PowerShell.Security\Certificate::"
_KIND: Final = "System.Security.Cryptography.X509Certificates.X509Certificate2"
_YEAR: Final = 365 * 86400.0


def is_certificate_path(path: str) -> bool:
    return path.lower().startswith(_DRIVE)


def _parts(path: str) -> list[str]:
    return [part for part in path[len(_DRIVE) :].replace("/", "\\").split("\\") if part]


def _registry(call: CmdletCall) -> WindowsRegistry:
    return call.process.context.windows.system.registry


def _location(name: str) -> str:
    return next((one for one in LOCATIONS if one.lower() == name.lower()), "")


def _store(name: str) -> str:
    return next((one for one in NAMES if one.lower() == name.lower()), "")


def _certificate(location: str, store: str, found: StoredCertificate) -> PsObject:
    fields = certificate_text.certificate_fields(found.der)
    place = rf"{location}\{store}"
    values: dict[str, Any] = {
        "Thumbprint": found.thumbprint,
        "Subject": fields.subject,
        "Issuer": fields.issuer,
        "SerialNumber": fields.serial,
        "NotBefore": DateTime(fields.not_before),
        "NotAfter": DateTime(fields.not_after),
        "HasPrivateKey": bool(found.key),
        "DnsNameList": list(fields.names),
        "FriendlyName": "",
        "RawData": list(found.der),
        "PSParentPath": CERTIFICATE_PROVIDER + place,
        "PSPath": rf"{CERTIFICATE_PROVIDER}{place}\{found.thumbprint}",
    }
    return PsObject(_KIND, values, f"[Subject]\n  {fields.subject}\n")


def _store_object(name: str) -> PsObject:
    return PsObject("System.Security.Cryptography.X509Certificates.X509Store", {"Name": name}, name)


def certificate_children(call: CmdletCall, path: str) -> list[PsObject] | None:
    """What Get-ChildItem lists; None if the path does not exist."""
    parts = _parts(path)
    if not parts:
        return [
            PsObject(
                "Microsoft.PowerShell.Commands.X509StoreLocation",
                {"Location": name, "StoreNames": ", ".join(NAMES)},
                name,
            )
            for name in ("CurrentUser", "LocalMachine")
        ]
    location = _location(parts[0])
    if len(parts) == 1:
        return [_store_object(name) for name in NAMES] if location else None
    store = _store(parts[1])
    if not location or not store:
        return None
    rows = [
        _certificate(location, store, one)
        for one in stored_certificates(_registry(call), location, store)
        if len(parts) < 3 or matches_wildcard(one.thumbprint, parts[2])
    ]
    return rows if rows or len(parts) < 3 or "*" in parts[2] else None


def certificate_items(call: CmdletCall, path: str) -> list[PsObject] | None:
    """What Get-Item returns; None if the path does not exist."""
    parts, found = _parts(path), certificate_children(call, path)
    if found is None or len(parts) != 2:
        return found
    return [_store_object(_store(parts[1]))]


def missing_certificate(call: CmdletCall, path: str) -> None:
    shown = "\\" + "\\".join(_parts(path))
    call.fail(
        f"Cannot find path '{shown}' because it does not exist.",
        f"ObjectNotFound: ({shown}:String) [{call.cmdlet.name}], ItemNotFoundException",
        "PathNotFound",
    )


def emit_certificates(call: CmdletCall, path: str, found: list[PsObject] | None) -> None:
    if found is None:
        missing_certificate(call, path)
    for item in found or ():
        call.emit(item)


def remove_certificates(call: CmdletCall, path: str) -> None:
    parts = _parts(path)
    location, store = (_location(parts[0]), _store(parts[1])) if len(parts) == 3 else ("", "")
    if not location or not store or certificate_children(call, path) is None:
        missing_certificate(call, path)
        return
    registry = _registry(call)
    for one in stored_certificates(registry, location, store):
        if matches_wildcard(one.thumbprint, parts[2]):
            remove_certificate(registry, location, store, one.thumbprint)


def _target(call: CmdletCall) -> tuple[str, str] | None:
    given = call.text("CertStoreLocation", r"Cert:\LocalMachine\My")
    parts = _parts(given) if is_certificate_path(given) else []
    location, store = (_location(parts[0]), _store(parts[1])) if len(parts) == 2 else ("", "")
    if location and store:
        return location, store
    missing_certificate(call, given)
    return None


def _import(call: CmdletCall) -> None:
    target = _target(call)
    if target is None:
        return
    path = call.text("FilePath")
    try:
        found = pem_certificates(call.process.files.read(path))
        for der in found:
            certificate_text.certificate_fields(der)
    except (OSError, ValueError) as problem:
        text = (
            "The system cannot find the file specified. 0x80070002 (WIN32: 2 ERROR_FILE_NOT_FOUND)"
        )
        call.fail(
            text if isinstance(problem, OSError) else "Cannot find the requested object.",
            "NotSpecified: (:) [Import-Certificate], Win32Exception",
            "System.ComponentModel.Win32Exception,"
            "Microsoft.CertificateServices.Commands.ImportCertificateCommand",
        )
        return
    for der in found:
        thumbprint = add_certificate(_registry(call), *target, der)
        call.emit(_certificate(*target, StoredCertificate(thumbprint, der)))


def _self_signed(call: CmdletCall) -> None:
    target = _target(call)
    if target is None:
        return
    names = tuple(to_text(name) for name in to_items(call.get("DnsName")))
    subject = call.text("Subject").removeprefix("CN=")
    names = names or ((subject,) if subject else ())
    if not names:
        call.fail(
            "Cannot validate argument on parameter 'DnsName'.",
            "InvalidData: (:) [New-SelfSignedCertificate], ParameterBindingValidationException",
            "ParameterArgumentValidationError",
        )
        return
    der, key = certificate_text.self_signed(names, call.process.context.clock.time(), _YEAR)
    thumbprint = add_certificate(_registry(call), *target, der, key)
    call.emit(_certificate(*target, StoredCertificate(thumbprint, der, key)))


def _export(call: CmdletCall) -> None:
    given = [*to_items(call.get("Cert")), *(call.input or ())]
    for one in given:
        data = one.get("RawData") if isinstance(one, PsObject) else None
        if data is None and is_certificate_path(to_text(one)):
            rows = certificate_items(call, to_text(one)) or []
            data = rows[0].get("RawData") if rows else None
        if data is None:
            missing_certificate(call, to_text(one))
            return
        path = call.text("FilePath")
        call.process.files.write(path, bytes(to_items(data)))
        call.emit(PsObject("System.IO.FileInfo", {"Name": path, "FullName": path}, path))


CMDLETS = (
    cmdlet_row("Import-Certificate", _import, "FilePath CertStoreLocation", "Confirm"),
    cmdlet_row(
        "New-SelfSignedCertificate",
        _self_signed,
        "DnsName CertStoreLocation",
        "",
        "Subject NotAfter KeyExportPolicy FriendlyName",
    ),
    cmdlet_row("Export-Certificate", _export, "Cert FilePath", "Force", "Type"),
)
