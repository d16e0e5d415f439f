"""`transom image`: the images on this machine, used by real containers of all its clusters."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from transom.cli import console
from transom.cli.command import Command, file_path
from transom.cli.help import HelpFormatter
from transom.kit.files import is_special

if TYPE_CHECKING:
    from transom.runtime.images.collection import CollectedImages
    from transom.runtime.images.model import PullProgress, StoredImage
    from transom.runtime.images.service import ImageService

HELP = """\
Manage the images for real containers. All clusters on this machine share them.

Windows base images, pause images and busybox are built in and need no network. Nodes pull other
images, or you add them: from a folder (import), or from an archive written by `docker save` or an
OCI tool (load)."""
EXAMPLES = """\
  transom image list
  transom image import ./site web:1 --entrypoint '["/bin/httpd", "-f"]' --env MODE=test
  transom image import ./app shop/app:1 --os windows --build ltsc2022 --cmd 'C:\\app.exe --port 80'
  transom image load web:1                          from docker, podman or nerdctl
  transom image load web:1 api:2 --from podman
  docker save nginx:1.19 | transom image load
  transom image load --file images.tar
  transom image save busybox web:1 --file images.tar
  transom image pull registry.example/team/app:1 --os windows --build 17763
  transom image remove web:1
  transom image prune --all"""

IMAGE_ENGINES = ("docker", "podman", "nerdctl")
_ID = re.compile(r"(?:sha256:)?[a-f0-9]{6,64}")


def add_image_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, about: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name,
            help=about,
            description=about,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        made.add_argument(
            "--store",
            type=console.absolute_path,
            metavar="FOLDER",
            help="image folder (default: in the data folder)",
        )
        console.add_output_option(made)
        return made

    verb("list", "list images")
    _import_options(verb("import", "create an image from a folder"))
    load = verb("load", "load images from an archive, or from docker, podman or nerdctl")
    load.add_argument(
        "image",
        nargs="*",
        metavar="IMAGE",
        help="images of the container engine of this machine (--from)",
    )
    load.add_argument(
        "--from",
        dest="engine",
        choices=IMAGE_ENGINES,
        help="the engine that has the images (default: the first one installed)",
    )
    load.add_argument(
        "--file", "-f", type=file_path, metavar="FILE", help="default: standard input"
    )
    load.add_argument(
        "--name",
        default="",
        metavar="IMAGE",
        help="name for an image without a name in the archive",
    )
    save = verb("save", "write images to an archive")
    save.add_argument("image", nargs="+", metavar="IMAGE")
    save.add_argument(
        "--file", "-f", type=file_path, metavar="FILE", help="default: standard output"
    )
    save.add_argument(
        "--format",
        choices=("docker", "oci"),
        default="docker",
        help="default: %(default)s, both",
    )
    save.add_argument(
        "--os",
        choices=("linux", "windows"),
        help="operating system, for images that exist for both",
    )
    pull = verb("pull", "pull an image from its registry")
    pull.add_argument("image", metavar="IMAGE")
    pull.add_argument(
        "--os", choices=("linux", "windows"), help="default: from the name, else linux"
    )
    pull.add_argument("--build", metavar="BUILD", help="Windows build: 17763, ltsc2019")
    pull.add_argument("--username", default="", metavar="NAME")
    pull.add_argument(
        "--password-stdin", action="store_true", help="read the password from standard input"
    )
    pull.add_argument(
        "--insecure",
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="allow a registry without valid TLS",
    )
    remove = verb("remove", "remove images")
    remove.add_argument("image", nargs="+", metavar="IMAGE", help="a name, or an id")
    remove.add_argument("--force", action="store_true", help="also images in use by containers")
    prune = verb("prune", "remove images without a name and unused layers")
    prune.add_argument("--all", action="store_true", help="all images not used by a container")


def _import_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=file_path,
        metavar="FOLDER",
        help="folder that becomes the root folder, or drive C:",
    )
    parser.add_argument("image", metavar="IMAGE", help="name of the image")
    parser.add_argument(
        "--os", choices=("linux", "windows"), default="linux", help="default: %(default)s"
    )
    parser.add_argument(
        "--build", metavar="BUILD", help="Windows build: 17763 (default), ltsc2022, 10.0.20348.587"
    )
    parser.add_argument("--arch", default="", metavar="ARCH", help="default: this machine's")
    parser.add_argument("--entrypoint", default="", metavar="COMMAND", help="a JSON list, or words")
    parser.add_argument("--cmd", default="", metavar="COMMAND", help="a JSON list, or words")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="repeatable")
    parser.add_argument("--user", default="", metavar="USER", help="UID[:GID] or a name")
    parser.add_argument("--workdir", default="", metavar="FOLDER")
    parser.add_argument("--expose", action="append", default=[], metavar="PORT", help="repeatable")
    parser.add_argument("--label", action="append", default=[], metavar="K=V", help="repeatable")
    parser.add_argument(
        "--keep-owners", action="store_true", help="keep the owners of the files instead of root"
    )


def run_image_command(args: argparse.Namespace) -> int:
    from transom.kit.user_errors import UserError
    from transom.runtime.api import RuntimeFailure
    from transom.runtime.images.model import ImageError
    from transom.runtime.images.reference import ImageNameError

    verbs: dict[str, Callable[[ImageService, argparse.Namespace], None]] = {
        "list": _list,
        "import": _import,
        "load": _load,
        "save": _save,
        "pull": _pull,
        "remove": _remove,
        "prune": _prune,
    }
    try:
        verbs[args.verb](_service(args), args)
    except RuntimeFailure as problem:
        raise UserError(problem.description) from problem
    except (ImageError, ImageNameError) as problem:
        raise UserError(str(problem)) from problem
    except OSError as problem:
        raise UserError(str(problem)) from problem
    return 0


def _service(args: argparse.Namespace) -> ImageService:
    from transom.node.settings import clusters_dir
    from transom.runtime.images.registry import Registries
    from transom.runtime.images.service import ImageService

    insecure = frozenset(getattr(args, "insecure", ()))
    return ImageService(
        args.store or clusters_dir() / "images", registries=Registries(insecure=insecure)
    )


def _list(service: ImageService, args: argparse.Namespace) -> None:
    images = sorted(service.list(), key=lambda image: (image.tags or ("~",), image.os, image.build))
    used = service.store.in_use()
    if args.output != "text":
        console.print_value(
            [_shown(image) | {"usedBy": used.get(image.id, [])} for image in images], args.output
        )
        return
    rows = [("NAME", "ID", "PLATFORM", "SIZE", "AGE", "CONTAINERS")]
    for image in images:
        for name in image.tags or ("<none>",):
            age = console.format_age(max(0, int(time.time() - image.created)))
            rows.append(
                (
                    name,
                    image.id[7:19],
                    _platform(image),
                    format_size(image.size),
                    age,
                    str(len(used.get(image.id, ()))),
                )
            )
    console.print_table(rows)


def _shown(image: StoredImage) -> dict[str, Any]:
    return {
        "id": image.id,
        "tags": list(image.tags),
        "digests": list(image.digests),
        "size": image.size,
        "os": image.os,
        "architecture": image.architecture,
        "osVersion": image.os_version,
        "manifest": image.manifest,
        "layers": [str(path) for path in image.layers],
        "config": image.config.get("config") or {},
    }


def _platform(image: StoredImage) -> str:
    return f"{image.os}/{image.architecture}" + (f" {image.os_version}" if image.os_version else "")


def format_size(count: float) -> str:
    """Formatted as docker does."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:.3g}TB"


