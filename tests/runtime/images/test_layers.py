"""Layers that are honest, and layers that are not."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.images.tars import E, folder, hardlink, symlink, tar

from transom.runtime.images import compression, layers
from transom.runtime.images.layers import AppliedLayer, LayerLimits
from transom.runtime.images.model import ImageError, digest_of
from transom.runtime.images.tarstream import TarStream

ROOT = os.geteuid() == 0
root_only = pytest.mark.skipif(not ROOT, reason="needs root: owners, overlay")
LIMITS = LayerLimits(floor=1 << 20, ratio=200, most=4 << 20, entries=50)


def apply(
    place: Path, data: bytes, *below: Path, os_name: str = "linux", limits: LayerLimits = LIMITS
) -> AppliedLayer:
    place.mkdir()
    return layers.apply_layer(
        io.BytesIO(data), place, below, os_name=os_name, packed=len(data), limits=limits
    )


def whiteout(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def test_what_a_layer_has(tmp_path: Path) -> None:
    data = tar(
        folder("etc", 0o750, uid=3, gid=4),
        E("etc/passwd", b"root", mode=0o4755, uid=1000, gid=1001),
        symlink("etc/mtab", "/proc/mounts"),
        hardlink("etc/shadow", "etc/passwd"),
        E("pipe", kind="fifo"),
        E("deep/er/file", b"x"),
        E("x" * 255, b"long"),
        E("attr", b"1", pax={"SCHILY.xattr.user.note": "hi"}),
        E("dev/null", kind="char", device=(1, 3)),
        E("/absolute/name", b"fine"),
        E(".wh..wh.plnk/x", b"left by aufs"),
        folder("./"),
    )
    done = apply(tmp_path / "a", gzip.compress(data))
    a = tmp_path / "a"
    assert done.diff_id == digest_of(data) and done.size == 4 + 1 + 4 + 1 + 4
    assert (a / "etc/passwd").read_bytes() == b"root" and (a / "etc/passwd").stat().st_ino == (
        a / "etc/shadow"
    ).stat().st_ino
    assert (a / "etc").stat().st_mode & 0o7777 == 0o750 and (
        a / "etc"
    ).stat().st_mtime == 1_500_000_000
    assert os.readlink(a / "etc/mtab") == "/proc/mounts"
    assert stat.S_ISFIFO((a / "pipe").stat().st_mode)
    assert os.getxattr(a / "attr", "user.note") == b"hi"
    assert (a / "absolute/name").read_bytes() == b"fine"
    assert sorted(os.listdir(a)) == sorted(("etc", "pipe", "deep", "x" * 255, "attr", "absolute"))
    if ROOT:
        found = (a / "etc/passwd").stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o4755, 1000, 1001)


def test_what_a_layer_takes_away(tmp_path: Path) -> None:
    low, top = tmp_path / "low", tmp_path / "top"
    apply(
        low,
        tar(
            folder("a"),
            E("a/gone", b"1"),
            E("a/stays", b"1"),
            folder("b", 0o700),
            E("b/old", b"1"),
            E("c/d/e", b"1"),
            folder("again"),
            E("again/old", b"1"),
        ),
    )
    done = apply(
        top,
        tar(
            E("a/.wh.gone"),
            E("b/.wh..wh..opq"),
            E("b/new", b"2"),
            E(".wh.again"),
            folder("again"),
            E("again/new", b"2"),
            E("c/new", b"2"),
            E("c/.wh.new"),
            E("a/.wh.never"),
        ),
        low,
    )
    assert whiteout(top / "a/gone") and whiteout(top / "a/never") and not (top / "a/stays").exists()
    assert (
        set(done.whiteouts) == {"a/gone", "a/never"}
        and set(done.opaque) == {"b", "again"}
        and done.marked
    )
    name = "trusted.overlay.opaque" if ROOT else "user.overlay.opaque"
    assert os.getxattr(top / "b", name) == os.getxattr(top / "again", name) == b"y"
    assert (top / "b").stat().st_mode & 0o777 == 0o700  # as below: the folder hides that one
    assert (top / "c/new").read_bytes() == b"2"  # a layer cannot take away what it brings


def merged_by_overlay(work: Path, *lowers: Path) -> dict[str, bytes | str]:
    """The files that a container would see."""
    mounted = work / "merged"
    mounted.mkdir()
    options = "lowerdir=" + ":".join(str(path) for path in reversed((work / "empty", *lowers)))
    (work / "empty").mkdir()
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(mounted)], check=True)
    try:
        found: dict[str, bytes | str] = {}
        for path in mounted.rglob("*"):
            if path.is_symlink() or not path.is_dir():
                found[str(path.relative_to(mounted))] = (
                    os.readlink(path) if path.is_symlink() else path.read_bytes()
                )
        return found
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


@root_only
def test_overlayfs_understands_the_marks(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    apply(
        one,
        tar(
            E("a/x", b"1"),
            E("a/y", b"1"),
            E("b/x", b"1"),
            E("c/x", b"1"),
            E("usr/bin/sh", b"1"),
            symlink("bin", "usr/bin"),
        ),
    )
    apply(
        two,
        tar(E("a/.wh.x"), E("b/.wh..wh..opq"), E("b/z", b"2"), E(".wh.c"), E("bin/ls", b"2")),
        one,
    )
    apply(three, tar(E("c/new", b"3"), hardlink("a/y2", "a/y"), E("b/x", b"3")), one, two)
    assert merged_by_overlay(tmp_path, one, two, three) == {
        "a/y": b"1",
        "a/y2": b"1",
        "b/x": b"3",
        "b/z": b"2",
        "bin": "usr/bin",
        "c/new": b"3",
        "usr/bin/ls": b"2",
        "usr/bin/sh": b"1",
    }


@root_only
def test_folders_on_the_way_are_as_they_are_below(tmp_path: Path) -> None:
    low, top = tmp_path / "low", tmp_path / "top"
    apply(low, tar(folder("tmp", 0o1777, uid=5), E("data/file", b"1", mode=0o600, uid=9)))
    apply(top, tar(E("tmp/x", b"1"), hardlink("copy", "data/file")), low)
    found = (top / "tmp").stat()
    assert (found.st_mode & 0o7777, found.st_uid, found.st_mtime) == (0o1777, 5, 1_500_000_000)
    assert (top / "copy").stat().st_ino == (top / "data/file").stat().st_ino
    assert ((top / "copy").stat().st_mode & 0o7777, (top / "copy").stat().st_uid) == (0o600, 9)


BOMB = gzip.compress(tar(E("zeros", bytes(4 << 20))))
MALICIOUS = {
    "climbs": tar(E("../out", b"evil")),
    "climbs inside": tar(folder("a"), E("a/../../out", b"evil")),
    "link out, then through it": tar(symlink("way", "../.."), E("way/out", b"evil")),
    "absolute link, then through it": tar(symlink("way", "/etc"), E("way/out", b"evil")),
    "link to a link out": tar(symlink("a", "b"), symlink("b", "../../.."), E("a/out", b"evil")),
    "links in a circle": tar(symlink("a", "b"), symlink("b", "a"), E("a/out", b"evil")),
    "hard link out": tar(hardlink("steal", "../../etc/passwd")),
    "hard link to the machine's": tar(hardlink("steal", "/etc/passwd")),
    "hard link through a link": tar(symlink("way", "/"), hardlink("steal", "way/etc/passwd")),
    "hard link to a folder": tar(folder("a"), hardlink("b", "a")),
    "hard link to nothing": tar(hardlink("b", "")),
    "block device": tar(E("dev/sda", kind="block", device=(8, 0))),
    "memory device": tar(E("dev/mem", kind="char", device=(1, 1))),
    "usual name, other device": tar(E("dev/null", kind="char", device=(8, 0))),
    "a whiteout as a device": tar(E("etc", kind="char", device=(0, 0))),
    "same file twice": tar(E("a", b"1"), E("a", b"2")),
    "file, then link": tar(E("a", b"1"), symlink("a", "/etc")),
    "folder, then link": tar(folder("a"), E("a/b", b"1"), symlink("a", "/etc")),
    "through a file": tar(E("a", b"1"), E("a/b", b"2")),
    "too long": tar(E("x" * 256, b"1")),
    "too long a path": tar(E("/".join(["y" * 100] * 50), b"1")),
    "too long a link": tar(symlink("a", "z" * 5000)),
    "empty link": tar(symlink("a", "")),
    "whiteout of ..": tar(E(".wh..."), E(".wh...", b"")),
    "whiteout on the way": tar(E(".wh.a/b", b"1")),
    "whiteout of nothing": tar(E("a/.wh.")),
    "opaque mark through a link": tar(symlink("way", "/"), E("way/etc/.wh..wh..opq")),
    "overlay's own attributes": tar(
        E("a", b"1", pax={"SCHILY.xattr.trusted.overlay.redirect": "/etc"})
    ),
    "overlay's attributes for users": tar(
        E("a", b"1", pax={"SCHILY.xattr.user.overlay.opaque": "y"})
    ),
    "bomb": BOMB,
    "too many entries": tar(*(E(f"f{i}", b"") for i in range(51))),
    "cut": gzip.compress(tar(E("a", bytes(3000))))[:-12],
    "cut tar": tar(E("a", bytes(3000)))[:2000],
    "not a tar": b"#!/bin/sh\necho evil\n" * 50,
    "bzip2": b"BZh91AY&SY" + bytes(100),
    "huge extended header": tar(E("a", b"1", pax={"comment": "c" * (2 << 20)})),
    "too deep": tar(E("d/" * 300 + "f", b"1")),
    "nul in a name": tar(E("a", b"1", pax={"path": "a\0/../../out"})),
}


@pytest.mark.parametrize("case", MALICIOUS)
def test_malicious_layers_are_refused(tmp_path: Path, case: str) -> None:
    inside = tmp_path / "a/b/c"
    inside.parent.mkdir(parents=True)
    with pytest.raises(ImageError):
        apply(inside, MALICIOUS[case])
    shutil.rmtree(inside)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/b"]


@pytest.mark.parametrize("target", ["../../../..", "/../../.."])
def test_links_of_layers_below_lead_nowhere_else(tmp_path: Path, target: str) -> None:
    low = tmp_path / "low"
    apply(low, tar(symlink("way", target)))  # harmless by itself
    with pytest.raises(ImageError, match="leads out of the root"):
        apply(tmp_path / "top", tar(E("way/out", b"evil")), low)
    assert not (tmp_path / "out").exists()


def test_absolute_links_below_stay_within_the_root(tmp_path: Path) -> None:
    low, top = tmp_path / "low", tmp_path / "top"
    apply(low, tar(symlink("var/run", "/run"), folder("run", 0o711)))
    apply(top, tar(E("var/run/pid", b"1")), low)
    assert (top / "run/pid").read_bytes() == b"1" and (top / "run").stat().st_mode & 0o777 == 0o711


# ---- Windows ----


def test_windows_layers(tmp_path: Path) -> None:
    low, top = tmp_path / "low", tmp_path / "top"
    done = apply(
        low,
        tar(
            folder("Files"),
            folder("Files/Program Files"),
            E("Files/Program Files/App.exe", b"MZ", pax={"MSWINDOWS.fileattr": "33"}),
            E("Files/Program Files/App.exe:Zone.Identifier", b"stream"),
            E("Hives/System_Delta", b"regf"),
            E("UtilityVM/Files/x", b"vm"),
            symlink("Files/short", "C:\\Program Files"),
            symlink("Files/Program Files/up", "\\??\\C:\\old.txt"),
            E("Files/old.txt", b"1"),
        ),
        os_name="windows",
    )
    there = sorted(str(path.relative_to(low)) for path in low.rglob("*"))
    assert there == [
        "Program Files",
        "Program Files/App.exe",
        "Program Files/up",
        "old.txt",
        "short",
    ]
    assert (low / "Program Files/App.exe").stat().st_mode & 0o777 == 0o555  # read-only
    assert (
        os.readlink(low / "short") == "Program Files"
        and (low / "Program Files/up").read_bytes() == b"1"
    )
    assert done.entries == 9
    apply(
        top,
        tar(E("Files/PROGRAM files/app.EXE", b"MZ2"), E("Files/.wh.OLD.TXT")),
        low,
        os_name="windows",
    )
    assert (top / "Program Files/App.exe").read_bytes() == b"MZ2"
    assert whiteout(top / "old.txt")


@pytest.mark.parametrize(
    "name",
    [
        "Files/a\\..\\..\\out",
        "Files/con",
        "Files/nul.txt",
        "Files/what?",
        "Files/dot.",
        "Files/a:b/c",
        "Files/../../out",
        "/Files/x",
        "Files/x/COM1",
    ],
)
def test_names_that_windows_does_not_know(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError):
        apply(tmp_path / "a", tar(E(name, b"x")), os_name="windows")


def test_names_that_differ_only_in_capitals_are_the_same(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="twice"):
        apply(
            tmp_path / "a", tar(E("Files/a.txt", b"1"), E("Files/A.TXT", b"2")), os_name="windows"
        )


# ---- formats ----


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_tar(tmp_path: Path, form: int) -> None:
    long = "/".join(["n" * 60] * (3 if form == tarfile.USTAR_FORMAT else 8))
    entries = [E(long, b"1"), E("f", b"2", uid=0o7777777, mtime=1), folder("d")]
    if form != tarfile.USTAR_FORMAT:
        entries += [symlink("l", "t" * 300), E("big-id", b"", uid=2**31 - 2), E("früh", b"3")]
    apply(tmp_path / "a", tar(*entries, form=form))
    assert (tmp_path / "a" / long).read_bytes() == b"1"
    if form != tarfile.USTAR_FORMAT:
        assert len(os.readlink(tmp_path / "a/l")) == 300
        assert not ROOT or (tmp_path / "a/big-id").stat().st_uid == 2**31 - 2


@pytest.mark.parametrize(
    "form",
    ["gnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1", "pax --sparse-version=1.0"],
)
def test_sparse_files_stay_sparse(tmp_path: Path, form: str) -> None:
    source = tmp_path / "src"
    source.mkdir()
    with (source / "holes").open("wb") as file:
        for i in range(40):  # more than fit into one header
            file.seek(i * 65536)
            file.write(bytes([i + 1]) * 100)
        file.truncate(3 << 20)
    done = subprocess.run(
        ["tar", "--sparse", *f"--format={form}".split(), "-cf", "-", "-C", str(source), "holes"],
        capture_output=True,
    )
    if done.returncode:
        pytest.skip(f"tar cannot write this: {done.stderr.decode()}")
    assert len(done.stdout) < 1 << 20
    apply(tmp_path / "a", done.stdout)
    assert (tmp_path / "a/holes").read_bytes() == (source / "holes").read_bytes()
    assert (tmp_path / "a/holes").stat().st_blocks * 512 < 1 << 20


def test_zstd(tmp_path: Path) -> None:
    program = shutil.which("zstd")
    if program is None:
        pytest.skip("no zstd here")
    data = tar(E("a", os.urandom(1000) * 1000))
    packed = subprocess.run([program, "-c"], input=data, capture_output=True, check=True).stdout
    done = apply(tmp_path / "a", packed)
    assert done.diff_id == digest_of(data)
    assert b"".join(compression.pieces(io.BytesIO(packed + packed))) == data + data
    with pytest.raises(ImageError):
        list(compression.pieces(io.BytesIO(packed[:-5])))


def test_a_library_for_zstd_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_library", lambda: None)
    with pytest.raises(ImageError, match="zstd"):
        list(compression.pieces(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(100))))


def test_gzip_members_and_padding() -> None:
    packed = gzip.compress(b"a" * 300_000) + gzip.compress(b"b")
    assert b"".join(compression.pieces(io.BytesIO(packed + bytes(1000)))) == b"a" * 300_000 + b"b"


def test_a_wrong_diff_id_discards_the_layer(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ImageError, match="wrong diff id calculated on extraction"):
        layers.apply_layer(
            io.BytesIO(tar(E("a", b"1"))), tmp_path / "a", diff_id=digest_of(b"other")
        )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 511), st.integers(0, 255)), max_size=8),
    st.binary(max_size=40),
)
def test_a_damaged_archive_is_an_image_error_or_nothing(
    flips: list[tuple[int, int]], tail: bytes
) -> None:
    """Whatever is in a header, reading ends, and nothing but ImageError comes of it."""
    data = bytearray(tar(E("a", b"12345", pax={"comment": "x"}), symlink("b", "c")) + tail)
    for at, value in flips:
        data[at] = value
    checked = bytearray(data[:512])
    checked[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(checked)  # so that the damage gets past the checksum
    stream = TarStream(iter([bytes(data)]))
    with suppress(ImageError):
        for entry in stream:
            assert sum(len(piece) for piece in stream.data()) <= len(data)
            assert entry.size >= 0


def test_numbers_that_no_archive_has() -> None:
    header = bytearray(tar(E("a", b"1"), form=tarfile.GNU_FORMAT)[:512])
    header[124:136] = b"\xff" + struct.pack(">xxxq", -5)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises(ImageError):
        list(TarStream(iter([bytes(header), bytes(1024)])))


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
def test_without_root_a_layer_is_unpacked_as_well_as_can_be() -> None:
    """Files belong to the user who unpacks; overlays of user namespaces take the other attribute."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        data = tar(
            E("a/.wh.gone"),
            folder("b", 0o500, uid=9),
            E("b/.wh..wh..opq"),
            E("b/x", b"1", mode=0o400, uid=9, gid=9),
        )
        child = os.fork()
        if not child:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                done = apply(place / "tree", data)
                os._exit(0 if done.opaque == ("b",) and done.whiteouts == ("a/gone",) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (place / "tree/b/x").stat().st_uid == 65534 and (
            place / "tree/b"
        ).stat().st_mode & 0o777 == 0o500
        assert os.getxattr(place / "tree/b", "user.overlay.opaque") == b"y"
        assert whiteout(place / "tree/a/gone")
