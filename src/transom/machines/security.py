"""Access control lists of files: security descriptors, inheritance, and access checks.

A node of a file system stores the number of its descriptor instead of an owner. Equal descriptors
share one number, so a hundred thousand files with the same list take no more space than one. Pure,
no input or output.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from transom.kit.named_tuple import NamedTuple

SYSTEM: Final = "S-1-5-18"
ADMINISTRATORS: Final = "S-1-5-32-544"
USERS: Final = "S-1-5-32-545"
AUTHENTICATED: Final = "S-1-5-11"
EVERYONE: Final = "S-1-1-0"
CREATOR_OWNER: Final = "S-1-3-0"
TRUSTED_INSTALLER: Final = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"

OBJECT_INHERIT, CONTAINER_INHERIT, NO_PROPAGATE, INHERIT_ONLY = 1, 2, 4, 8
_BOTH: Final = OBJECT_INHERIT | CONTAINER_INHERIT

READ_DATA, WRITE_DATA, APPEND_DATA, DELETE_CHILD, WRITE_ATTRIBUTES = 0x1, 0x2, 0x4, 0x40, 0x100
DELETE, READ_CONTROL, WRITE_DAC, WRITE_OWNER, SYNCHRONIZE = (
    0x10000,
    0x20000,
    0x40000,
    0x80000,
    0x100000,
)
FULL, MODIFY, READ_EXECUTE, READ, WRITE = 0x1F01FF, 0x1301BF, 0x1200A9, 0x120089, 0x100116
_TABLE_SIZE: Final = 1 << 18  # limit of entries in all lists together
MAX_ENTRIES: Final = 1024  # of one list; Windows limits it to 64 KiB


class Ace(NamedTuple):
    """An entry of an access control list: the rights that an identity is allowed or denied. `flags`
    define what inherits it.
    """

    sid: str
    mask: int
    deny: bool = False
    flags: int = 0
    inherited: bool = False


class SecurityDescriptor(NamedTuple):
    owner: str
    aces: tuple[Ace, ...]
    protected: bool = False  # nothing is inherited

    def effective(self, directory: bool) -> tuple[Ace, ...]:
        """The entries for a directory, or for a file, without those that only directories
        inherit.
        """
        if directory:
            return self.aces
        return tuple(
            ace._replace(flags=0)
            for ace in self.aces
            if not ace.inherited or ace.flags & OBJECT_INHERIT or not ace.flags
        )


class TooManyDescriptorsError(MemoryError):
    """The simulation has reached its limit of different lists."""


def _default(owner: str, *allowed: tuple[str, int]) -> SecurityDescriptor:
    return SecurityDescriptor(
        owner, tuple(Ace(sid, mask, False, _BOTH, True) for sid, mask in allowed)
    )


INSTALLED: Final = 0
"""For system files: all accounts read them, administrators change them."""
OPEN: Final = 1
"""For directories in which ordinary users may create and change files: volumes, temporary
directories.
"""

_DESCRIPTORS: list[SecurityDescriptor] = [
    _default(SYSTEM, (SYSTEM, FULL), (ADMINISTRATORS, FULL), (USERS, READ_EXECUTE)),
    _default(
        ADMINISTRATORS,
        (SYSTEM, FULL),
        (ADMINISTRATORS, FULL),
        (USERS, READ_EXECUTE),
        (AUTHENTICATED, MODIFY),
    ),
]
_KEPT: list[int] = [0]
_NUMBERS: dict[SecurityDescriptor, int] = {
    descriptor: number for number, descriptor in enumerate(_DESCRIPTORS)
}


def descriptor_of(number: int) -> SecurityDescriptor:
    return _DESCRIPTORS[number] if number < len(_DESCRIPTORS) else _DESCRIPTORS[INSTALLED]


def number_of(descriptor: SecurityDescriptor) -> int:
    """Equal descriptors have the same number. Raises TooManyDescriptorsError."""
    found = _NUMBERS.get(descriptor)
    if found is None:
        size = _KEPT[0] + len(descriptor.aces) + 1
        if size > _TABLE_SIZE:
            raise TooManyDescriptorsError
        _KEPT[0] = size
        found = _NUMBERS[descriptor] = len(_DESCRIPTORS)
        _DESCRIPTORS.append(descriptor)
    return found


def sorted_aces(aces: tuple[Ace, ...]) -> tuple[Ace, ...]:
    """In Windows' order: explicit entries before inherited ones, denials first in each."""
    return tuple(sorted(aces, key=lambda ace: (ace.inherited, not ace.deny)))


def inheritable_aces(parent: SecurityDescriptor, owner: str) -> tuple[Ace, ...]:
    """The entries that a new file or directory inherits. A file shows only those for files."""
    out: list[Ace] = []
    for ace in parent.aces:
        if not ace.flags & _BOTH:
            continue
        flags = 0 if ace.flags & NO_PROPAGATE else ace.flags & _BOTH
        if ace.sid == CREATOR_OWNER:
            out.append(Ace(owner, ace.mask, ace.deny, 0, True))
            flags |= INHERIT_ONLY
        out.append(Ace(ace.sid, ace.mask, ace.deny, flags, True))
    return tuple(out)


@lru_cache(maxsize=4096)
def inherited_aces(parent: int, owner: str = "") -> int:
    """The number for a new entry in a directory. Without an owner, the system creates it."""
    if parent <= OPEN and not owner:
        return parent
    above = descriptor_of(parent)
    own = owner or above.owner
    aces = inheritable_aces(above, own)
    if not aces:  # the default list of the user's token
        aces = (Ace(SYSTEM, FULL), Ace(owner or ADMINISTRATORS, FULL))
    try:
        return number_of(SecurityDescriptor(own, aces))
    except TooManyDescriptorsError:  # creating files must always be possible
        return parent


def reinherited(own: SecurityDescriptor, parent: SecurityDescriptor) -> SecurityDescriptor:
    """After the parent directory's list has changed."""
    if own.protected:
        return own
    kept = tuple(ace for ace in own.aces if not ace.inherited)
    return own._replace(aces=sorted_aces(kept + inheritable_aces(parent, own.owner)))


@lru_cache(maxsize=4096)
def reinherited_number(own: int, parent: int) -> int:
    """Like `reinherited`, with numbers."""
    return number_of(reinherited(descriptor_of(own), descriptor_of(parent)))


@lru_cache(maxsize=8192)
def allowed_access(number: int, directory: bool, sids: frozenset[str], wanted: int) -> bool:
    """Whether a user with these identities has all rights in `wanted`. The owner may always read
    and change the list.
    """
    descriptor = descriptor_of(number)
    if descriptor.owner in sids:
        wanted &= ~(READ_CONTROL | WRITE_DAC)
    for ace in descriptor.effective(directory):
        if not wanted:
            break
        if ace.flags & INHERIT_ONLY or ace.sid not in sids:
            continue
        if ace.deny:
            if ace.mask & wanted:
                return False
        else:
            wanted &= ~ace.mask
    return not wanted


def private_descriptor(owner: str) -> int:
    """For a user's own directory, such as a profile."""
    return number_of(_default(owner, (SYSTEM, FULL), (ADMINISTRATORS, FULL), (owner, FULL)))
