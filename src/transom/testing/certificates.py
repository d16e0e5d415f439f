"""A serving certificate for a server of the test, for example an admission webhook."""

from __future__ import annotations

import base64
from pathlib import Path

from transom.kit.lazy_dataclass import dataclass
from transom.kit.pki import issue_server, make_ca, save_key_pair


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    certificate: Path
    key: Path
    ca_bundle: str  # for `clientConfig.caBundle`


def make_serving_certificate(folder: Path) -> ServingCertificate:
    """For a server on 127.0.0.1 or localhost."""
    authority = make_ca("transom-testing")
    pair = issue_server(authority, "localhost", ["localhost"], ["127.0.0.1"])
    found = ServingCertificate(
        folder / "tls.crt", folder / "tls.key", base64.b64encode(authority.certificate).decode()
    )
    save_key_pair(pair, found.certificate, found.key)
    return found
