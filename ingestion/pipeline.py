"""The steps between parsed pages and the index, as pure functions: ranges, canonical text, text to embed."""

from collections.abc import Sequence

from ingestion.canonical import CanonicalText, ParsedPage
from ingestion.chunking import Chunk
from ingestion.languages import language_of
from ingestion.sandbox import RANGE_PAGES

__all__ = ["canonical_of", "embedding_text", "headed", "language_of", "ranges"]


def ranges(page_count: int, range_pages: int = RANGE_PAGES) -> list[tuple[int, int]]:
    """Page ranges (first, last), 1-based and inclusive, that one parse call each reads."""
    return [(first, min(first + range_pages - 1, page_count)) for first in range(1, page_count + 1, range_pages)]


def canonical_of(pages: Sequence[ParsedPage]) -> CanonicalText:
    """Join the pages of a whole document. Raises ValueError unless they are pages 1..n in order."""
    if [page.number for page in pages] != list(range(1, len(pages) + 1)):
        raise ValueError("pages must be numbered 1..n in order")
    return CanonicalText.of(page.text for page in pages)


def embedding_text(chunk: Chunk) -> str:
    """What the models see of a chunk."""
    return headed(chunk.header, chunk.text)


def headed(header: str, text: str) -> str:
    """The header, then the words."""
    return f"{header}\n{text}" if header else text
