"""The options of authentication and authorization. Cheap to import."""

from __future__ import annotations

from transom.kit.lazy_dataclass import dataclass
from transom.machinery.objects import Object


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Files with an AuthenticationConfiguration and an AuthorizationConfiguration, or the same as
    objects, which the older flags describe.
    """

    authentication_file: str = ""
    authorization_file: str = ""
    authentication: Object | None = None
    authorization: Object | None = None
    anonymous: bool = True  # --anonymous-auth