def _print_images(
    service: ImageService,
    identities: list[str],
    verb: str,
    args: argparse.Namespace,
    name: str = "",
) -> None:
    """`name`: the image that the message is about, if there are several."""
    images = [
        image
        for identity in dict.fromkeys(identities)
        if (image := service.get(identity)) is not None
    ]
    if args.output != "text":
        console.print_value([_shown(image) for image in images], args.output)
        return
    for image in images:
        for tag in (name,) if name else image.tags or (image.id,):
            print(f"image/{tag} {verb} ({_platform(image)})")


def _import(service: ImageService, args: argparse.Namespace) -> None:
    from transom.runtime.images.importer import import_image
    from transom.runtime.images.making import ImageOptions
    from transom.runtime.images.platforms import platform_of_node
    from transom.runtime.images.reference import parse_reference

    platform = platform_of_node(args.os, 0, args.arch)
    options = ImageOptions(
        os=args.os,
        architecture=platform.architecture,
        variant=platform.variant,
        os_version=_version(args.build) if args.os == "windows" else "",
        entrypoint=_words(args.entrypoint, args.os),
        cmd=_words(args.cmd, args.os),
        env=_pairs("--env", args.env),
        user=args.user,
        working_dir=args.workdir,
        ports=tuple(args.expose),
        labels=tuple(_split(pair) for pair in _pairs("--label", args.label)),
        created=_now(),
    )
    identity = import_image(
        service.store, args.folder, args.image, options, keep_owners=args.keep_owners
    )
    _print_images(service, [identity], "imported", args, str(parse_reference(args.image)))


