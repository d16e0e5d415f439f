"""What agnhost's webhooks have in common: they serve TLS with a certificate that is in a volume, or not at all."""

from __future__ import annotations

import os
import ssl

from transom.runtime.sim.program_api import Program
from transom.runtime.sim.programs.fileview import FileView
from transom.runtime.sim.programs.servers import gomux, tls
from transom.runtime.sim.programs.servers.base import Server, why_not
from transom.runtime.sim.programs.servers.http import Handler
from transom.runtime.sim.programs.servers.simple import flag


def serve(server: Server, handler: Handler) -> Program:
    """On `--port`, with the pair that `--tls-cert-file` and `--tls-private-key-file` name."""
    context = server.context
    files = FileView(context, context.cwd)
    path = flag(context, "tls-cert-file")
    try:
        certificate = files.read(path)
        path = flag(context, "tls-private-key-file")
        pair = tls.context_of(certificate, files.read(path))
    except ssl.SSLError as error:
        return _fail(server, f"tls: failed to find any PEM data in certificate input ({error.reason})", 255)
    except OSError as error:
        return _fail(server, f"open {path}: {os.strerror(error.errno or 0).lower()}", 255)
    port = int(flag(context, "port", "443"))
    try:
        server.serve(port, gomux.served(handler), certificate=lambda: pair)
    except OSError as error:
        return _fail(server, f"panic: listen tcp :{port}: bind: {why_not(error)}", 2)
    return server


def _fail(server: Server, said: str, code: int) -> Program:
    server.err(said)
    server.exit(code)
    return server
