"""Images without a store: busybox from Debian's package, and what a test makes of it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transom.runtime.api import AuthConfig, FilesystemUsage, Image, RuntimeFailure

BUSYBOX = Path("/bin/busybox")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33:www:/var/www:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n"
_GROUP = "root:x:0:\nwww:x:33:\nextra:x:50:user,www\n"


@dataclass(frozen=True)
class FakeImage:
    id: str
    config: Mapping[str, Any]
    layers: Sequence[Path]


@dataclass
class FakeImages:
    """`Images` of a node; `add` makes one under a name."""

    folder: Path
    known: dict[str, FakeImage] = field(default_factory=dict)
    leases: dict[str, str] = field(default_factory=dict)

    def base(self) -> Path:
        layer = self.folder / "base"
        if not layer.exists():
            for name in ("bin", "etc", "root", "tmp", "proc", "sys", "dev", "var/www", "home"):
                (layer / name).mkdir(parents=True)
            (layer / "tmp").chmod(0o1777)
            (layer / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
            (layer / "bin/busybox").chmod(0o755)
            for applet in subprocess.run(
                [BUSYBOX, "--list"], capture_output=True, text=True, check=True
            ).stdout.split():
                if applet != "busybox":
                    (layer / "bin" / applet).symlink_to("busybox")
            (layer / "etc/passwd").write_text(_PASSWD)
            (layer / "etc/group").write_text(_GROUP)
        return layer

    def add(self, name: str, layers: Sequence[Path] = (), **config: Any) -> str:
        identity = f"sha256:{len(self.known):064x}"
        document = {"os": "linux", "architecture": "amd64", "config": config}
        self.known[name] = FakeImage(identity, document, [self.base(), *layers])
        return identity

    def add_windows(self, name: str, **config: Any) -> str:
        """Windows itself, for which Wine stands in."""
        identity = f"sha256:{len(self.known):064x}"
        document = {
            "os": "windows",
            "os.version": "10.0.17763.1697",
            "architecture": "amd64",
            "config": config,
        }
        self.known[name] = FakeImage(identity, document, [])
        return identity

    async def pull(self, image: str, auth: AuthConfig | None, *, any_build: bool = False) -> str:
        found = self.find(image)
        if found is None:
            raise RuntimeFailure(
                "NotFound", f'failed to pull and unpack image "{image}": not found'
            )
        return found.id

    def find(self, image: str) -> FakeImage | None:
        named = self.known.get(image.removesuffix(":latest"))
        return named or next((found for found in self.known.values() if found.id == image), None)

    def view(self, image: str) -> Image | None:
        found = self.find(image)
        if found is None:
            return None
        name = next(name for name, other in self.known.items() if other is found)
        user = str(found.config["config"].get("User") or "").partition(":")[0]
        number = int(user) if user.isdigit() else None
        return Image(
            found.id,
            (name,),
            (f"{name}@{found.id}",),
            1000,
            number,
            "" if number is not None else user,
        )

    def views(self) -> list[Image]:
        return [view for name in self.known if (view := self.view(name)) is not None]

    async def remove(self, image: str) -> None:
        self.known.pop(image, None)

    def lease(self, identity: str, owner: str, keeper: Path) -> None:
        self.leases[owner] = identity

    def release(self, owner: str) -> None:
        self.leases.pop(owner, None)

    def filesystem(self) -> FilesystemUsage:
        return FilesystemUsage(str(self.folder), 1000, 10)
