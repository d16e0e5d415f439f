"""GET /logs/...: the machine's log directory, as Go's file server shows one."""

from __future__ import annotations

import html
from email.utils import formatdate
from typing import Final
from urllib.parse import quote

from transom.hosts.api import Files
from transom.http.messages import Headers, Response
from transom.kubelet.osrules import OsRules
from transom.kubelet.server.answers import HTML, TEXT, not_found

ROOT: Final = "/var/log"


def serve(files: Files, os: OsRules, path: str) -> Response:
    """`path` is what follows "/logs/"."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        return Response(400, [TEXT], b"invalid URL path\n")
    where = os.host_path("/".join((ROOT, *parts)))
    if not parts:
        files.mkdir(os.host_path(f"{ROOT}/containers"))  # a kubelet makes it when it starts; here, when somebody looks
    try:
        stat = files.stat(where)
    except OSError:
        return not_found()
    if stat.kind == "directory":
        if path and not path.endswith("/"):
            return Response(301, [(b"Location", quote(parts[-1]).encode() + b"/")])
        return _listing(files, os, where)
    if path.endswith("/"):
        return Response(301, [(b"Location", b"../" + quote(parts[-1]).encode())])
    try:
        body = files.read(where)
    except PermissionError:
        return Response(403, [TEXT], b"403 Forbidden\n")
    except OSError:
        return not_found()
    headers: Headers = [TEXT, (b"Last-Modified", formatdate(stat.mtime, usegmt=True).encode())]
    return Response(200, headers, body)


def _listing(files: Files, os: OsRules, where: str) -> Response:
    lines = ["<pre>"]
    for name in sorted(files.listdir(where)):
        kind = files.stat(os.join(where, name), follow=False).kind
        shown = name + "/" if kind == "directory" else name
        lines.append(f'<a href="{quote(shown)}">{html.escape(shown)}</a>')
    lines.append("</pre>\n")
    return Response(200, [HTML], "\n".join(lines).encode())
