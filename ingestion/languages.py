"""Which language a text is in, out of a plausible set. Short or wordless text has none of its own."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

UNKNOWN: Final = "und"
MIN_LETTERS: Final = 40
_SAMPLE_CHARS: Final = 2000
_MIN_CONFIDENCE: Final = 0.5
# Languages of business documents. The model knows more, and names exotic ones for short or odd text.
PLAUSIBLE: Final = (
    "ar", "bg", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "gl", "he", "hi", "hr", "hu",
    "id", "it", "ja", "ko", "lt", "lv", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sr", "sv", "th", "tr", "uk",
    "vi", "zh",
)  # fmt: skip


@cache
def _identifier() -> Any:
    # Imported late: the model takes half a second.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(PLAUSIBLE)
    return identifier


def _classify(text: str) -> tuple[str, float]:
    # Capitals confuse the model: a heading in English came out as German.
    language, confidence = _identifier().classify(text.lower())
    return str(language), float(confidence)


def _letters(text: str) -> int:
    return sum(char.isalpha() for char in text)


def language_of(text: str) -> str:
    """ISO 639-1 code of the text's main language, or `und` for text without enough letters.

    Long text is judged by three samples (begin, middle, end).
    """
    if len(text) > 3 * _SAMPLE_CHARS:
        middle = len(text) // 2
        text = " ".join(
            (text[:_SAMPLE_CHARS], text[middle : middle + _SAMPLE_CHARS], text[len(text) - _SAMPLE_CHARS :])
        )
    if _letters(text) < 12:
        return UNKNOWN
    return _classify(text)[0]


def languages_of_parts(parts: Sequence[str], document_language: str) -> list[str]:
    """Language of each part. A part that is short, unsure, or alone in its language inherits the document's.

    One odd part is noise; a language is believed when it holds a tenth of the parts, or two parts surely.
    """
    found: list[tuple[str, float]] = [
        _classify(part) if _letters(part) >= MIN_LETTERS else (document_language, 0.0) for part in parts
    ]
    counts = Counter(language for language, confidence in found if confidence >= _MIN_CONFIDENCE)
    believed = {document_language}
    believed |= {language for language, count in counts.items() if count >= max(2, len(parts) // 10)}
    return [
        language if language in believed and confidence >= _MIN_CONFIDENCE else document_language
        for language, confidence in found
    ]
