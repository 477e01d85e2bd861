"""Original files, stored under their SHA-256 in a folder per tenant. Names from outside never become paths."""

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from app.core.errors import TooLargeError

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A stored file: its digest and its size."""

    sha256: str
    size_bytes: int


class BlobStore:
    """A directory of immutable files. Writes are atomic and flushed before the name appears."""

    def __init__(self, root: Path) -> None:
        self._root = root.expanduser().resolve()

    def put(self, tenant_id: UUID, stream: BinaryIO, *, max_bytes: int) -> StoredBlob:
        """Store a stream and return its digest. Raises TooLargeError over `max_bytes`; nothing is left behind then."""
        folder = self._root / str(tenant_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        digest = hashlib.sha256()
        size_bytes = 0
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".incoming-", delete=False) as target:
            temporary = Path(target.name)
            try:
                while piece := stream.read(_CHUNK_BYTES):
                    size_bytes += len(piece)
                    if size_bytes > max_bytes:
                        raise TooLargeError("file_too_large", "The file is over the size limit.", limit_bytes=max_bytes)
                    digest.update(piece)
                    target.write(piece)
                target.flush()
                os.fsync(target.fileno())
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        path = self.path(tenant_id, digest.hexdigest())
        path.parent.mkdir(exist_ok=True, mode=0o700)
        temporary.replace(path)
        return StoredBlob(digest.hexdigest(), size_bytes)

    def path(self, tenant_id: UUID, sha256: str) -> Path:
        """Where a blob lies (it may not exist). Raises ValueError when `sha256` is not a digest."""
        if not _SHA256.fullmatch(sha256):
            raise ValueError("not a SHA-256 digest")
        return self._root / str(tenant_id) / sha256[:2] / sha256

    def delete(self, tenant_id: UUID, sha256: str) -> None:
        """Remove a blob; no error when it is gone already."""
        self.path(tenant_id, sha256).unlink(missing_ok=True)

    def digests(self, tenant_id: UUID) -> set[str]:
        """Digests of all blobs of a tenant, for audits and tests."""
        folder = self._root / str(tenant_id)
        return {path.name for path in folder.glob("??/*")} if folder.is_dir() else set()
