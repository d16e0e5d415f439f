"""The user that the API server sees: asked with a SelfSubjectReview where it is served, else the
name of the kubeconfig.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from transom.client.api import ApiUnreachable
from transom.machinery.errors import ApiError
from transom.web.api_access import ApiAccess

log = logging.getLogger("transom.web")

_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
_SECONDS: Final = 2.0


class ConsoleIdentity:
    """`name` is for people; rights are decided by the API server only."""

    def __init__(self, api: ApiAccess, configured: str) -> None:
        self._api = api
        self._name = configured or "unknown user"
        self._known = False
        self._asking = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._name

    async def resolve_name(self) -> None:
        """Asks the API server once; a server that does not respond is asked again next time."""
        async with self._asking:
            if self._known:
                return
            try:
                async with asyncio.timeout(_SECONDS):
                    self._name = await self._review() or self._name
                self._known = True
            except (ApiError, ApiUnreachable, TimeoutError) as problem:
                log.debug("the name of the user is not known: %s", problem)

    async def _review(self) -> str:
        """The name; empty if no version is served or the user may not ask."""
        for version in _VERSIONS:
            answer = await self._api.request(
                "POST",
                f"/apis/authentication.k8s.io/{version}/selfsubjectreviews",
                body=b'{"apiVersion":"authentication.k8s.io/%b","kind":"SelfSubjectReview"}'
                % version.encode(),
            )
            if answer.status == 404:
                continue
            if answer.status == 403:
                return ""
            user = (answer.json().get("status") or {}).get("userInfo") or {}
            return str(user.get("username") or "")
        return ""
