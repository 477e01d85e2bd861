"""Collections of the local vectors server on disk: created, reopened after any stop, flushed, vacuumed, dropped.

One folder per collection: `shard/` (the engine's files and log) and `collection.json`, written last and removed first,
so that a folder without it is half made or half deleted and is cleared at start.
"""

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import qdrant_edge as edge
import structlog

from app.local.vectors_filters import WireError
from app.local.vectors_wire import Schema, edge_config, schema_of

log = structlog.get_logger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_FLUSH_POINTS = 10_000  # replaying as many unflushed points after a kill takes about a second
_FLUSH_IDLE_S = 2.0
_VACUUM_MIN_DEAD = 1_000
_Result = TypeVar("_Result")


class StoreInUseError(Exception):
    """Another process has the data folder open."""


class Collection:
    """One open collection. Writes are one at a time; reads go in beside them (the engine locks its segments itself)."""

    def __init__(self, folder: Path, config: dict[str, Any], shard: edge.EdgeShard, dead: int) -> None:
        self.folder = folder
        self.config = config
        self.schema: Schema = schema_of(config)
        self._shard = shard
        self._dead = dead
        self._write = threading.Lock()
        self._pending = 0
        self._written_at = time.monotonic()
        self._operations = 0

    def read(self, action: Callable[[edge.EdgeShard], _Result]) -> _Result:
        """Run a read on the shard; engine errors come as WireError."""
        return _engine_call(lambda: action(self._shard))

    def write(self, operation: edge.UpdateOperation, points: int) -> int:
        """Apply an operation and return its number; when this returns, a kill of the process does not undo it."""
        with self._write:
            before = self._shard_points()
            _engine_call(lambda: self._shard.update(operation))
            self._dead += max(0, before - self._shard_points())
            self._pending += points
            self._written_at = time.monotonic()
            self._operations += 1
            return self._operations

    def flush(self, *, due_only: bool) -> None:
        """Write the engine's pages to disk, which shortens its log; `due_only`: when there is enough, or a pause."""
        idle = time.monotonic() - self._written_at > _FLUSH_IDLE_S
        if due_only and not (self._pending >= _FLUSH_POINTS or (self._pending and idle)):
            return
        with self._write:
            _engine_call(self._shard.flush)
            self._pending = 0
            _write_json(self.folder / "collection.json", {"config": self.config, "dead": self._dead})

    def vacuum(self) -> bool:
        """Copy the live points when over a third are dead. It stalls the whole process: only before serving."""
        live = self._shard_points()
        if self._dead < _VACUUM_MIN_DEAD or self._dead * 3 <= live + self._dead:
            return False
        started = time.monotonic()
        with self._write:
            _engine_call(self._shard.optimize)
        log.info("vectors_vacuumed", live=live, dead=self._dead, seconds=round(time.monotonic() - started, 2))
        self._dead = 0
        self.flush(due_only=False)
        return True

    def close(self) -> None:
        """Release the files; reads that come later fail."""
        with self._write:
            self._shard.close()

    def _shard_points(self) -> int:
        return _engine_call(lambda: int(self._shard.info().points_count))


