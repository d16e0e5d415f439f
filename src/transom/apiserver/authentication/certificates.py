"""Client certificates: the common name is the user, the organizations are the groups. TLS has
verified the chain. Since 1.32 the hash of the certificate is an extra attribute of the user, since
1.33 the subject may have a UID (AllowParsingUserUIDFromCertAuth).

Checks the expiry on every request, because connections can outlive the certificate.
"""

from __future__ import annotations

from transom.apiserver.authentication.chain import with_authenticated
from transom.apiserver.core.context import UserInfo
from transom.http.messages import HttpRequest, PeerCertificate
from transom.kit.clock import Clock
from transom.machinery import errors
from transom.machinery.serviceaccounts import CREDENTIAL_ID

_KNOWN_LIMIT = 10_000


class ClientCertificates:
    def __init__(
        self, clock: Clock, *, credential_ids: bool = False, reads_uids: bool = False
    ) -> None:
        self._clock = clock
        self._credential_ids = credential_ids
        self._reads_uids = reads_uids
        self._known: dict[object, UserInfo] = {}

    def __call__(self, request: HttpRequest) -> UserInfo | None:
        peer = request.peer
        if peer is None or not peer.cn:
            return None
        if not peer.not_before <= self._clock.time() <= peer.not_after:
            raise errors.unauthorized()
        # The hash is that of the whole certificate.
        key = peer.sha256 or (peer.cn, tuple(peer.organizations), peer.uids)
        return self._known.get(key) or self._remember(key, peer)

    def _remember(self, key: object, peer: PeerCertificate) -> UserInfo:
        credential = peer.sha256 if self._credential_ids else ""
        uid = _uid(peer) if self._reads_uids else ""
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        user = self._known[key] = UserInfo(
            peer.cn,
            with_authenticated(peer.organizations),
            uid,
            extra={CREDENTIAL_ID: [f"X509SHA256={credential}"]} if credential else None,
        )
        return user


def _uid(peer: PeerCertificate) -> str:
    """The UID, or "" if there is none; several UIDs, an empty one, or one that is not text make the
    certificate invalid.
    """
    if not peer.uids:
        return ""
    uid = peer.uids[0]
    if len(peer.uids) > 1 or not uid:
        raise errors.unauthorized()
    return uid
