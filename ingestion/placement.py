"""Where a reader's words stand in another reader's text: by letters and digits only, so layout does not matter."""

import re
import unicodedata
from bisect import bisect_left
from typing import Final

_RUN = re.compile(r"[^\W_]+")
_PROBES: Final = (24, 12, 6)


def squeeze(text: str) -> str:
    """Only the letters and digits, compatibility forms resolved, case folded."""
    return "".join(_RUN.findall(unicodedata.normalize("NFKC", text).casefold()))


class Squeezed:
    """Letters and digits of a text, with the offset of each."""

    def __init__(self, text: str) -> None:
        letters: list[str] = []
        self.offsets: list[int] = []
        for run in _RUN.finditer(text):
            word = run.group()
            if word.isascii():
                letters.append(word.lower())
                self.offsets.extend(range(run.start(), run.end()))
                continue
            for offset, char in enumerate(word, start=run.start()):
                # Ligatures and sharp s fold to several letters; all keep the offset of their one character.
                folded = squeeze(char)
                letters.append(folded)
                self.offsets.extend([offset] * len(folded))
        self.letters = "".join(letters)

    def index_of(self, offset: int) -> int:
        """Index of the first letter at or after a text offset."""
        return bisect_left(self.offsets, offset)

    def find(self, words: str, begin: int) -> tuple[int, int] | None:
        """Text span of squeezed words at or after a letter index."""
        found = self.letters.find(words, begin) if words else -1
        if found < 0:
            return None
        return self.offsets[found], self.offsets[found + len(words) - 1] + 1

    def locate(self, text: str, begin: int) -> tuple[int, int] | None:
        """Text span of a passage: exact, or by its first and last letters where marks (links) stand between."""
        words = squeeze(text)
        exact = self.find(words, begin)
        if exact is not None or len(words) < 2:
            return exact
        for letters in _PROBES:
            probe = min(letters, len(words) // 2)
            first = self.letters.find(words[:probe], begin)
            if first < 0:
                continue
            limit = first + 4 * len(words) + 400
            last = self.letters.find(words[-probe:], first + probe, limit)
            if last >= 0:
                return self.offsets[first], self.offsets[last + probe - 1] + 1
        return None
