"""The runtime's images as of its last response, looked up by id, name or digest."""

from __future__ import annotations

from collections.abc import Sequence

from transom.runtime.api import Image
from transom.runtime.cri import from_cri
from transom.runtime.cri.client import CriClient
from transom.runtime.images.reference import ImageNameError, parse_reference


class ImageList:
    def __init__(self, client: CriClient) -> None:
        self._client = client
        self._all: Sequence[Image] = ()
        self._by_name: dict[str, Image] = {}

    @property
    def all(self) -> Sequence[Image]:
        return self._all

    async def look(self) -> None:
        """Raises RuntimeFailure."""
        answer = await self._client.call("ListImages")
        self._all = tuple(from_cri.image_from_cri(each) for each in answer.get("images") or ())
        self._by_name = {
            name: image for image in self._all for name in (image.id, *image.tags, *image.digests)
        }

    def find(self, name: str) -> Image | None:
        found = self._by_name.get(name) or self._by_name.get(f"sha256:{name}")
        if found is not None:
            return found
        try:
            return self._by_name.get(str(parse_reference(name)))
        except ImageNameError:
            return None
