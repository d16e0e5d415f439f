"""HTTP/1.1 over TLS for the API server: parsing, framing, limits, time-outs, streams and upgrades.

Off-the-shelf servers do not fit: kubectl needs the raw socket after a 101, and watches share bytes
between connections. It knows nothing about Kubernetes except that an error before the handler is
also a Status.
"""

from transom.http.limits import HttpLimits
from transom.http.messages import (
    Handler,
    HttpRequest,
    HttpResponse,
    PeerCertificate,
    StreamResponse,
    UpgradeResponse,
    encode_chunk,
)
from transom.http.raw import RawConnection
from transom.http.server import HttpServer
from transom.http.stream import Stream
from transom.http.tls import server_context

__all__ = [
    "Handler",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "PeerCertificate",
    "RawConnection",
    "Stream",
    "StreamResponse",
    "UpgradeResponse",
    "encode_chunk",
    "server_context",
]
