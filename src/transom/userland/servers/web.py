"""Web servers that serve files: nginx, Apache httpd, IIS, and agnhost's test-webserver."""

from __future__ import annotations

import mimetypes
import posixpath
import re
import time
from email.utils import formatdate
from itertools import islice

from transom.userland.api import Program, ProgramContext
from transom.userland.files import FileView
from transom.userland.regex import compile_pattern
from transom.userland.servers import tls
from transom.userland.servers.base import ServerProgram, why_not
from transom.userland.servers.http import (
    ProgramHttpRequest,
    ProgramHttpResponse,
    program_text_response,
)

_NGINX_PAGE = b"""<!DOCTYPE html>
<html>
<head>
<title>Welcome to nginx!</title>
<style>
    body {
        width: 35em;
        margin: 0 auto;
        font-family: Tahoma, Verdana, Arial, sans-serif;
    }
</style>
</head>
<body>
<h1>Welcome to nginx!</h1>
<p>If you see this page, the nginx web server is successfully installed and
working. Further configuration is required.</p>

<p>For online documentation and support please refer to
<a href="http://nginx.org/">nginx.org</a>.<br/>
Commercial support is available at
<a href="http://nginx.com/">nginx.com</a>.</p>

<p><em>Thank you for using nginx.</em></p>
</body>
</html>
"""
_HTTPD_PAGE = b"<html><body><h1>It works!</h1></body></html>\n"
_IIS_PAGE = (
    b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" '
    b'"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">\r\n'
    b'<html xmlns="http://www.w3.org/1999/xhtml">\r\n<head>\r\n<title>IIS Windows '
    b"Server</title>\r\n</head>\r\n<body>\r\n"
    b'<div id="container">\r\n<img src="iisstart.png" alt="IIS" width="960" height="600" '
    b"/>\r\n</div>\r\n</body>\r\n</html>"
)
DEFAULT_PAGES = {
    "/usr/share/nginx/html/index.html": _NGINX_PAGE,
    "/usr/local/apache2/htdocs/index.html": _HTTPD_PAGE,
    "C:\\inetpub\\wwwroot\\iisstart.htm": _IIS_PAGE,
}
# Written by the author of the pod: matched by RE2 in linear time, and only at the beginning of very
# large files.
_LARGEST_CONFIGURATION = 64 * 1024
_ADDRESS = r"(?:[\d.*]+:|\[[0-9a-fA-F:]*\]:)?"
_LISTEN = rf"(?m)^[ \t]*listen\s+{_ADDRESS}(\d+)[\s;]"
_LISTEN_SSL = rf"(?m)^[ \t]*listen\s+{_ADDRESS}(\d+)\s[^;]*\bssl\b"
_ROOT = r"(?m)^[ \t]*root\s+([^;]+);"
_RETURN = r"""location\s+(=?)\s*(\S+)\s*\{[^}]*?return\s+(\d+)(?:\s+("[^"]*"|'[^']*'|[^;]+))?;"""
_MOST_DIRECTIVES = 1000
_NGINX_START = (
    (
        "/docker-entrypoint.sh: /docker-entrypoint.d/ is not empty, will attempt to perform "
        "configuration"
    ),
    "/docker-entrypoint.sh: Looking for shell scripts in /docker-entrypoint.d/",
    "/docker-entrypoint.sh: Launching /docker-entrypoint.d/10-listen-on-ipv6-by-default.sh",
    "10-listen-on-ipv6-by-default.sh: info: Getting the checksum of /etc/nginx/conf.d/default.conf",
    (
        "10-listen-on-ipv6-by-default.sh: info: Enabled listen on IPv6 in "
        "/etc/nginx/conf.d/default.conf"
    ),
    "/docker-entrypoint.sh: Launching /docker-entrypoint.d/20-envsubst-on-templates.sh",
    "/docker-entrypoint.sh: Configuration complete; ready for start up",
)


def directives(pattern: str, configuration: str) -> list[re.Match[str]]:
    """The first matching directives of a configuration."""
    found = compile_pattern(pattern).finditer(configuration[:_LARGEST_CONFIGURATION])
    return list(islice(found, _MOST_DIRECTIVES))


