"""Which model server answers and what it can take: window, slots, the form of its answers. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from app.core.ids import derived_id
from app.settings import Settings

PACKAGED_MODEL_ID = "smollm2-135m-instruct"

AnswerForm = Literal["extractive", "generative"]

SMALL_SECTION_TOKENS = 1500
"""The packaged model's speed halves by 4,000 tokens of a prompt: 1,000-1,900 are its best sizes."""
_ROOM_FOR_ANSWER_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One model on one OpenAI-compatible server. `url` is the base without /v1."""

    name: str
    url: str
    model: str
    window_tokens: int
    slots: int
    answer_form: AnswerForm
    section_tokens: int
    #: SHA-256 of the weights, or another name that changes with them; empty when nobody knows.
    digest: str = ""

    @property
    def engine_id(self) -> UUID:
        """The same server has the same id in every process."""
        return derived_id("engine", self.url)


def local_model_id(gguf: Path | None) -> str:
    """The id under which the local engine serves: stable for the packaged model, a file's stem for another."""
    return PACKAGED_MODEL_ID if gguf is None else gguf.stem.lower()


def section_tokens(window_tokens: int, answer_form: AnswerForm) -> int:
    """How many tokens of a corpus go into one prompt when it is read in sections."""
    if answer_form == "extractive":
        return min(SMALL_SECTION_TOKENS, window_tokens // 2)
    return max(window_tokens // 2, window_tokens - _ROOM_FOR_ANSWER_TOKENS)


def profile(settings: Settings) -> EngineProfile:
    """The engine that the settings name."""
    return EngineProfile(
        name="engine",
        url=settings.engine_url.rstrip("/"),
        model=settings.engine_model,
        window_tokens=settings.engine_window_tokens,
        slots=settings.engine_slots,
        answer_form=settings.engine_answer_form,
        section_tokens=section_tokens(settings.engine_window_tokens, settings.engine_answer_form),
        digest=settings.engine_model_digest,
    )
