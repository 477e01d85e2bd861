"""Marker lines of prompts: text of documents can forge no marker and no control token of a chat template. Pure."""

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable
from uuid import UUID

MAX_NAME_CHARS = 120
_SEAL_CHARS = 12

# `<|im_start|>`, `</s>`, `<start_of_turn>`, `[INST]`: an engine may read them as control tokens wherever they stand.
_CONTROL = re.compile(r"<(?=[|｜/!?a-zA-Z_<][^<>\s]{0,48}>|[|｜])|\[(?=/?[A-Z_]{3,24}\])")
# Invisible and ignored when quotes are compared, so a quote of such a text can still be verified.
_APART = "\u200b"


def marker(label: str, seal: str) -> str:
    """A line that parts the sources of a prompt: `[[PAGE 3 1f2e...]]`."""
    return f"[[{label} {seal}]]"


def defuse(text: str) -> str:
    """The text with an invisible character inside whatever looks like a control token; nothing else changes."""
    return _CONTROL.sub(lambda match: match.group() + _APART, text)


def plain_name(name: str) -> str:
    """A file name is chosen by whoever uploaded it: one line, no controls, bounded."""
    plain = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in name)
    return defuse(" ".join(plain.split()))[:MAX_NAME_CHARS]


def corpus_seal(key: bytes, tenant_id: UUID) -> str:
    """The word in the marker lines of a tenant's corpus prompts.

    Nobody who writes a document knows it, and it is the same for all corpora of the tenant, so that a document keeps
    its tokens when others are added behind it.
    """
    return hmac.new(key, b"corpus seal:" + tenant_id.bytes, hashlib.sha256).hexdigest()[:_SEAL_CHARS]


def seal_of(parts: Iterable[str]) -> str:
    """A word that stands in none of the parts: a hash over all of them, so that none can hold its own."""
    texts = list(parts)
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\x00")
    seal = digest.hexdigest()[:_SEAL_CHARS]
    while any(seal in text for text in texts):
        seal = hashlib.sha256(seal.encode()).hexdigest()[:_SEAL_CHARS]
    return seal
