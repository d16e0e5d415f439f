"""GET /logs/...: the machine's log directory, in the format of Go's file server."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from transom.http.messages import Answer, Headers, HttpResponse
from transom.kit.lazy import lazy_import
from transom.kubelet.osrules import OsRules
from transom.kubelet.server.answers import HTML, TEXT, not_found_answer
from transom.kubelet.server.pieces import pieces_answer
from transom.machines.api import Files, HostFiles
from transom.machines.smallfiles import list_small_directory

if TYPE_CHECKING:
    import html
else:
    html = lazy_import("html")

ROOT: Final = "/var/log"
_PIECE: Final = 256 * 1024


def serve_host_logs(machine: HostFiles, os: OsRules, path: str) -> Answer:
    """`path` is what follows "/logs/". Links are followed only inside the directory: a pod that
    mounts it as a volume may have created links that point elsewhere.
    """
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        return HttpResponse(400, [TEXT], b"invalid URL path\n")
    where = os.host_path("/".join((ROOT, *parts)))
    if not parts:
        # a kubelet creates it at start-up; here, on first access
        machine.mkdir(os.host_path(f"{ROOT}/containers"))
    try:
        files = machine.below(os.host_path(ROOT))
        stat = files.stat(where)
    except OSError:
        return not_found_answer()
    if stat.kind == "directory":
        if path and not path.endswith("/"):
            return HttpResponse(301, [(b"Location", quote(parts[-1]).encode() + b"/")])
        return _listing(files, os, where)
    if path.endswith("/"):
        return HttpResponse(301, [(b"Location", b"../" + quote(parts[-1]).encode())])
    if stat.kind != "file":
        return not_found_answer()  # reading a pipe or a device may never end
    pieces = _read_pieces(files, where, stat.size)
    try:
        first = next(pieces, b"")
    except PermissionError:
        return HttpResponse(403, [TEXT], b"403 Forbidden\n")
    except OSError:
        return not_found_answer()
    headers: Headers = [TEXT, (b"Last-Modified", formatdate(stat.mtime, usegmt=True).encode())]
    if len(first) == stat.size:
        return HttpResponse(200, headers, first)
    return pieces_answer(headers, chain((first,), pieces))


def _read_pieces(files: Files, where: str, size: int) -> Iterator[bytes]:
    """The file as it was when the request came: a program may write to it meanwhile."""
    at = 0
    while at < size and (piece := files.read(where, at, min(_PIECE, size - at))):
        yield piece
        at += len(piece)


def _listing(files: Files, os: OsRules, where: str) -> HttpResponse:
    lines = ["<pre>"]
    for name in sorted(list_small_directory(files, where)):
        try:
            kind = files.stat(os.join(where, name), follow=False).kind
        except OSError:
            continue  # it was removed meanwhile
        shown = name + "/" if kind == "directory" else name
        lines.append(f'<a href="{quote(shown)}">{html.escape(shown)}</a>')
    lines.append("</pre>\n")
    return HttpResponse(200, [HTML], "\n".join(lines).encode())
