"""Paths, folders and globs as files to send; the disarming of text; the tracker's rounds."""

import os
import time
from pathlib import Path

import pytest

from app.cli.output import clean, count, line
from app.cli.sources import Source, Sources


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a/x.txt", "a/sub/y.txt", "a/.git/config", "a/~$x.docx", "b/x.txt", "b/z.pdf", "top.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pairs(*arguments: str) -> list[tuple[str, str]]:
    return [(source.path, source.name) for source in Sources(arguments) if source.problem is None]


def problems(*arguments: str) -> list[Source]:
    return [source for source in Sources(arguments) if source.problem is not None]


def test_a_folder_gives_its_files_sorted_with_relative_names() -> None:
    assert pairs("a") == [("a/sub/y.txt", "sub/y.txt"), ("a/x.txt", "x.txt")]
    assert pairs("a/") == pairs("a")
    assert [name for _, name in pairs(".")] == ["a/sub/y.txt", "a/x.txt", "b/x.txt", "b/z.pdf", "top.txt"]


def test_what_was_left_out_is_counted() -> None:
    sources = Sources(["a"])
    assert len(list(sources)) == 2
    assert sources.left_out == 2


def test_files_and_globs() -> None:
    assert pairs("b/z.pdf") == [("b/z.pdf", "z.pdf")]
    assert pairs("*/x.txt") == [("a/x.txt", "a/x.txt"), ("b/x.txt", "b/x.txt")]
    assert pairs("a/**/*.txt") == [("a/sub/y.txt", "sub/y.txt"), ("a/x.txt", "x.txt")]
    assert pairs("a/**") == [("a/sub/y.txt", "sub/y.txt"), ("a/x.txt", "x.txt")]
    assert [name for _, name in pairs("[ab]")] == ["a/sub/y.txt", "a/x.txt", "b/x.txt", "b/z.pdf"]


def test_two_files_never_get_one_name() -> None:
    assert pairs("a", "b") == [
        ("a/sub/y.txt", "sub/y.txt"), ("a/x.txt", "x.txt"), ("b/x.txt", "b/x.txt"), ("b/z.pdf", "z.pdf"),
    ]  # fmt: skip


def test_a_file_named_twice_is_sent_once(tree: Path) -> None:
    (tree / "link.txt").symlink_to(tree / "top.txt")
    assert pairs("top.txt", str(tree / "top.txt"), "link.txt") == [("top.txt", "top.txt")]


def test_a_file_with_a_name_like_a_pattern_is_a_file(tree: Path) -> None:
    (tree / "a[1].txt").write_text("x")
    assert pairs("a[1].txt") == [("a[1].txt", "a[1].txt")]


def test_links_to_folders_are_followed_and_loops_end(tree: Path) -> None:
    (tree / "a" / "loop").symlink_to(tree / "a")
    (tree / "a" / "other").symlink_to(tree / "b")
    assert [name for _, name in pairs("a")] == ["other/x.txt", "other/z.pdf", "sub/y.txt", "x.txt"]


def test_what_cannot_be_sent_is_named_and_hangs_nothing(tree: Path) -> None:
    os.mkfifo(tree / "b" / "pipe")
    (tree / "b" / "dangling").symlink_to(tree / "nowhere")
    began = time.monotonic()
    found = problems("absent.txt", "*.nothing", "b")
    assert time.monotonic() - began < 5
    assert [source.path for source in found] == ["absent.txt", "*.nothing", "b/dangling", "b/pipe"]
    assert found[0].problem == "No such file or directory."


def test_a_name_that_is_no_utf8_becomes_one(tree: Path) -> None:
    (tree / "odd").mkdir()
    (tree / "odd" / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert [name for _, name in pairs("odd")] == ["caf\ufffd.txt"]


def test_text_is_disarmed() -> None:
    assert clean("a\x1b[0m\tb\nc\x9b\u202e\x00") == "a\ufffd[0m\tb\nc\ufffd\ufffd\ufffd"
    assert line(" a\r\n b\u2028c\t") == "a b c"
    assert line("abcdef", limit=4) == "abc…"
    assert [count(1, "page"), count(1204, "page")] == ["1 page", "1,204 pages"]
