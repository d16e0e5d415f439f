"""The user of a container's process: resolves names by the image's own password files. Pure
text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from transom.runtime.api import LinuxContainer


class OciUserNotFound(Exception):
    """The text is containerd's."""


class OciUser(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...]


class _Account(NamedTuple):
    name: str
    uid: int
    gid: int


class _Group(NamedTuple):
    name: str
    gid: int
    members: tuple[str, ...]


def find_oci_user(linux: LinuxContainer, image_user: str, read: Callable[[str], str]) -> OciUser:
    """`read` returns a file of the container, "" when it does not exist. Raises NoUser."""
    requested, _, group = image_user.partition(":")
    if linux.run_as_user is not None or linux.run_as_user_name:
        requested = (
            str(linux.run_as_user) if linux.run_as_user is not None else linux.run_as_user_name
        )
        # The image's own group applies only with its own user.
        group = group if requested == image_user.partition(":")[0] else ""
    accounts, groups = list(_accounts(read("/etc/passwd"))), list(_groups(read("/etc/group")))
    account = _account(requested or "0", accounts)
    gid = account.gid
    if linux.run_as_group is not None:
        gid = linux.run_as_group
    elif group:
        gid = _gid(group, groups)
    names_user = bool(account.name) and not linux.strict_groups
    of_image = (entry.gid for entry in groups if names_user and account.name in entry.members)
    extra = dict.fromkeys((*of_image, *linux.supplemental_groups))
    return OciUser(account.uid, gid, tuple(extra))


def _account(requested: str, accounts: list[_Account]) -> _Account:
    if _is_number(requested):
        number = int(requested)
        return next((a for a in accounts if a.uid == number), _Account("", number, 0))
    for account in accounts:
        if account.name == requested:
            return account
    raise OciUserNotFound("no users found")


def _gid(requested: str, groups: list[_Group]) -> int:
    if _is_number(requested):
        return int(requested)
    for group in groups:
        if group.name == requested:
            return group.gid
    raise OciUserNotFound("no groups found")


def _accounts(text: str) -> Iterator[_Account]:
    for fields in _rows(text, 4):
        if _is_number(fields[2]) and _is_number(fields[3]):
            yield _Account(fields[0], int(fields[2]), int(fields[3]))


def _groups(text: str) -> Iterator[_Group]:
    for fields in _rows(text, 3):
        if _is_number(fields[2]):
            members = fields[3].split(",") if len(fields) > 3 else []
            yield _Group(
                fields[0],
                int(fields[2]),
                tuple(member.strip() for member in members if member.strip()),
            )


def _rows(text: str, least: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        fields = line.strip().split(":")
        if len(fields) >= least and not line.startswith("#"):
            yield fields


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
