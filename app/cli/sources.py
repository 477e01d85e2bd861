"""Paths, folders and globs as the files to send, each with the name that people will see."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Left behind by systems and editors; never documents.
_LITTER_PREFIXES = (".", "~$")
_LITTER = frozenset({"Thumbs.db", "desktop.ini"})


@dataclass(frozen=True, slots=True)
class Source:
    """A file to send under `name`, or (with `problem`) a path that cannot be sent and why."""

    path: str
    name: str
    problem: str | None = None


class Sources:
    """The files that paths, folders and globs name: sorted, found while they are sent, each once.

    The name shown is the path relative to the given folder (of a glob: to its part without wildcards); of a single
    file its last part. Where two would have one name, the second gets more of its path.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._names: set[str] = set()
        self._files: set[tuple[int, int]] = set()
        self.left_out = 0

    def __iter__(self) -> Iterator[Source]:
        for argument in self._arguments:
            if not Path(argument).exists() and glob.has_magic(argument):
                yield from self._glob(argument)
            else:
                yield from self._path(Path(argument), None)

    def _glob(self, pattern: str) -> Iterator[Source]:
        matches = sorted(glob.iglob(pattern, recursive=True))  # noqa: PTH207  (a pattern may be absolute)
        fixed = Path()
        for part in Path(pattern).parts:
            if glob.has_magic(part):
                break
            fixed /= part
        wild = pattern.rsplit("/", 1)[-1][:1] in ("*", "?", "[")
        if not matches:
            yield Source(pattern, pattern, "Nothing matches this pattern.")
        for match in matches:
            if wild and _is_litter(Path(match).name):
                self.left_out += 1
                continue
            yield from self._path(Path(match), fixed, recurse=not pattern.endswith("**"))

    def _path(self, path: Path, root: Path | None, *, recurse: bool = True) -> Iterator[Source]:
        if not path.is_dir():
            yield from self._file(path, root or path.parent)
        elif recurse:
            yield from self._folder(path, root or path, set())

    def _folder(self, folder: Path, root: Path, above: set[tuple[int, int]]) -> Iterator[Source]:
        try:
            status = folder.stat()
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield Source(str(folder), str(folder), _reason(error))
            return
        place = (status.st_dev, status.st_ino)
        if place in above:
            return  # a link to a folder that holds it
        for entry in entries:
            if _is_litter(entry.name):
                self.left_out += 1
            elif entry.is_dir():
                yield from self._folder(folder / entry.name, root, above | {place})
            else:
                yield from self._file(folder / entry.name, root)

    def _file(self, path: Path, root: Path) -> Iterator[Source]:
        try:
            status = path.stat()
        except OSError as error:
            yield Source(str(path), path.name, _reason(error))
            return
        if not path.is_file():
            yield Source(str(path), path.name, "This is not a regular file.")
            return
        place = (status.st_dev, status.st_ino)
        if place in self._files:
            return  # named twice, or a link to one that is sent already
        self._files.add(place)
        yield Source(str(path), self._name(path, root))

    def _name(self, path: Path, root: Path) -> str:
        """A name that no other file of this run has."""
        whole = Path(os.path.normpath(path.absolute()))
        relative = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        name = relative
        for length in range(len(relative.parts), len(whole.parts) + 1):
            name = Path(*whole.parts[-length:])
            if name.as_posix() not in self._names:
                break
        self._names.add(name.as_posix())
        # What the file system holds but UTF-8 does not, and a leading slash, have no place in a name.
        return os.fsencode(name).decode("utf-8", "replace").lstrip("/")


def _is_litter(name: str) -> bool:
    return name.startswith(_LITTER_PREFIXES) or name in _LITTER


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}."
