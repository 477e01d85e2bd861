"""The local engine's /metrics: what llama.cpp counts, under the vllm:* names that the platform reads."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LABELS = ["model_name"]
_FIRST_TOKEN_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Meters:
    """Counters of the front itself; those of the engine are read at the moment somebody asks."""

    def __init__(self, model: str, capacity_tokens: int) -> None:
        self._model = model
        self._capacity_tokens = capacity_tokens
        self._registry = CollectorRegistry()
        self.done = Counter("vllm:request_success", "Requests answered", _LABELS, registry=self._registry).labels(model)
        self.first_token_s = Histogram(
            "vllm:time_to_first_token_seconds",
            "From arrival to the first byte of a stream",
            _LABELS,
            buckets=_FIRST_TOKEN_BUCKETS_S,
            registry=self._registry,
        ).labels(model)

    def text(self, inside: Mapping[str, float], *, waiting: int, prompt_tokens: int) -> str:
        """The exposition text. `inside`: llama.cpp's own numbers; `waiting`: requests not yet given to it."""
        registry = CollectorRegistry()
        cached = inside.get("prompt_tokens_cached_total", 0.0)
        read = inside.get("prompt_tokens_total", 0.0) + cached
        gauges = {
            "vllm:num_requests_running": inside.get("requests_processing", 0.0),
            "vllm:num_requests_waiting": waiting + inside.get("requests_deferred", 0.0),
            "vllm:kv_cache_usage_perc": min(1.0, prompt_tokens / self._capacity_tokens),
        }
        counters = {
            "vllm:prompt_tokens": read,
            "vllm:generation_tokens": inside.get("tokens_predicted_total", 0.0),
            "vllm:prefix_cache_queries": read,
            "vllm:prefix_cache_hits": cached,
            "vllm:num_preemptions": 0.0,  # slots are fixed: nothing is ever put back
        }
        for name, value in gauges.items():
            Gauge(name, "As vLLM", _LABELS, registry=registry).labels(self._model).set(value)
        for name, value in counters.items():
            Counter(name, "As vLLM", _LABELS, registry=registry).labels(self._model).inc(value)
        layout = ["block_size", "num_gpu_blocks", "enable_prefix_caching"]
        cache = Gauge("vllm:cache_config_info", "llama.cpp keeps tokens, not blocks", layout, registry=registry)
        cache.labels("1", str(self._capacity_tokens), "True").set(1)
        return generate_latest(self._registry).decode() + generate_latest(registry).decode()
