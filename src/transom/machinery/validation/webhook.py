"""Client configuration of webhooks, by URL or by service: the same rules for admission and
conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transom.machinery.field import invalid, required
from transom.machinery.validation.names import is_dns1123_subdomain, is_valid_port_num
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.urls import URLError, parse_url

_FORM = "; desired format: https://host[/path]"


def validate_client_config(config: Mapping[str, Any], path: str) -> Errors:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    return (
        _url(url, f"{path}.url") if url is not None else _service(service or {}, f"{path}.service")
    )


def _url(text: str, path: str) -> Errors:
    try:
        url = parse_url(text)
    except URLError as error:
        return [required(path, f"url must be a valid URL: {error}{_FORM}")]
    errors: Errors = []
    if url.scheme != "https":
        errors.append(invalid(path, url.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    if not url.host:
        errors.append(invalid(path, url.host, f"host must be provided{_FORM}"))
    if url.user is not None:
        errors.append(invalid(path, url.user, "user information is not permitted in the URL"))
    if url.fragment:
        errors.append(invalid(path, url.fragment, "fragments are not permitted in the URL"))
    if url.query:
        errors.append(invalid(path, url.query, "query parameters are not permitted in the URL"))
    return errors


def _service(service: Mapping[str, Any], path: str) -> Errors:
    errors: Errors = []
    # Kubernetes swaps the two: a missing namespace is reported as the name, and vice versa.
    if not service.get("namespace"):
        errors.append(required(f"{path}.name", "service name is required"))
    if not service.get("name"):
        errors.append(required(f"{path}.namespace", "service namespace is required"))
    port = service.get("port", 443)
    if messages := is_valid_port_num(port):
        errors.append(invalid(f"{path}.port", port, "port is not valid: " + ", ".join(messages)))
    return errors + _service_path(service.get("path", ""), f"{path}.path")


def _service_path(url_path: str, path: str) -> Errors:
    if url_path in ("", "/"):
        return []
    if url_path == "//":
        return [invalid(path, url_path, "segment[0] may not be empty")]
    errors = [] if url_path.startswith("/") else [invalid(path, url_path, "must start with a '/'")]
    for i, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid(path, url_path, f"segment[{i}] may not be empty"))
        else:
            errors += [
                invalid(path, url_path, f"segment[{i}]: {text}")
                for text in is_dns1123_subdomain(step)
            ]
    return errors
