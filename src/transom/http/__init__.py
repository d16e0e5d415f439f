"""HTTP/1.1 over TLS for the API server: parsing, framing, limits, time-outs, streams and upgrades.

Why its own package: kubectl needs the raw socket after a 101 and watches need bytes shared between connections, which
no ready-made server gives. It knows nothing of Kubernetes except that an error before the handler is a Status too.
"""

from transom.http.messages import (
    Handler,
    PeerCertificate,
    Request,
    Response,
    StreamResponse,
    UpgradeResponse,
    chunk,
)
from transom.http.server import HttpServer, Limits
from transom.http.stream import RawConnection, Stream
from transom.http.tls import server_context

__all__ = [
    "Handler",
    "HttpServer",
    "Limits",
    "PeerCertificate",
    "RawConnection",
    "Request",
    "Response",
    "Stream",
    "StreamResponse",
    "UpgradeResponse",
    "chunk",
    "server_context",
]
