"""llama.cpp's server engine inside this process (xllamacpp), reached over its loopback port with a key of its own.

Its HTTP dialect is its own: app/local/engine.py is what the product talks to.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PROMPT_CACHE_MIB = 512
_HTTP_THREADS = 12  # each request in flight holds one, and counting, metrics and health need some too


class EngineStartError(Exception):
    """The model cannot be loaded; the message names the file."""


@dataclass(frozen=True, slots=True)
class Llama:
    """A loaded model. `server` only has to stay alive; everything goes over `client`."""

    server: Any
    client: httpx.AsyncClient
    window_tokens: int
    slots: int


def start(gguf: Path, name: str, *, threads: int, slots: int, window_tokens: int) -> Llama:
    """Load `gguf` (0.5-2 s for the packaged model) with `slots` windows of `window_tokens` each.

    Raises EngineStartError. The window is cut to what the model was trained for.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineStartError(f"llama.cpp cannot be loaded ({error}): install libgomp1, or set ENGINE_URL") from error
    if not gguf.is_file():
        raise EngineStartError(f"{gguf} is not there: run `fullread models pull`, or check --gguf")
    with gguf.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise EngineStartError(f"{gguf} is not a GGUF file")
    key = secrets.token_hex(32)
    params = xllamacpp.CommonParams()
    params.model.path = str(gguf)
    params.model_alias = {name}
    params.n_ctx = slots * window_tokens
    params.n_parallel = slots
    # The step of reading: a lost client is noticed within two. 128 would be 13 % faster and over 2 s on one busy core.
    params.n_batch = 64
    params.sse_ping_interval = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.n_threads_http = _HTTP_THREADS
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.sampling.temp = 0.0
    params.endpoint_metrics = True
    params.api_keys = [key]
    params.ui = False
    params.verbosity = 0  # higher levels print prompts
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise EngineStartError(f"{gguf} cannot be loaded: {error}") from error
    headers = {"Authorization": f"Bearer {key}"}
    address = str(server.listening_address)
    with httpx.Client(base_url=address, headers=headers, timeout=30.0) as probe:
        meta = probe.get("/v1/models").json()["data"][0]["meta"]
    return Llama(
        server=server,
        client=httpx.AsyncClient(
            base_url=address,
            headers=headers,
            # It closes kept-alive connections after a stream: reuse would fail now and then. No read limit: prompts
            # of 8,192 tokens take a minute, and a client that leaves is noticed by the front.
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=httpx.Timeout(None, connect=5.0),
        ),
        window_tokens=min(window_tokens, int(meta["n_ctx"]), int(meta["n_ctx_train"])),
        slots=slots,
    )


async def render(llama: Llama, body: Mapping[str, Any]) -> str:
    """The prompt text that the chat template makes of `messages`. Raises httpx.HTTPStatusError on bad messages."""
    reply = await llama.client.post("/apply-template", json=dict(body))
    reply.raise_for_status()
    return str(reply.json()["prompt"])


async def tokens_of(llama: Llama, text: str, *, add_special: bool) -> list[int]:
    """Token ids of `text`; control tokens in it are read as such, as the model's own prompt reading does."""
    reply = await llama.client.post("/tokenize", json={"content": text, "add_special": add_special})
    reply.raise_for_status()
    return [int(token) for token in reply.json()["tokens"]]


async def text_of(llama: Llama, tokens: Sequence[int]) -> str:
    """The text of token ids."""
    reply = await llama.client.post("/detokenize", json={"tokens": list(tokens)})
    reply.raise_for_status()
    return str(reply.json()["content"])


async def counters(llama: Llama) -> dict[str, float]:
    """The engine's own metrics by name, without the `llamacpp:` prefix."""
    reply = await llama.client.get("/metrics")
    reply.raise_for_status()
    pairs = (line.split() for line in reply.text.splitlines() if line.startswith("llamacpp:"))
    return {name.removeprefix("llamacpp:"): float(value) for name, value in pairs}
