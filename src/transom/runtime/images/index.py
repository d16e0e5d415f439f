"""Maps image names to images per node platform. One small file, replaced atomically; many processes
read and change it.

A name may refer to one image for Linux nodes and another for each build of Windows. A pulled image
applies to nodes with the same platform as the one that pulled it; an image that a user has loaded
(`local`) applies to every node that it suits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from transom.kit.files import write_atomic
from transom.kit.lazy_dataclass import dataclass
from transom.runtime.images import locks
from transom.runtime.images.model import ImageError
from transom.runtime.images.platforms import NodePlatform
from transom.windows.builds import process_isolation

_VERSION = 1


class NameMeaning(NamedTuple):
    """What a name refers to."""

    id: str
    target: str  # digest of the manifest or index that the name was resolved to
    local: bool = False


class IndexedImage(NamedTuple):
    """An image in the store."""

    manifest: str
    created: float
    platform: NodePlatform


@dataclass(slots=True)
class ImageIndexState:
    images: dict[str, IndexedImage] = field(default_factory=dict)
    # name -> Platform.key -> target
    names: dict[str, dict[str, NameMeaning]] = field(default_factory=dict)

    def find(self, name: str, platform: NodePlatform) -> NameMeaning | None:
        """For a node: what was pulled for its platform, otherwise the best match of what users have
        loaded.
        """
        meanings = self.names.get(name)
        if meanings is None:
            return None
        exact = meanings.get(platform.key)
        if exact is not None:
            return exact
        best: tuple[tuple[bool, bool, int], NameMeaning] | None = None
        for meaning in meanings.values():
            row = self.images.get(meaning.id)
            if row is None or not meaning.local or row.platform[:3] != platform[:3]:
                continue
            build = row.platform.build
            fits = not build or process_isolation(
                platform.build, build, stable_abi=platform.stable_abi
            )
            how = (fits, build == platform.build, build)
            if best is None or how > best[0]:
                best = (how, meaning)
        return best[1] if best else None

    def named(self, identity: str) -> Iterator[tuple[str, NameMeaning]]:
        for name, meanings in self.names.items():
            for meaning in meanings.values():
                if meaning.id == identity:
                    yield name, meaning
                    break

    def add(self, name: str, platform: NodePlatform, meaning: NameMeaning) -> None:
        self.names.setdefault(name, {})[platform.key] = meaning

    def drop_name(self, name: str, identity: str) -> None:
        left = {
            key: meaning
            for key, meaning in self.names.get(name, {}).items()
            if meaning.id != identity
        }
        if left:
            self.names[name] = left
        else:
            self.names.pop(name, None)

    def drop(self, identity: str) -> None:
        for name in [name for name, _ in self.named(identity)]:
            self.drop_name(name, identity)
        self.images.pop(identity, None)


class ImageIndex:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "index.json"
        self.lock = folder / "index.lock"
        self._read: tuple[tuple[int, int, int], ImageIndexState] | None = None

    def state(self) -> ImageIndexState:
        """The current index; read-only."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return ImageIndexState()
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read is None or self._read[0] != mark:
            # The file may have been replaced since: then the stamp is outdated, and the next call
            # reads again.
            self._read = (mark, _parse(self.path))
        return self._read[1]

    def change(self, function: Callable[[ImageIndexState], None]) -> None:
        """Blocks while other processes update it."""
        with locks.hold_lock(self.lock):
            state = _parse(self.path)
            function(state)
            write_atomic(self.path, _text(state))


def _text(state: ImageIndexState) -> bytes:
    document: dict[str, Any] = {
        "version": _VERSION,
        "images": {
            identity: [row.manifest, row.created, list(row.platform[:4])]
            for identity, row in state.images.items()
        },
        "names": {
            name: {key: list(meaning) for key, meaning in meanings.items()}
            for name, meanings in state.names.items()
        },
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _parse(path: Path) -> ImageIndexState:
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return ImageIndexState()
    except orjson.JSONDecodeError as problem:
        raise ImageError(f"{path} is damaged: {problem}") from problem
    if document.get("version") != _VERSION:
        raise ImageError(f"{path} was written by another version of this program")
    return ImageIndexState(
        {
            identity: IndexedImage(manifest, created, NodePlatform(*platform))
            for identity, (manifest, created, platform) in document["images"].items()
        },
        {
            name: {key: NameMeaning(*meaning) for key, meaning in meanings.items()}
            for name, meanings in document["names"].items()
        },
    )
