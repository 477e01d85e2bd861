"""What a question is about, without the words that only say what to do with it. Pure."""

import re

from app.retrieval.cues import LANGUAGES
from app.retrieval.tasks import AskedTask, Task
from ingestion.terms import fold

# Not laws: "which law governs" asks for them.
_DOCUMENT_NOUN = re.compile(
    "(?:"
    + "|".join(
        form
        for cues in LANGUAGES
        for nouns in (cues.documents, cues.papers, cues.records)
        for form in (nouns.one, nouns.many)
    )
    + r")\Z"
)
_WORD = re.compile(r"[\w·-]+")


def subject(question: str, asked: AskedTask) -> str:
    """The question as it is held against single sentences.

    A question about several documents names them and what to do with them ("compare ... of the contracts"): no sentence
    that answers it repeats those words. The question itself when nothing else is in it, and for local questions.
    """
    if asked.about:
        return asked.about
    if asked.task is Task.LOCAL:
        return question
    cue = {fold(word.lower()) for word in _WORD.findall(asked.cue)}
    kept: list[str] = []
    at = 0
    for word in _WORD.finditer(question):
        plain = fold(word.group().lower())
        if plain in cue or _DOCUMENT_NOUN.match(plain):
            kept.append(question[at : word.start()])
            at = word.end()
    kept.append(question[at:])
    left = " ".join("".join(kept).split())
    return left if len(_WORD.findall(left)) > 1 else question
