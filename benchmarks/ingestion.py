"""Ingestion speed: pages per core-second of our sandboxed path beside pdfium's raw text, in one run.

`python -m benchmarks.ingestion [FOLDER]` (default: tests/data/files). CPU seconds of the process and all its children,
user + system; imports are paid before the clock starts. Embedding is not part of it.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ingestion.canonical import ParsedPage
from ingestion.chunking import Chunk, chunk
from ingestion.errors import ParseError
from ingestion.pipeline import canonical_of, ranges
from ingestion.sandbox import Sandbox
from ingestion.sparse import encode_document

MODELS = Path.home() / ".cache" / "fullread" / "models"
WORDS = "The tenant pays the rent within seven days. "


@dataclass
class Spent:
    """CPU seconds per step, over all files."""

    raw_s: float = 0.0
    probe_s: float = 0.0
    parse_s: float = 0.0
    chunk_s: float = 0.0
    sparse_s: float = 0.0
    pages: int = 0
    files: int = 0
    chunks: int = 0
    not_ok: int = 0
    by_pdfium: int = 0

    @property
    def ours_s(self) -> float:
        """All steps of ours."""
        return self.probe_s + self.parse_s + self.chunk_s + self.sparse_s


def raw_text_s(path: Path) -> float:
    """CPU seconds of pdfium's text of all pages, in a forked child, imports not counted."""
    import pypdfium2

    child = os.fork()
    if child == 0:
        document = pypdfium2.PdfDocument(path)
        for page in document:
            textpage = page.get_textpage()
            textpage.get_text_range()
            textpage.close()
            page.close()
        os._exit(0)
    usage = os.wait4(child, 0)[2]
    return usage.ru_utime + usage.ru_stime


def sandbox_s(sandbox: Sandbox) -> float:
    """CPU seconds of the zygote and its finished children so far."""
    times = psutil.Process(sandbox.pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def ingest(path: Path, sandbox: Sandbox, spent: Spent) -> None:
    """Probe, parse, chunk and encode one file, adding to the books."""
    began = sandbox_s(sandbox)
    probe = sandbox.probe(path, path.name)
    probed = sandbox_s(sandbox)
    own = time.process_time()
    pages: list[ParsedPage] = []
    for first, last in ranges(probe.page_count):
        pages += sandbox.parse(path, path.name, first, last)
    parsed = time.process_time()
    chunks: list[Chunk] = chunk(canonical_of(pages), pages, title=path.stem)
    chunked = time.process_time()
    for item in chunks:
        encode_document(item.text, item.language)
    encoded = time.process_time()
    spent.probe_s += probed - began
    spent.parse_s += sandbox_s(sandbox) - probed + parsed - own
    spent.chunk_s += chunked - parsed
    spent.sparse_s += encoded - chunked
    spent.pages += len(pages)
    spent.files += 1
    spent.chunks += len(chunks)
    spent.not_ok += sum(page.state not in ("ok", "blank") for page in pages)
    spent.by_pdfium += sum(page.state == "ok" and page.parser == "pdfium" for page in pages)
    spent.raw_s += raw_text_s(path)


def warm(sandbox: Sandbox, path: Path) -> None:
    """Pay the imports: parsers, splitter, language model, stemmers."""
    sandbox.parse(path, path.name, 1, 1)
    page = ParsedPage(1, None, None, None, 0, WORDS * 100, (), (), "ok")
    for item in chunk(canonical_of([page]), [page], title="warm"):
        encode_document(item.text, "en")


def main() -> int:
    """Measure and print a table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "tests" / "data" / "files"
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".pdf")
    readable: list[Path] = []
    spent = Spent()
    with Sandbox(MODELS) as sandbox:
        for path in files:
            try:
                sandbox.probe(path, path.name)
                readable.append(path)
            except ParseError as error:
                print(f"left out: {path.name}: {error.code}")
        if not readable:
            print("no readable PDF")
            return 1
        warm(sandbox, readable[0])
        for path in readable:
            ingest(path, sandbox, spent)
    rows = (
        ("pdfium, raw text only", spent.raw_s),
        ("ours, whole path", spent.ours_s),
        ("- probe (own child process)", spent.probe_s),
        ("- parse: text, line boxes, structure, page state", spent.parse_s),
        ("- chunk: cut, headers, language", spent.chunk_s),
        ("- sparse vectors", spent.sparse_s),
    )
    print(f"\n{spent.files} files, {spent.pages} pages, {spent.chunks} chunks; ", end="")
    print(f"{spent.not_ok} pages without text, {spent.by_pdfium} pages where pdfium's lines replaced the blocks\n")
    print("| step | CPU s | pages per core-second |\n| --- | --- | --- |")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.2f} | {spent.pages / seconds if seconds else 0:.1f} |")
    share = spent.raw_s / spent.ours_s
    print(f"\nours / raw pdfium: {share:.3f} of its speed ({1 / share:.1f} x its time)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
