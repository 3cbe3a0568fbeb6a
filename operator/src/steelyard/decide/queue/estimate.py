"""What the gateway learns from its own calls: tokens per byte, seconds per prefill, a typical hand-off.

It has no tokenizer: a prompt's tokens are its bytes times a ratio learnt from `usage` (30 % noise costs half a point of
attainment, a tokenizer costs a dependency per model). A prefill of n new tokens takes f(n) = a + b·n + c·n² seconds,
fitted by least squares; until `ENOUGH_SAMPLES` the fit is held within half and twice its prior, and each replica gets one
request at a time (`theta_seconds` = 0). Standard library only; no clocks.
"""

from dataclasses import dataclass

from steelyard.decide.model.least_squares import non_negative

ENOUGH_SAMPLES = 20
THETA_SECONDS = 0.1  # outstanding prefill work of one replica, shared by all gateways
_FORGET = 0.995  # weight of older samples: half after about 140
_REFIT_EVERY = 16  # samples, once there are plenty: solving for each would cost more than serving the request
_SCALE = 1000.0  # tokens are fitted in thousands, for conditioning
_PRIOR_WEIGHT = 0.05  # pull of the prior at first, in samples at each of its anchor points
_PRIOR_FADES = 0.9  # per sample: it must not hold back a fit that has seen the truth
_PRIOR_LEAST = 1e-4  # it stays as a tie-breaker where all prompts are of one length
_LEAST_SECONDS = 1e-4
_ANCHORS = (0.064, 0.512, 2.048)  # thousands of tokens


@dataclass(frozen=True, slots=True)
class PrefillPrior:
    """Seconds of one prefill of n tokens before anything was measured: a + b·n + c·n²."""

    a: float
    b: float
    c: float

    def seconds(self, tokens: float) -> float:
        """Evaluate the prior; seconds."""
        return self.a + self.b * tokens + self.c * tokens * tokens


class TokenRatio:
    """Tokens per byte of prompt, as a ratio of sums with forgetting."""

    def __init__(self, tokens_per_byte: float = 0.25, weight_bytes: float = 2000.0) -> None:
        self._bytes = weight_bytes
        self._tokens = tokens_per_byte * weight_bytes

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Take in one prompt whose tokens are known; empty ones teach nothing."""
        if prompt_bytes <= 0 or prompt_tokens <= 0:
            return
        self._bytes = self._bytes * _FORGET + prompt_bytes
        self._tokens = self._tokens * _FORGET + prompt_tokens

    def tokens(self, prompt_bytes: float) -> float:
        """Estimate the tokens of a prompt; at least one."""
        return max(1.0, prompt_bytes * self._tokens / self._bytes)


class PrefillTime:
    """f(n) = a + b·n + c·n², with non-negative coefficients, learnt from (tokens, seconds)."""

    def __init__(self, prior: PrefillPrior) -> None:
        self.prior = prior
        self.samples = 0
        self._sums = [0.0] * 8  # weighted sums of n⁰ … n⁴ and of y·n⁰ … y·n²
        self._prior_sums = [0.0] * 8
        self._fit: tuple[float, ...] = (prior.a, prior.b * _SCALE, prior.c * _SCALE * _SCALE)
        for n in _ANCHORS:
            _add(self._prior_sums, n, prior.seconds(n * _SCALE), _PRIOR_WEIGHT)

    def learn(self, tokens: float, seconds: float) -> None:
        """Take in one prefill that had its replica to itself. Nonsense (not positive) is ignored."""
        if tokens <= 0 or seconds <= 0:
            return
        self._sums = [value * _FORGET for value in self._sums]
        _add(self._sums, tokens / _SCALE, seconds, 1.0)
        self.samples += 1
        if self.samples > 2 * ENOUGH_SAMPLES and self.samples % _REFIT_EVERY:
            return
        pull = max(_PRIOR_FADES**self.samples, _PRIOR_LEAST)
        sums = [value + pull * prior for value, prior in zip(self._sums, self._prior_sums, strict=True)]
        s0, s1, s2, s3, s4 = sums[:5]
        self._fit = non_negative((s0, s1, s2, s2, s3, s4), sums[5:]) or self._fit

    def seconds(self, tokens: float) -> float:
        """Estimate one prefill of `tokens` new tokens; positive, never decreasing in tokens."""
        n = tokens / _SCALE
        a, b, c = self._fit
        fitted = a + n * (b + n * c)
        if self.samples < ENOUGH_SAMPLES:
            prior = self.prior.seconds(tokens)
            fitted = min(max(fitted, prior / 2), prior * 2)
        return fitted if fitted > _LEAST_SECONDS else _LEAST_SECONDS


def theta_seconds(samples: int, gateways: int) -> float:
    """Bound on a replica's outstanding prefill work for one of `gateways`: one request at a time until f is known."""
    return 0.0 if samples < ENOUGH_SAMPLES else THETA_SECONDS / max(1, gateways)


class Smoothed:
    """A running mean with exponential forgetting, seconds."""

    def __init__(self, prior: float, weight: float = 0.1) -> None:
        self.value = prior
        self._weight = weight

    def learn(self, seconds: float) -> None:
        """Take in one measurement."""
        self.value += self._weight * (seconds - self.value)


def _add(sums: list[float], n: float, y: float, weight: float) -> None:
    """Add one point to the sums. Relative errors count: a prefill of 30 ms matters as much as one of 3 s."""
    power = weight / max(y * y, 1e-6)
    for i in range(5):
        sums[i] += power
        if i < 3:
            sums[5 + i] += power * y
        power *= n