def _now() -> str:
    from transom.kit.clock import rfc3339

    return rfc3339(time.time())


def _version(build: str | None) -> str:
    from transom.kit.user_errors import UserError
    from transom.windows import builds

    if build is None:
        return builds.DEFAULT.full_version
    found = builds.build_by_name(build)
    if found is None:
        raise UserError(
            f"there is no build {build!r} of Windows", "for example --build 17763, --build ltsc2022"
        )
    return build if build.count(".") == 3 else found.full_version


def _words(text: str, os: str) -> tuple[str, ...]:
    """A JSON list, or words split like a shell does; on Windows a backslash is an ordinary
    character.
    """
    import json

    from transom.kit.user_errors import UserError

    try:
        if text.lstrip().startswith("["):
            found = json.loads(text)
            if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
                raise ValueError("it is not a list of strings")
            return tuple(found)
        reader = shlex.shlex(text, posix=True, punctuation_chars=False)
        reader.whitespace_split, reader.commenters = True, ""
        if os == "windows":
            reader.escape, reader.quotes = "", '"'
        return tuple(reader)
    except ValueError as problem:
        hint = """for example --cmd '["/bin/app", "--port", "80"]'"""
        raise UserError(f"{text!r} is not a valid command: {problem}", hint) from problem


def _pairs(option: str, given: list[str]) -> tuple[str, ...]:
    from transom.kit.user_errors import UserError

    if any("=" not in pair for pair in given):
        raise UserError(f"{option} takes KEY=VALUE", f"for example {option} MODE=test")
    return tuple(given)


def _split(pair: str) -> tuple[str, str]:
    key, _, value = pair.partition("=")
    return key, value


def _load(service: ImageService, args: argparse.Namespace) -> None:
    from transom.kit.user_errors import EXIT_USAGE, UserError
    from transom.runtime.images import archives

    if args.image and args.file:
        raise UserError("IMAGE and --file cannot be combined", code=EXIT_USAGE)
    for name in args.image:
        if Path(name).is_file():
            raise UserError(
                f"{name} is a file, not an image of a container engine",
                f"load the archive with: transom image load --file {shlex.quote(name)}",
                EXIT_USAGE,
            )
    if args.engine and not args.image:
        raise UserError("--from needs IMAGE", "for example: transom image load web:1", EXIT_USAGE)
    if not args.image and args.file is None and sys.stdin.isatty():
        raise UserError(
            "IMAGE or --file is required", "for example: transom image load --file images.tar"
        )
    with contextlib.ExitStack() as stack:
        source: BinaryIO
        if args.image:
            source = stack.enter_context(_saved_by_engine(args.engine, args.image))
        else:
            source = stack.enter_context(args.file.open("rb")) if args.file else sys.stdin.buffer
        stack.enter_context(service.store.busy_here())
        loaded = archives.load_archive(service.store, source, args.name)
    _print_images(service, [found.identity for found in loaded], "loaded", args)


@contextlib.contextmanager
def _saved_by_engine(engine: str | None, images: list[str]) -> Iterator[BinaryIO]:
    """The archive that an engine of this machine writes of its images."""
    import os
    import tempfile

    from transom.kit.programs import run_program
    from transom.kit.trust import find_program
    from transom.kit.user_errors import UserError

    chosen = engine or next((name for name in IMAGE_ENGINES if find_program(name)), None)
    if chosen is None or find_program(chosen) is None:
        missing = chosen or "docker, podman or nerdctl"
        hint = "load an archive instead: transom image load --file images.tar"
        raise UserError(f"{missing} is not installed", hint)
    if chosen == "podman" and len(images) > 1:
        images = ["--multi-image-archive", *images]
    with tempfile.TemporaryFile() as archive:
        # The engine's client finds its server and login by the user's environment.
        done = run_program(
            [chosen, "save", *images], env=os.environ, cwd=os.getcwd(), output=archive
        )
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip() or done.returncode
            raise UserError(f"{chosen} save failed: {reason}")
        archive.seek(0)
        yield archive


