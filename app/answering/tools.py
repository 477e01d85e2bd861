"""The clients that answering works with; made by `app.bootstrap`."""

from dataclasses import dataclass

from app.core.db import Database
from app.engine.catalog import EngineProfile
from app.engine.client import EngineClient
from app.retrieval.search import SearchTools


@dataclass(frozen=True, slots=True)
class AnswerTools:
    """Clients and limits of answering. `context_tokens` is the prompt budget of a retrieval answer."""

    database: Database
    search: SearchTools
    engine: EngineClient
    profile: EngineProfile
    context_tokens: int
    #: Most prompt tokens that one full pass reads.
    full_pass_tokens: int
    #: Reading speed of the engine, for estimates.
    prefill_tokens_per_s: float
    embeddings_model: str
    #: Longest wait for a seat at the engine.
    wait_s: float
    #: Key of the tenants' cache salts.
    salt_key: bytes
