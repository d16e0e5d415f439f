"""The emulated cloud provider of a cluster: its disks and file shares, which exist outside of the
nodes.

The attach/detach controller attaches and detaches disks, provisioners create and delete them,
kubelets mount what is attached to their node. A disk or share in a manifest is created on first
use: in a real cloud its owner would have created it before. Everything is stored in the folder of
the cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson

from transom.cloud import disks as answers
from transom.cloud.content import DiskContent
from transom.cloud.disks import (
    ATTACH_LIMITS,
    AWS_EBS,
    AZURE_DISK,
    CINDER,
    GCE_PD,
    CloudDisk,
    DiskAttachment,
    device_path,
)
from transom.cloud.errors import CloudError
from transom.cloud.shares import FileShare
from transom.kit.clock import Clock
from transom.kit.files import write_atomic
from transom.kit.lazy_dataclass import dataclass

log = logging.getLogger("transom.cloud")

_SAVE_SECONDS: Final = 2.0
_SLOW_SECONDS: Final = 30.0  # maximum duration of attaching or detaching in a cloud without faults
_REMEMBERED_SECONDS: Final = 300.0
_INDEX: Final = "index.json"
# Pods create disks and shares by naming them, so the amount of state that one user can create needs
# a limit.
_MAX_OBJECTS: Final = 10_000
_MAX_NAME: Final = 2048
_RESOURCES: Final = {
    plugin: f"attachable-volumes-{plugin.removeprefix('kubernetes.io/')}"
    for plugin in (AWS_EBS, AZURE_DISK, CINDER, GCE_PD)
}


@dataclass(slots=True)
class CloudOperation:
    """Attaching or detaching a disk. `since`: when it began or, if it failed, when that was."""

    verb: str
    disk: CloudDisk
    node: str
    since: float
    error: str = ""

    def document(self, now: float) -> dict[str, Any]:
        return {
            "verb": self.verb,
            "disk": self.disk.short_name,
            "node": self.node,
            "seconds": round(now - self.since),
            "error": self.error,
            "fault": self._fault(),
            "zone": self.disk.zone,
        }

    def _fault(self) -> str:
        """The option of `transom cloud set` that makes it fail."""
        if self.error == (
            self.disk.attach_error if self.verb == "attach" else self.disk.detach_error
        ):
            return f"{self.verb}-error" if self.error else ""
        return "missing" if self.disk.missing and self.verb == "attach" else ""


class CloudProvider:
    """`folder` stores everything; None: in memory only."""

    def __init__(self, clock: Clock, folder: Path | None = None) -> None:
        self._clock = clock
        self._folder = folder
        self.latency = 0.0  # seconds for attaching and detaching
        # node -> plugin -> disks, if it is not the default
        self._limits: dict[str, dict[str, int]] = {}
        self._disks: dict[str, CloudDisk] = {}
        self._shares: dict[str, FileShare] = {}
        self._exports: dict[str, DiskContent] = {}
        self._busy: set[str] = set()
        self._operations: dict[tuple[str, str, str], CloudOperation] = {}  # verb, disk, node
        self._mappings: dict[str, dict[str, str]] = {}  # node -> remote path -> user
        self._saved = b""
        self._load()

    # ---- disks ----

    def disks(self) -> Iterator[CloudDisk]:
        yield from self._disks.values()

    def disk(self, name: str) -> CloudDisk | None:
        """By the unique name of the volume."""
        return self._disks.get(name)

    def find(self, text: str) -> list[CloudDisk]:
        """By its unique name, its identity or the last part of that."""
        return [
            disk
            for disk in self._disks.values()
            if text in (disk.name, disk.identity, disk.short_name)
        ]

    def create_disk(self, name: str, size: int, zone: str = "") -> CloudDisk:
        found = self._disks.get(name)
        if found is None:
            self._check_quota(name)
            found = self._disks[name] = CloudDisk(name, self._content(name), size, zone)
        return found

    def delete_disk(self, name: str) -> None:
        """Raises CloudError if a node has it."""
        disk = self._disks.get(name)
        if disk is None:
            return
        if disk.attachments:
            node = next(iter(disk.attachments))
            raise CloudError(
                f"disk({disk.identity}) already attached to node({node}), could not be deleted",
                node,
            )
        del self._disks[name]
        disk.content.clear()

    def resize_disk(self, name: str, size: int) -> None:
        """Raises CloudError: Azure only resizes detached disks."""
        disk = self.create_disk(name, size)
        if disk.plugin == AZURE_DISK and disk.size < size and disk.attachments:
            raise CloudError(
                "azureDisk - disk resize is only supported on Unattached disk, current disk "
                "state: Attached, already attached "
                f"to {next(iter(disk.attachments))}"
            )
        disk.size = max(disk.size, size)

    async def attach(
        self, name: str, node: str, *, size: int = 0, read_only: bool = False, zone: str = ""
    ) -> str:
        """Returns the device path for the node's status. `zone` is the node's. Raises
        CloudError.
        """
        disk = self._disks.get(name) or self.create_disk(name, size or answers.USUAL_SIZE)
        if name in self._busy:
            raise CloudError(f"another operation on {disk.identity} is in progress")
        self._busy.add(name)
        try:
            async with self._operation("attach", disk, node):
                await self._attach(disk, node, read_only, zone)
        finally:
            self._busy.discard(name)
        return device_path(disk, disk.attachments[node].lun)

    async def _attach(self, disk: CloudDisk, node: str, read_only: bool, zone: str) -> None:
        await self._delay(disk)
        if disk.attach_error:
            raise CloudError(disk.attach_error)
        if disk.missing:
            raise CloudError(answers.disk_not_found(disk, node))
        if node not in disk.attachments:
            disk.attachments[node] = DiskAttachment(
                self._free_lun(disk, node, read_only, zone), read_only
            )

    def _free_lun(self, disk: CloudDisk, node: str, read_only: bool, zone: str) -> int:
        other = next(
            (
                held
                for held, found in disk.attachments.items()
                if not (found.read_only and read_only)
            ),
            "",
        )
        if other:
            raise CloudError(answers.disk_in_use(disk, node, other), other)
        if disk.zone and zone and disk.zone != zone:
            raise CloudError(answers.disk_in_other_zone(disk, node, zone))
        taken = {
            found.attachments[node].lun
            for found in self.attached_to(node)
            if found.plugin == disk.plugin
        }
        limit = self.limit(node, disk.plugin)
        if len(taken) >= limit:
            raise CloudError(answers.too_many_disks(disk, node, limit))
        return next(lun for lun in range(limit) if lun not in taken)

    async def detach(self, name: str, node: str, *, force: bool = False) -> None:
        """Raises CloudError. `force`: the node may still have it mounted; its further writes are
        lost.
        """
        disk = self._disks.get(name)
        if disk is None or node not in disk.attachments:
            return
        async with self._operation("detach", disk, node):
            await self._delay(disk)
            if disk.detach_error:
                raise CloudError(disk.detach_error)
            if force:
                disk.content.separate(self._clock.time())
            await disk.content.save_in_background()
            disk.attachments.pop(node, None)

    @asynccontextmanager
    async def _operation(self, verb: str, disk: CloudDisk, node: str) -> AsyncIterator[None]:
        """Tracks running and failed operations, for `problems`."""
        key = verb, disk.name, node
        found = self._operations[key] = CloudOperation(verb, disk, node, self._clock.time())
        try:
            yield
        except CloudError as problem:
            found.error, found.since = str(problem), self._clock.time()
            raise
        except BaseException:
            self._operations.pop(key, None)
            raise
        self._operations.pop(key, None)

    def problems(self) -> list[dict[str, Any]]:
        """Operations that failed in the last minutes, or that take long."""
        now = self._clock.time()
        for key, one in [*self._operations.items()]:
            if one.error and now - one.since > _REMEMBERED_SECONDS:
                del self._operations[key]
        return [
            one.document(now)
            for one in self._operations.values()
            if one.error or now - one.since > _SLOW_SECONDS
        ]

    async def _delay(self, disk: CloudDisk) -> None:
        seconds = self.latency if disk.latency is None else disk.latency
        if seconds > 0:
            await self._clock.sleep(seconds)

    def limit(self, node: str, plugin: str) -> int:
        return self._limits.get(node, {}).get(plugin, ATTACH_LIMITS[plugin])

    def set_limit(self, node: str, plugin: str, count: int | None) -> None:
        """The number of disks of this kind that the node supports; None for the default."""
        limits = self._limits.setdefault(node, {})
        limits.pop(plugin, None)
        if count is not None:
            limits[plugin] = count

    def reported_limits(self, node: str) -> dict[str, int]:
        """The resources by which the scheduler sees the attach limit."""
        limits = self._limits.get(node)
        return (
            {_RESOURCES[plugin]: count for plugin, count in limits.items() if plugin in _RESOURCES}
            if limits
            else {}
        )

    def attached_to(self, node: str) -> list[CloudDisk]:
        return [disk for disk in self._disks.values() if node in disk.attachments]

    def disk_number(self, disk: CloudDisk, node: str) -> int:
        """The disk number in Windows. Disk 0 is the system disk, followed by the attached ones in
        order.
        """
        order = [
            one.name
            for one in sorted(
                self.attached_to(node), key=lambda d: (d.plugin, d.attachments[node].lun)
            )
        ]
        return 1 + order.index(disk.name)

    # ---- shares ----

    def shares(self) -> Iterator[FileShare]:
        yield from self._shares.values()

    def share(self, server: str, name: str) -> FileShare:
        """`\\\\server\\name`; names of servers and shares are case-insensitive."""
        key = f"\\\\{server}\\{name}".lower()
        found = self._shares.get(key)
        if found is None:
            self._check_quota(key)
            found = self._shares[key] = FileShare(server, name, self._content(key, share=True))
        return found

    def delete_share(self, server: str, name: str) -> None:
        found = self._shares.pop(f"\\\\{server}\\{name}".lower(), None)
        if found is not None:
            found.content.clear()

    def smb_mappings(self, node: str) -> dict[str, str]:
        """The results of New-SmbGlobalMapping on a Windows node: remote path (lower case) -> user.
        All pods of the node use the credentials of the mapping. A reboot removes them
        (`forget_mappings`).
        """
        return self._mappings.setdefault(node, {})

    def forget_mappings(self, node: str) -> None:
        self._mappings.pop(node, None)

    def export(self, plugin: str, source: str) -> DiskContent:
        """An export of a storage server in the network for Linux nodes: `kubernetes.io/nfs`,
        `server:/path`.
        """
        name = f"{plugin}/{source}"
        if name not in self._exports:
            self._check_quota(name)
            self._exports[name] = self._content(name)
        return self._exports[name]

    def _check_quota(self, name: str) -> None:
        """Raises CloudError if there are too many objects, or the name is too long."""
        if len(name) > _MAX_NAME:
            raise CloudError(
                f"the name of a disk or share must be no more than {_MAX_NAME} characters"
            )
        if len(self._disks) + len(self._shares) + len(self._exports) >= _MAX_OBJECTS:
            raise CloudError(
                f"the emulated cloud has {_MAX_OBJECTS} disks and shares, the most that it "
                "can have; "
                "delete some with: transom cloud delete"
            )

    # ---- persistence ----

    def _content(self, name: str, *, share: bool = False) -> DiskContent:
        digest = hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
        return DiskContent(self._folder, digest, share=share)

    def _contents(self) -> list[DiskContent]:
        shares = [share.content for share in self._shares.values()]
        return [*(disk.content for disk in self._disks.values()), *shares, *self._exports.values()]

    def _index(self) -> bytes:
        return orjson.dumps(
            {
                "latency": self.latency,
                "limits": self._limits,
                "disks": [disk.record() for disk in self._disks.values()],
                "shares": [share.record() for share in self._shares.values()],
            },
            option=orjson.OPT_INDENT_2,
        )

    def _load(self) -> None:
        path = self._folder / _INDEX if self._folder is not None else None
        if path is None or not path.exists():
            return
        try:
            data = path.read_bytes()
            self._restore(orjson.loads(data))
            self._saved = data
        except (OSError, ValueError, KeyError, TypeError) as problem:
            # The contents still exist; the list of disks is rebuilt as they are used.
            aside = path.with_suffix(".damaged")
            log.error("%s cannot be used (%s); it is kept as %s", path, problem, aside.name)
            with suppress(OSError):
                path.replace(aside)

    def _restore(self, found: Mapping[str, Any]) -> None:
        self.latency, self._limits = found["latency"], dict(found.get("limits") or {})
        for record in found["disks"]:
            self.create_disk(record["name"], record["size"], record["zone"]).restore(record)
        for record in found["shares"]:
            share = self.share(record["server"], record["name"])
            share.size = record["size"]
            share.restore(record)

    def _new_index(self) -> bytes | None:
        """None if the file is up to date."""
        if self._folder is None or not (
            self._disks or self._shares or self._limits or self.latency or self._saved
        ):
            return None
        index = self._index()
        return index if index != self._saved else None

    def _write_index(self, index: bytes) -> None:
        assert self._folder is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._folder / _INDEX, index, 0o600)
        self._saved = index

    def save(self) -> None:
        """Saves everything now. Raises OSError."""
        if (index := self._new_index()) is not None:
            self._write_index(index)
        for content in self._contents():
            content.save()

    async def run(self) -> None:
        """Saves changes until cancelled; a power loss loses the writes of the last seconds."""
        while True:
            await self._clock.sleep(_SAVE_SECONDS)
            try:
                if (index := self._new_index()) is not None:
                    await asyncio.to_thread(self._write_index, index)
                for content in self._contents():
                    await content.save_in_background()
            except OSError as problem:
                log.error("disks of the emulated cloud cannot be saved: %s", problem)

    def close(self) -> None:
        """Called when the cluster stops, after all writes to the disks."""
        try:
            self.save()
        except OSError as problem:
            log.error("disks of the emulated cloud cannot be saved: %s", problem)


def cloud_summary(provider: CloudProvider) -> Mapping[str, Any]:
    """The output of `transom cloud list`."""
    disks = [
        {
            "name": disk.short_name,
            "id": disk.identity,
            "type": disk.plugin,
            "zone": disk.zone,
            "sizeBytes": disk.size,
            "fileSystem": disk.format,
            "attachedTo": sorted(disk.attachments),
            "faults": {
                key: value
                for key, value in (
                    ("attach-error", disk.attach_error),
                    ("detach-error", disk.detach_error),
                    ("missing", disk.missing),
                    ("latency", disk.latency),
                )
                if value not in ("", False, None)
            },
        }
        for disk in provider.disks()
    ]
    shares = [
        {
            "name": share.path,
            "sizeBytes": share.size,
            "faults": {"offline": True} if share.offline else {},
        }
        for share in provider.shares()
    ]
    return {"disks": disks, "shares": shares, "latency": provider.latency}
