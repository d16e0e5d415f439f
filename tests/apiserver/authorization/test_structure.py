"""Handlers read name, namespace and verb only from attributes that were authorized."""

from __future__ import annotations

import ast
from pathlib import Path

import transom.apiserver
from transom.apiserver.core.call import ApiCall

ROOT = Path(transom.apiserver.__file__).parent


def calls(tree: ast.AST, name: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) == name or getattr(node.func, "attr", None) == name)
    ]


def test_only_the_authorization_chain_makes_authorized_attributes() -> None:
    made = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if calls(ast.parse(path.read_text()), "Authorized")
    }
    assert made == {"authorization/chain.py"}


def test_no_handler_changes_the_attributes() -> None:
    """`info._replace` would be of the same type: only `require_create` asks about
    another verb.
    """
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "_replace"
                and ast.unparse(node.func.value).split(".")[-1]
                in ("info", "authorized", "request_info")
            ):
                assert path.name == "chain.py", f"{path}:{node.lineno}"


def test_handlers_demand_authorized_attributes() -> None:
    assert ApiCall.__annotations__["info"] == "Authorized"


def test_calls_know_no_http() -> None:
    """What verbs are given cannot lead them back to the request."""
    for path in (ROOT / "core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                assert not (module or "").startswith("transom.http"), f"{path}:{node.lineno}"


def test_handlers_do_not_read_the_path() -> None:
    """The path of the request goes into texts and proxied requests; what it means is in the
    attributes.
    """
    subresources = [f"core/subresources/{name}.py" for name in ("pods", "scale", "ephemeral")]
    for name in (
        "core/reads.py",
        "core/writes.py",
        "core/lists.py",
        "core/storage.py",
        *subresources,
    ):
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            assert not (
                isinstance(node, ast.Attribute)
                and ast.unparse(node).endswith(("request.path", "request.target"))
            ), f"{name}:{node.lineno}"