def find_page(
    context: ProgramContext, root: str, path: str, indexes: tuple[str, ...]
) -> tuple[str, bytes] | int:
    """The file for a path below a root and its content, or an error status. 301: a directory was
    requested without a slash.
    """
    files = FileView(context, root)
    windows = context.os == "windows"
    relative = posixpath.normpath("/" + path).lstrip("/")
    place = (
        files.absolute(relative.replace("/", "\\") if windows else relative)
        if relative
        else files.absolute(root)
    )
    is_root = not relative
    try:
        if files.stat(place).kind == "directory":
            if not path.endswith("/"):
                return 301
            for index in indexes:
                candidate = files.join(place, index)
                if files.exists(candidate):
                    return candidate, files.read(candidate)
            return 403
        return place, files.read(place)
    except FileNotFoundError:
        for index in indexes:
            candidate = files.join(root, index)
            if (
                (is_root or path.lstrip("/") == index)
                and candidate in DEFAULT_PAGES
                and not files.exists(root)
            ):
                return candidate, DEFAULT_PAGES[candidate]
        return 404
    except PermissionError:
        return 403
    except OSError:
        return 404


def media_type_of(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _etag(content: bytes, mtime: float) -> str:
    return f'"{int(mtime):x}-{len(content):x}"'


def file_response(context: ProgramContext, place: str, content: bytes) -> ProgramHttpResponse:
    try:
        mtime = FileView(context, "/").stat(place).mtime
    except OSError:
        mtime = 1608052293.0  # the page in the image
    headers = (
        ("Content-Type", media_type_of(place)),
        ("Last-Modified", formatdate(mtime, usegmt=True)),
        ("ETag", _etag(content, mtime)),
        ("Accept-Ranges", "bytes"),
    )
    return ProgramHttpResponse(200, content, headers)


class _NginxSite:
    """The server block of the configuration: its root, its `return` directives and the files."""

    def __init__(self, server: ServerProgram, configuration: str, version: str) -> None:
        self._server = server
        self._version = version
        roots = directives(_ROOT, configuration)
        self._root = roots[0][1].strip() if roots else "/usr/share/nginx/html"
        self._returns = [
            (exact, path, int(code), (body or "").strip("\"'").replace("\\n", "\n"))
            for exact, path, code, body in (
                found.groups() for found in directives(_RETURN, configuration)
            )
        ]

    def handle(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        response = self._answer(request)
        user = request.headers.get("user-agent", "-")
        referer = request.headers.get("referer", "-")
        forwarded = request.headers.get("x-forwarded-for", "-")
        self._server.out(
            f'{_host(request)} - - [{_log_time(self._server.context)}] "{request.method} '
            f'{request.target} {request.version}" '
            f'{response.status} {len(response.body)} "{referer}" "{user}" "{forwarded}"'
        )
        return response

    def _answer(self, request: ProgramHttpRequest) -> ProgramHttpResponse:
        for exact, path, code, body in self._returns:
            if (request.path == path) if exact else request.path.startswith(path):
                if code in (301, 302, 307, 308):
                    return ProgramHttpResponse(code, b"", (("Location", body),))
                return program_text_response(body, code, "text/plain") if body else self._page(code)
        if request.method not in ("GET", "HEAD"):
            return self._page(405)
        context = self._server.context
        found = find_page(context, self._root, request.path, ("index.html", "index.htm"))
        if not isinstance(found, int):
            return file_response(context, *found)
        if found == 404:
            self._log_missing(request)
        response = self._page(found)
        if found == 301:
            return response._replace(headers=(*response.headers, ("Location", request.path + "/")))
        return response

    def _log_missing(self, request: ProgramHttpRequest) -> None:
        self._server.err(
            f"{_nginx_time(self._server.context)} [error] 31#31: *1 open() "
            f'"{self._root + request.path}" failed (2: No such file or directory), '
            f"client: {_host(request)}, server: localhost, request: "
            f'"{request.method} {request.target} HTTP/1.1", '
            f'host: "{request.headers.get("host", "")}"'
        )

    def _page(self, status: int) -> ProgramHttpResponse:
        names = {
            404: "404 Not Found",
            403: "403 Forbidden",
            301: "301 Moved Permanently",
            405: "405 Not Allowed",
        }
        name = names.get(status, f"{status} Error")
        body = (
            f"<html>\r\n<head><title>{name}</title></head>\r\n<body>\r\n<center><h1>{name}</h1></center>\r\n"
            f"<hr><center>nginx/{self._version}</center>\r\n</body>\r\n</html>\r\n"
        )
        return program_text_response(body, status, "text/html")


def nginx(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    version = context.env.get("NGINX_VERSION", "1.19.6")
    if "-v" in context.argv or "-V" in context.argv:
        server.err(f"nginx version: nginx/{version}")
        server.exit(0)
        return server
    if "-t" in context.argv:
        server.err("nginx: the configuration file /etc/nginx/nginx.conf syntax is ok")
        server.err("nginx: configuration file /etc/nginx/nginx.conf test is successful")
        server.exit(0)
        return server
    if "-s" in context.argv:
        return _signal_nginx(server)
    configuration = _nginx_configuration(context)
    ports = sorted({int(found[1]) for found in directives(_LISTEN, configuration)})
    ports = ports or [int(context.image.options.get("port", "80"))]
    secure = {int(found[1]) for found in directives(_LISTEN_SSL, configuration)}
    site = _NginxSite(server, configuration, version)
    if context.image.entrypoint and context.main and context.image.program == "nginx":
        for line in _NGINX_START:
            server.out(line)
    for port in ports:
        try:
            server.serve(
                port,
                site.handle,
                server=f"nginx/{version}",
                certificate=tls.untrusted_certificate if port in secure else None,
            )
        except OSError as error:
            number = 98 if why_not(error).startswith("address") else 13
            reason = "Address already in use" if number == 98 else "Permission denied"
            server.err(
                f"{_nginx_time(context)} [emerg] 1#1: bind() to 0.0.0.0:{port} failed "
                f"({number}: {reason})"
            )
            server.err(f"nginx: [emerg] bind() to 0.0.0.0:{port} failed ({number}: {reason})")
            server.exit(1)
            break
    return server


def _signal_nginx(server: ServerProgram) -> Program:
    context = server.context
    what = next(iter(context.argv[context.argv.index("-s") + 1 :]), "")
    name = {"stop": "SIGTERM", "quit": "SIGQUIT", "reload": "SIGHUP", "reopen": "SIGUSR1"}.get(what)
    if name is None:
        server.err(f'nginx: invalid option: "-s {what}"')
        server.exit(1)
        return server
    for entry in context.processes.list():
        if "nginx" in " ".join(entry.argv) and entry.pid != context.pid:
            context.processes.signal(entry.pid, name)
            server.exit(0)
            return server
    server.err('nginx: [error] invalid PID number "" in "/var/run/nginx.pid"')
    server.exit(1)
    return server


def _nginx_configuration(context: ProgramContext) -> str:
    files = FileView(context, "/etc/nginx")
    texts: list[str] = []
    arguments = list(context.argv)
    main = arguments[arguments.index("-c") + 1] if "-c" in arguments[:-1] else "nginx.conf"
    for name in (main,):
        if files.exists(name):
            texts.append(files.text(name))
    if files.is_directory("conf.d"):
        texts.extend(
            files.text(f"conf.d/{name}")
            for name in files.listdir("conf.d")
            if name.endswith(".conf")
        )
    return "\n".join(re.sub(r"#.*", "", content) for content in texts)


def httpd(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    version = context.env.get("HTTPD_VERSION", "2.4.46")
    root = "/usr/local/apache2/htdocs"

    def page(status: int, path: str) -> ProgramHttpResponse:
        title = {404: "404 Not Found", 403: "403 Forbidden", 301: "301 Moved Permanently"}[status]
        reported = {
            404: "The requested URL was not found on this server.",
            403: "You don't have permission to access this resource.",
        }
        body = (
            '<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML '
            f'2.0//EN">\n<html><head>\n<title>{title}</title>\n</head><body>\n'
            f"<h1>{title[4:]}</h1>\n<p>{reported.get(status, '')}</p>\n</body></html>\n"
        )
        return program_text_response(body, status, "text/html; charset=iso-8859-1")

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        found = find_page(context, root, request.path, ("index.html",))
        response = (
            page(found, request.path) if isinstance(found, int) else file_response(context, *found)
        )
        server.out(
            f'{_host(request)} - - [{_log_time(context)}] "{request.method} {request.target} '
            f'{request.version}" '
            f"{response.status} {len(response.body)}"
        )
        return response

    def signalled(name: str) -> bool:
        if name == "SIGTERM":
            server.err(
                f"[{_apache_time(context)}] [mpm_event:notice] [pid 1:tid 1] AH00491: caught "
                "SIGTERM, shutting down"
            )
        return server.as_handled("SIGTERM" if name == "SIGWINCH" else name)

    server.on_signal = signalled
    address = context.network.ips[0] if context.network.ips else "127.0.0.1"
    for _ in range(2):
        server.err(
            "AH00558: httpd: Could not reliably determine the server's fully qualified "
            "domain name, using "
            f"{address}. Set the 'ServerName' directive globally to suppress this message"
        )
    try:
        server.serve(
            int(context.image.options.get("port", "80")), handle, server=f"Apache/{version} (Unix)"
        )
    except OSError as error:
        number = 98 if why_not(error).startswith("address") else 13
        reason = "Address already in use" if number == 98 else "Permission denied"
        server.err(f"({number}){reason}: AH00072: make_sock: could not bind to address 0.0.0.0:80")
        server.err("no listening sockets available, shutting down\nAH00015: Unable to open logs")
        server.exit(1)
        return server
    server.err(
        f"[{_apache_time(context)}] [mpm_event:notice] [pid 1:tid 1] AH00489: "
        f"Apache/{version} (Unix) configured -- "
        "resuming normal operations"
    )
    server.err(
        f"[{_apache_time(context)}] [core:notice] [pid 1:tid 1] AH00094: Command line: "
        "'httpd -D FOREGROUND'"
    )
    return server


def iis(context: ProgramContext) -> Program:
    server = ServerProgram(context)
    root = "C:\\inetpub\\wwwroot"

    def handle(request: ProgramHttpRequest) -> ProgramHttpResponse:
        indexes = (
            "Default.htm",
            "Default.asp",
            "index.htm",
            "index.html",
            "iisstart.htm",
            "default.aspx",
        )
        found = find_page(context, root, request.path, indexes)
        if isinstance(found, int):
            titles = {
                404: "404 - File or directory not found.",
                403: "403 - Forbidden: Access is denied.",
                301: "Document Moved",
            }
            title = titles[found]
            body = (
                "<!DOCTYPE "
                f"html>\r\n<html><head><title>{title}</title></head><body><h2>{title}</h2></body></html>\r\n"
            )
            response = program_text_response(body, found, "text/html")
            if found == 301:
                response = response._replace(
                    headers=(*response.headers, ("Location", request.path + "/"))
                )
        else:
            response = file_response(context, *found)
        return response._replace(headers=(*response.headers, ("X-Powered-By", "ASP.NET")))

    server.out("\r\nService 'w3svc' has been stopped\r\n\r\nService 'w3svc' started\r")
    try:
        server.serve(
            int(context.image.options.get("port", "80")), handle, server="Microsoft-IIS/10.0"
        )
    except OSError:
        server.out(
            "\r\nERROR: Failed to start or to query status of service 'w3svc'. Error Code: 32\r"
        )
        server.exit(32)
    return server


def _host(request: ProgramHttpRequest) -> str:
    return request.peer.rpartition(":")[0].strip("[]") or "127.0.0.1"


def _log_time(context: ProgramContext) -> str:
    return time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(context.clock.time()))


def _nginx_time(context: ProgramContext) -> str:
    return time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(context.clock.time()))


def _apache_time(context: ProgramContext) -> str:
    moment = context.clock.time()
    micros = int(moment % 1 * 1_000_000)
    return time.strftime(f"%a %b %d %H:%M:%S.{micros:06d} %Y", time.gmtime(moment))
