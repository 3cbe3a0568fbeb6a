"""The engine's metrics, under vLLM's names and with vLLM's meaning, so that one autoscaler reads every engine.

Times are seconds of the monotonic clock. TTFT runs from the request's arrival (queueing and a pull included) to its
first token; inter-token latency is one observation per gap; time per output token is one per request, the mean of its
gaps. Prompt tokens are counted once, with the first token, by where their KV came from.
"""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody asks for `_created` series

_FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
)
_GAP = (
    0.002,
    0.005,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.06,
    0.08,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
)
_WHOLE = (
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
_LABEL = "model_name"


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the gauges read at a scrape."""

    running: Callable[[], float]
    waiting: Callable[[], float]
    kv_use: Callable[[], float]
    held: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Spent:
    """The times of one finished request, monotonic seconds; None where it did not get so far."""

    arrival: float
    started: float | None
    first_token: float | None
    last_token: float | None
    finished: float


class Metrics:
    """All series of one engine, in a registry of its own."""

    def __init__(self, model: str, kv_blocks: int, block: int, gauges: Gauges) -> None:
        self._registry = CollectorRegistry()
        self._model = model
        for name, text, read in (
            ("vllm:num_requests_running", "Sequences in the running batch.", gauges.running),
            ("vllm:num_requests_waiting", "Requests queued or waiting for transferred KV.", gauges.waiting),
            ("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", gauges.kv_use),
            ("steelyard_engine_kv_held", "Finished sequences waiting to be fetched.", gauges.held),
        ):
            Gauge(name, text, [_LABEL], registry=self._registry).labels(model).set_function(read)
        info = Gauge(
            "vllm:cache_config_info",
            "Sizes of the KV cache.",
            [_LABEL, "block_size", "num_gpu_blocks"],
            registry=self._registry,
        )
        info.labels(model, str(block), str(kv_blocks)).set(1)
        self._facts = Gauge(
            "steelyard_engine_info",
            "How this engine runs: form of weights and KV cache, batching, speculation, number of adapters.",
            [_LABEL, "weights", "kv", "batching", "speculation", "adapters"],
            registry=self._registry,
        )

        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed.")
        by_source = Counter(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by the origin of their KV.",
            [_LABEL, "source"],
            registry=self._registry,
        )
        self.computed = by_source.labels(model, "local_compute")
        self.cache_hit = by_source.labels(model, "local_cache_hit")
        self.transferred = by_source.labels(model, "external_kv_transfer")
        self.generated = self._counter("vllm:generation_tokens", "Tokens generated.")
        self.preemptions = self._counter("vllm:num_preemptions", "Sequences that lost their KV to others.")
        self.drafts = self._counter("vllm:spec_decode_num_drafts", "Steps of a sequence that had guesses.")
        self.guessed = self._counter("vllm:spec_decode_num_draft_tokens", "Tokens guessed.")
        self.accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Guesses that were right.")
        self.forgotten = self._counter(
            "steelyard_engine_kv_forgotten_tokens", "Tokens whose KV was dropped to keep to the window."
        )
        self.cache_queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.cache_hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        ended = Counter(
            "vllm:request_success", "Requests ended, by reason.", [_LABEL, "finished_reason"], registry=self._registry
        )
        self.ended = {reason: ended.labels(model, reason) for reason in ("stop", "length", "abort", "error")}

        self.first_token = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token.", _FIRST)
        self.gap = self._histogram("vllm:inter_token_latency_seconds", "Gap between two tokens of a request.", _GAP)
        self.per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Mean gap of a request's tokens.", _GAP
        )
        self.whole = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to end.", _WHOLE)
        self.queue = self._histogram("vllm:request_queue_time_seconds", "Arrival to first scheduling.", _WHOLE)
        self.prefill = self._histogram("vllm:request_prefill_time_seconds", "First scheduling to first token.", _WHOLE)
        self.decode = self._histogram("vllm:request_decode_time_seconds", "First token to last token.", _WHOLE)
        self.inference = self._histogram(
            "vllm:request_inference_time_seconds", "First scheduling to last token.", _WHOLE
        )
        self.prompt_length = self._histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.answer_length = self._histogram(
            "vllm:request_generation_tokens", "Tokens generated for a request.", _TOKENS
        )

        moved = Counter(
            "steelyard_engine_kv_transfer_bytes",
            "Bytes of KV state moved.",
            [_LABEL, "direction"],
            registry=self._registry,
        )
        self.bytes_in, self.bytes_out = moved.labels(model, "in"), moved.labels(model, "out")
        self.transfer_failures = self._counter(
            "steelyard_engine_kv_transfer_failures", "States that could not be loaded."
        )
        self.expired = self._counter("steelyard_engine_kv_expired", "Held states whose lease ended before a fetch.")
        self.transfer = self._histogram("steelyard_engine_kv_transfer_seconds", "Time to pull a state.", _FIRST)

    def describe(self, **facts: str) -> None:
        """Tell how the engine runs, once it is loaded; `facts` are the labels of `steelyard_engine_info`."""
        self._facts.labels(model_name=self._model, **facts).set(1)

    def prompt_done(self, prompt: int, cached: int, transferred: int) -> None:
        """Count a prompt's tokens by source, when its first token is there."""
        self.prompt_tokens.inc(prompt)
        self.cache_hit.inc(cached)
        self.transferred.inc(transferred)
        self.computed.inc(prompt - cached - transferred)

    def request_done(self, reason: str, spent: Spent, prompt: int, generated: int) -> None:
        """Observe one ended request; an aborted one counts in `request_success_total` only, as its times are not whole."""
        self.ended[reason].inc()
        if (
            reason in ("abort", "error")
            or spent.started is None
            or spent.first_token is None
            or spent.last_token is None
        ):
            return
        self.whole.observe(spent.finished - spent.arrival)
        self.queue.observe(spent.started - spent.arrival)
        self.prefill.observe(spent.first_token - spent.started)
        self.decode.observe(spent.last_token - spent.first_token)
        self.inference.observe(spent.last_token - spent.started)
        self.prompt_length.observe(prompt)
        self.answer_length.observe(generated)
        if generated > 1:
            self.per_token.observe((spent.last_token - spent.first_token) / (generated - 1))

    def expose(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition and its exact Content-Type, which Prometheus 3 insists on."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self._registry), content_type

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, [_LABEL], registry=self._registry).labels(self._model)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, [_LABEL], buckets=buckets, registry=self._registry).labels(self._model)