def _save(service: ImageService, args: argparse.Namespace) -> None:
    from transom.kit.user_errors import UserError
    from transom.runtime.images import archives

    if args.file is None and sys.stdout.isatty():
        raise UserError(
            "refusing to write an archive to a terminal",
            "for example: transom image save busybox --file images.tar",
        )
    chosen = []
    for name in args.image:
        found = [
            (image, tag) for image, tag in _named(service, name) if args.os in (None, image.os)
        ]
        if not found:
            raise UserError(f"there is no image {name!r}", "`transom image list` lists the images")
        chosen += found
    with service.store.busy_here():
        if args.file is None:
            archives.save_archive(service.store, chosen, sys.stdout.buffer, args.format)
            return
        with _replaced(args.file) as sink:
            archives.save_archive(service.store, chosen, sink, args.format)
    console.print_progress(f"saved to {args.file}")


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    """Writes a file atomically; a device or a pipe as it is."""
    if is_special(path):
        with path.open("wb") as special:
            yield special
        return
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _named(service: ImageService, name: str) -> list[tuple[StoredImage, str]]:
    """Images by name, for any operating system, or by the prefix of an id; and the full name."""
    from transom.runtime.images.reference import ImageNameError, parse_reference

    images = service.list()
    with contextlib.suppress(ImageNameError):
        whole = str(parse_reference(name))
        found = [(image, whole) for image in images if whole in (*image.tags, *image.digests)]
        if found:
            return found
    if not _ID.fullmatch(name):
        return []
    return [
        (image, "") for image in images if image.id[7:].startswith(name.removeprefix("sha256:"))
    ]


def _pull(service: ImageService, args: argparse.Namespace) -> None:
    import asyncio

    from transom.kit.user_errors import UserError
    from transom.runtime.api import AuthConfig
    from transom.windows import builds
    from transom.windows.images import image_os

    password = sys.stdin.readline().rstrip("\n") if args.password_stdin else ""
    if bool(args.username) != args.password_stdin:
        raise UserError("--username and --password-stdin go together")
    system = args.os or image_os(args.image) or "linux"
    wanted = (
        builds.build_by_name(args.build)
        if args.build
        else builds.build_of_tag(args.image.rpartition(":")[2]) or builds.DEFAULT
    )
    if wanted is None:
        raise UserError(
            f"there is no build {args.build!r} of Windows",
            "for example --build 17763, --build ltsc2022",
        )
    auth = AuthConfig(args.username, password) if args.username else None
    image = asyncio.run(service.pull(args.image, auth, system, wanted.number, progress=_progress))
    _print_images(service, [image.id], "pulled", args)


def _progress(progress: PullProgress) -> None:
    if not progress.digest:
        return
    amount = (
        f" {format_size(progress.done)} of {format_size(progress.total)}"
        if progress.step == "downloading"
        else ""
    )
    console.print_progress(f"{progress.digest[7:19]}: {progress.step}{amount}")


def _remove(service: ImageService, args: argparse.Namespace) -> None:
    from transom.kit.user_errors import UserError

    for name in args.image:
        found = _named(service, name)
        if not found:
            raise UserError(f"there is no image {name!r}", "`transom image list` lists the images")
        for image, tag in found:
            if tag and len(image.tags) > 1 and tag in image.tags:
                service.store.untag(tag, image.id)
            elif not service.store.remove(image.id, force=args.force):
                owners = ", ".join(service.store.in_use().get(image.id, ()))
                raise UserError(
                    f"{name} is in use by {owners}", "remove the containers first, or use --force"
                )
            print(f"image/{tag or image.id} removed")
    service.store.sweep()


def _prune(service: ImageService, args: argparse.Namespace) -> None:
    from transom.runtime.images.collection import prune_images

    done: CollectedImages = prune_images(service.store, everything=args.all)
    if args.output != "text":
        console.print_value(
            {
                "removed": [image.id for image in done.removed],
                "freed": done.freed,
                "busy": done.busy,
            },
            args.output,
        )
        return
    for image in done.removed:
        print(f"image/{image.tags[0] if image.tags else image.id} removed")
    print(f"{format_size(done.freed)} freed")
    if done.busy:
        console.print_progress("images are being pulled or loaded: not everything was removed")


COMMAND = Command(HELP, EXAMPLES, add_image_arguments, run_image_command)