class Store:
    """All collections under one folder, which one process holds at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "collections"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock_file = _locked(folder / "lock")
        self._changing = threading.Lock()
        self._open: dict[str, Collection] = {}
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush_when_due, name="vectors-flush", daemon=True)

    def open(self) -> None:
        """Open every collection on disk, vacuum those that need it, and start flushing."""
        for folder in sorted(self._folder.iterdir()):
            described = folder / "collection.json"
            if not described.is_file():
                log.warning("vectors_incomplete_collection_cleared", collection=folder.name)
                shutil.rmtree(folder)
                continue
            started = time.monotonic()
            facts = orjson.loads(described.read_bytes())
            try:
                shard = edge.EdgeShard.load(str(folder / "shard"))
            except Exception:  # the engine raises bare Exception
                log.error("vectors_collection_not_opened", collection=folder.name)  # noqa: TRY400
                raise
            collection = Collection(folder, facts["config"], shard, int(facts["dead"]))
            collection.vacuum()
            self._open[folder.name] = collection
            log.info(
                "vectors_collection_opened",
                collection=folder.name,
                points=shard.info().points_count,
                seconds=round(time.monotonic() - started, 2),
            )
        self._flusher.start()

    def names(self) -> list[str]:
        """Return the names of the collections."""
        return sorted(self._open)

    def has(self, name: str) -> bool:
        """Say whether there is a collection of this name."""
        return name in self._open

    def get(self, name: str) -> Collection:
        """Return a collection. Raises WireError(404)."""
        found = self._open.get(name)
        if found is None:
            raise WireError(404, f"Not found: Collection `{name}` doesn't exist!")
        return found

    def create(self, name: str, config: dict[str, Any]) -> None:
        """Create a collection of a checked configuration. Raises WireError(409) when it exists, 422 for a bad name."""
        if not _NAME.fullmatch(name):
            raise WireError(422, "Validation error in path parameters: collection name: use letters, digits, _ . and -")
        with self._changing:
            if name in self._open:
                raise WireError(409, f"Wrong input: Collection `{name}` already exists!")
            folder = self._folder / name
            if folder.exists():  # left over by a drop that could not delete every file
                shutil.rmtree(folder)
            (folder / "shard").mkdir(parents=True, mode=0o700)
            try:
                shard = _engine_call(lambda: edge.EdgeShard.create(str(folder / "shard"), edge_config(config)))
                _write_json(folder / "collection.json", {"config": config, "dead": 0})
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._open[name] = Collection(folder, config, shard, 0)

    def drop(self, name: str) -> bool:
        """Delete a collection and its files; False when there is none."""
        with self._changing:
            collection = self._open.pop(name, None)
            if collection is None:
                return False
            (collection.folder / "collection.json").unlink()
            collection.close()
            shutil.rmtree(collection.folder)
            return True

    def close(self) -> None:
        """Flush and release everything."""
        self._stop.set()
        if self._flusher.is_alive():
            self._flusher.join()
        with self._changing:
            for collection in self._open.values():
                collection.flush(due_only=False)
                collection.close()
            self._open.clear()
        os.close(self._lock_file)

    def _flush_when_due(self) -> None:
        while not self._stop.wait(0.5):
            for name in self.names():
                with self._changing:
                    collection = self._open.get(name)
                    if collection is None:
                        continue
                    try:
                        collection.flush(due_only=True)
                    except (WireError, OSError) as error:
                        log.error("vectors_flush_failed", collection=name, reason=str(error))  # noqa: TRY400


def _engine_call(action: Callable[[], _Result]) -> _Result:
    with _engine_errors():
        return action()


@contextmanager
def _engine_errors() -> Iterator[None]:
    """Turn what the engine raises (bare Exception, ValueError, and panics, which are BaseException) into WireError."""
    try:
        yield
    except (WireError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        message = str(error)
        if "Shard is not initialized" in message:
            raise WireError(404, "Not found: the collection was deleted meanwhile") from error
        wrong = isinstance(error, (TypeError, ValueError, OverflowError)) or message.startswith(
            (
                "Vector dimension error",
                "Not existing vector name",
                "Wrong usage of sparse",
                "Wrong input",
                "Bad request",
            )
        )
        if wrong:
            raise WireError(400, f"Wrong input: {message[:300]}") from error
        log.exception("vectors_engine_failed", kind=type(error).__name__)
        raise WireError(500, f"Service internal error: {message[:300]}") from error


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreInUseError(f"another process serves {path.parent}") from error
    return descriptor


def _write_json(path: Path, value: Any) -> None:
    """Replace a file in one step, safe against a loss of power."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(orjson.dumps(value))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
