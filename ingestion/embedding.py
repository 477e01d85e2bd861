"""Texts to dense vectors over an OpenAI-compatible /v1/embeddings; adds the prefixes that e5 models need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import httpx

LANE_HEADER = "X-Fullread-Lane"
Lane = Literal["batch", "interactive"]
TEXTS_AT_ONCE = 32
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TOO_LONG_PARAMS = frozenset({"input_tokens", "input_text"})


class EmbeddingUnavailable(Exception):  # noqa: N818 the name says the state
    """The server does not answer or is busy: the same request may succeed later (after `retry_after_s`)."""

    retryable = True

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EmbeddingRejected(Exception):  # noqa: N818
    """The server refuses the request or answers with something that cannot be used: a retry changes nothing."""

    retryable = False

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What stands before a query and before a passage; empty strings for models that want none."""

    query: str
    passage: str


def prefixes_of(model: str) -> Prefixes:
    """e5 models need `query: ` and `passage: ` (Wang et al., arXiv:2402.05672); other names get nothing."""
    return Prefixes("query: ", "passage: ") if "e5" in model.lower() else Prefixes("", "")


class EmbeddingClient:
    """One model on one server. Not to be shared across a fork; close it, or use it as a context manager."""

    def __init__(self, url: str, api_key: str, model: str, dimensions: int, timeout_s: float = 120.0) -> None:
        self.model = model
        self.dimensions = dimensions
        self._prefixes = prefixes_of(model)
        self._endpoint = f"{url.rstrip('/')}/v1/embeddings"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = httpx.Timeout(timeout_s, connect=5.0)
        self._tls = httpx.create_ssl_context()
        # A server of ours is never behind the proxy of the environment.
        self._client = httpx.Client(timeout=self._timeout, verify=self._tls, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def documents(self, texts: Sequence[str], *, lane: Lane = "batch") -> list[list[float]]:
        """Unit vectors of passages, in order; 32 texts a request, in the batch lane unless somebody waits for them.

        Raises EmbeddingUnavailable (a retry helps) or EmbeddingRejected.
        """
        vectors: list[list[float]] = []
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            batch = [self._prefixes.passage + text for text in texts[first : first + TEXTS_AT_ONCE]]
            vectors.extend(self._send(batch, lane))
        return vectors

    def query(self, text: str) -> list[float]:
        """The unit vector of one question; the interactive lane. Raises as `documents`."""
        return self._send([self._prefixes.query + text], "interactive")[0]

    async def aquery(self, text: str) -> list[float]:
        """`query` without blocking the event loop."""
        texts = [self._prefixes.query + text]
        try:
            async with httpx.AsyncClient(timeout=self._timeout, verify=self._tls, trust_env=False) as client:
                response = await client.post(self._endpoint, **self._request(texts, "interactive"))
                if _too_long(response):
                    response = await client.post(self._endpoint, **self._request(texts, "interactive", cut=True))
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        return self._vectors(response, len(texts))[0]

    def _send(self, texts: Sequence[str], lane: str) -> list[list[float]]:
        try:
            response = self._client.post(self._endpoint, **self._request(texts, lane))
            if _too_long(response):
                response = self._client.post(self._endpoint, **self._request(texts, lane, cut=True))
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        return self._vectors(response, len(texts))

    def _request(self, texts: Sequence[str], lane: str, *, cut: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if cut:
            body["truncate_prompt_tokens"] = -1  # vLLM: cut to the model's window instead of refusing
        return {"json": body, "headers": {**self._headers, LANE_HEADER: lane}}

    def _vectors(self, response: httpx.Response, count: int) -> list[list[float]]:
        if response.status_code in RETRY_STATUSES:
            raise EmbeddingUnavailable(
                f"the embeddings server answered {response.status_code}", _retry_after_s(response)
            )
        if response.status_code != httpx.codes.OK:
            raise EmbeddingRejected(
                f"the embeddings server refused the request with {response.status_code}", response.status_code
            )
        try:
            data = sorted(response.json()["data"], key=lambda item: item["index"])
            vectors = [[float(value) for value in item["embedding"]] for item in data]
        except (ValueError, KeyError, TypeError) as error:
            raise EmbeddingRejected("the embeddings server's answer has another shape") from error
        if len(vectors) != count:
            raise EmbeddingRejected(f"the embeddings server gave {len(vectors)} vectors for {count} texts")
        return [self._unit(vector) for vector in vectors]

    def _unit(self, vector: list[float]) -> list[float]:
        if len(vector) != self.dimensions:
            raise EmbeddingRejected(
                f"the embeddings server gave {len(vector)} dimensions instead of {self.dimensions}: "
                "EMBEDDINGS_MODEL and EMBEDDINGS_DIMENSIONS do not belong together"
            )
        norm = math.sqrt(math.fsum(value * value for value in vector))
        if not math.isfinite(norm) or norm < 1e-6:
            raise EmbeddingRejected("the embeddings server gave a vector without a direction")
        return vector if abs(norm - 1.0) < 1e-3 else [value / norm for value in vector]


def _too_long(response: httpx.Response) -> bool:
    if response.status_code != httpx.codes.BAD_REQUEST:
        return False
    try:
        return response.json()["error"]["param"] in _TOO_LONG_PARAMS
    except (ValueError, KeyError, TypeError):
        return False


def _unreachable(error: httpx.HTTPError) -> EmbeddingUnavailable:
    return EmbeddingUnavailable(f"the embeddings server cannot be reached ({type(error).__name__})")


def _retry_after_s(response: httpx.Response) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None
