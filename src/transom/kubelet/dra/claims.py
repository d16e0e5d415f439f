"""The claims that are prepared on a node, which the kubelet also keeps in a file: a new kubelet must
release what an earlier one prepared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final

import orjson

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.objects import Object
from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file

_KIND: Final = "DRACheckpoint"
_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"
_LARGEST: Final = 4 << 20


@dataclass(slots=True)
class Device:
    pool: str
    name: str
    requests: tuple[str, ...] = ()  # empty: of all requests
    cdi_names: tuple[str, ...] = ()
    share: str = ""


@dataclass(slots=True)
class ClaimInfo:
    uid: str
    namespace: str
    name: str
    drivers: dict[str, list[Device]]  # all that allocated something, also without devices
    pods: set[str] = field(default_factory=set)
    prepared: bool = False  # by this kubelet

    def cdi_names(self, request: str) -> Iterable[str]:
        """Of one request, or of all ("")."""
        for _, device in self.devices(request):
            yield from device.cdi_names

    def devices(self, request: str) -> Iterator[tuple[str, Device]]:
        """Those of one request, or of all (""), with the names of their drivers."""
        for driver, devices in self.drivers.items():
            for device in devices:
                if not request or not device.requests or request in device.requests:
                    yield driver, device


class ClaimCache:
    """Claims by namespace and name. Raises ValueError if the file is damaged."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._claims: dict[tuple[str, str], ClaimInfo] = {}
        try:
            data = read_small_file(files, path, _LARGEST)
        except OSError:
            return
        for claim in _read_checkpoint(data):
            self._claims[claim.namespace, claim.name] = claim

    def get(self, namespace: str, name: str) -> ClaimInfo | None:
        return self._claims.get((namespace, name))

    def add(self, claim: ClaimInfo) -> None:
        self._claims[claim.namespace, claim.name] = claim

    def delete(self, claim: ClaimInfo) -> None:
        self._claims.pop((claim.namespace, claim.name), None)

    def of_pod(self, uid: str) -> list[ClaimInfo]:
        return [claim for claim in self._claims.values() if uid in claim.pods]

    def __iter__(self) -> Iterator[ClaimInfo]:
        return iter(list(self._claims.values()))

    def __len__(self) -> int:
        return len(self._claims)

    def save(self) -> None:
        """Raises OSError."""
        self._files.write(self._path, _checkpoint(self._claims.values()), 0o600)


def _checkpoint(claims: Iterable[ClaimInfo]) -> bytes:
    rows = [
        {
            "ClaimUID": claim.uid,
            "ClaimName": claim.name,
            "Namespace": claim.namespace,
            "PodUIDs": {uid: {} for uid in sorted(claim.pods)},
            "DriverState": {
                name: {"Devices": [_row(device) for device in devices] or None}
                for name, devices in sorted(claim.drivers.items())
            },
        }
        for claim in claims
    ]
    content = {"kind": _KIND, "apiVersion": _VERSION, "ClaimInfoStateList": rows}
    data = orjson.dumps(content)
    return orjson.dumps({"Data": data.decode(), "Checksum": zlib.crc32(data)})


def _row(device: Device) -> Object:
    return {
        "PoolName": device.pool,
        "DeviceName": device.name,
        "ShareID": device.share or None,
        "RequestNames": [*device.requests] or None,
        "CDIDeviceIDs": [*device.cdi_names] or None,
    }


def _read_checkpoint(data: bytes) -> Iterable[ClaimInfo]:
    try:
        found = orjson.loads(data)
        text = str(found["Data"])
        if zlib.crc32(text.encode()) != found["Checksum"]:
            raise ValueError("checkpoint is corrupted")
        rows = orjson.loads(text)["ClaimInfoStateList"] or ()
        return [_claim(row) for row in rows]
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(
            "create ResourceClaim cache: GetOrCreate() on checkpoint state: checkpoint is corrupted"
        ) from problem


def _claim(row: dict[str, Any]) -> ClaimInfo:
    drivers = {
        str(name): [_device(device) for device in state.get("Devices") or ()]
        for name, state in row["DriverState"].items()
    }
    return ClaimInfo(
        str(row["ClaimUID"]),
        str(row["Namespace"]),
        str(row["ClaimName"]),
        drivers,
        set(map(str, row["PodUIDs"])),
    )


def _device(row: dict[str, Any]) -> Device:
    return Device(
        str(row["PoolName"]),
        str(row["DeviceName"]),
        tuple(row.get("RequestNames") or ()),
        tuple(row.get("CDIDeviceIDs") or ()),
        row.get("ShareID") or "",
    )
