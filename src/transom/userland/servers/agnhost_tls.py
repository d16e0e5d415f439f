"""What agnhost's webhooks have in common: they serve TLS with a certificate from a volume."""

from __future__ import annotations

import os
import ssl

from transom.userland.api import Program
from transom.userland.files import FileView
from transom.userland.servers import gomux, tls
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import Handler
from transom.userland.servers.simple import flag


def serve_tls(server: ServerProgram, handler: Handler, *, port_flag: str = "port") -> Program:
    """Serves on `--port`, with the certificate of `--tls-cert-file` and `--tls-private-key-file`."""
    context = server.context
    files = FileView(context, context.cwd)
    path = flag(context, "tls-cert-file")
    try:
        certificate = files.read(path)
        path = flag(context, "tls-private-key-file")
        pair = tls.context_of(certificate, files.read(path))
    except ssl.SSLError as error:
        return _fail(
            server, f"tls: failed to find any PEM data in certificate input ({error.reason})", 255
        )
    except OSError as error:
        return _fail(server, f"open {path}: {os.strerror(error.errno or 0).lower()}", 255)
    port = int(flag(context, port_flag, "443"))
    try:
        server.serve(port, gomux.served_file(handler), certificate=lambda: pair)
    except OSError as error:
        return _fail(server, f"panic: listen tcp :{port}: bind: {why_not(error)}", 2)
    return server


def _fail(server: ServerProgram, message: str, code: int) -> Program:
    server.err(message)
    server.exit(code)
    return server
