"""What the gateway knows from its own requests: estimates for the queues, arrivals for the operator, judgements for all.

An exchange passes here as it arrives, is prefilled, begins to answer, and ends. Prompt tokens are an estimate from bytes
until the prefill call's usage says better; the estimate's window is then corrected.
"""

from steelyard.decide.queue.estimate import ENOUGH_SAMPLES, PrefillTime, Smoothed, TokenRatio, theta_seconds
from steelyard.decide.queue.judge import Outcome, Timing, judge, length_class, mean_seconds_per_token
from steelyard.decide.queue.windows import ArrivalWindows
from steelyard.gateway.bodies import ClientBody
from steelyard.gateway.exchange import Exchange
from steelyard.gateway.metrics import Metrics
from steelyard.gateway.settings import Settings
from steelyard.gateway.usage import Usage

SAMPLE_SECONDS = 0.02  # between prefills that are learnt from, once there are plenty: each costs as much as a dispatch


class Ledger:
    """Learnt figures and counts of one process. Times are on the loop's clock unless called wall."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.windows = ArrivalWindows()
        self._metrics = metrics
        self._ratio = TokenRatio()
        self._handoff = Smoothed(settings.handoff_seconds)
        self._prefill = PrefillTime(settings.prior)
        self._sample_due = 0.0
        self._owed = 0.0  # uncached tokens that the counter has too many, as a negative number
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Take over settings; a new prior forgets what was learnt under the old one."""
        if settings.prior != self._prefill.prior:
            self._prefill = PrefillTime(settings.prior)
        self._gateways, self._context = settings.gateways, float(settings.context_length)
        self._budget, self._objectives = settings.ttft_budget, settings.judged_by
        self.theta = theta_seconds(self._prefill.samples, self._gateways)  # what dispatch goes by, seconds

    def prefill_seconds(self, tokens: float) -> float:
        """Estimate one prefill of so many new tokens."""
        return self._prefill.seconds(tokens)

    def prompt_tokens(self, body: ClientBody) -> float:
        """Estimate the tokens of a new request's prompt; exact where it came as token ids."""
        tokens = body.prompt_token_ids or self._ratio.tokens(len(body.prompt))
        return tokens if tokens < self._context else self._context

    def arrived(self, exchange: Exchange, wall: float) -> float:
        """Count a new request whose uncached tokens have been estimated, in the window of unix time `wall`. Return the
        seconds that its prefill should take."""
        tokens = exchange.tokens
        self._metrics.arrived += 1
        self._uncached(tokens)
        seconds = self._prefill.seconds(tokens)
        exchange.counted_at = wall
        exchange.counted = 0.0 if self._hopeless(seconds) else tokens
        if exchange.counted:
            self.windows.add(wall, exchange.counted)
        else:
            self._metrics.hopeless_tokens += tokens
        return seconds

    def _uncached(self, tokens: float) -> None:
        """Count uncached tokens, or correct what was counted: a counter never falls, so what was too much is taken off the
        next ones."""
        self._owed += tokens
        if self._owed > 0:
            self._metrics.uncached_tokens += self._owed
            self._owed = 0.0

    def _hopeless(self, seconds: float) -> bool:
        """Whether so long a prefill misses the objective even alone: no number of replicas lets that request meet it, so
        it must not ask for more of them."""
        return self._budget is not None and seconds > self._budget

    def prefilled(self, exchange: Exchange, usage: Usage | None, *, alone: bool, now: float) -> float:
        """Learn from a prefill call; `alone` if it had its replica to itself. Return the tokens of its context."""
        if exchange.kv_transfer_params is None:
            self._metrics.handoffs_missing += 1
        if usage is None or not usage.prompt_tokens:
            return exchange.tokens
        uncached = float(max(0, usage.prompt_tokens - usage.cached_tokens))
        if exchange.body.prompt_token_ids is None:
            self._ratio.learn(len(exchange.body.prompt), usage.prompt_tokens)
        if alone:
            self._learn(uncached, now - exchange.sent_at, now)
        if exchange.counted_at is not None:
            self._uncached(uncached - exchange.tokens)
            right = 0.0 if self._hopeless(self._prefill.seconds(uncached)) else uncached
            self.windows.add(exchange.counted_at, right - exchange.counted)
            exchange.counted = right
        exchange.tokens = uncached
        exchange.prompt_counted = usage.prompt_tokens
        return float(usage.prompt_tokens)

    def first_byte(self, exchange: Exchange, *, alone: bool, now: float) -> None:
        """Learn from the first byte of an answer: of a hand-off, or of an aggregated replica's prefill."""
        if exchange.aggregated:
            if alone:
                self._learn(exchange.tokens, now - exchange.sent_at, now)
        elif exchange.kv_transfer_params is not None:
            self._handoff.learn(now - exchange.sent_at)

    def ended(self, exchange: Exchange, outcome: Outcome, now: float) -> None:
        """Judge a request that is over, and count what it was."""
        metrics = self._metrics
        first, last = self._first_token_at(exchange), exchange.last_at or now
        tokens, prompt = exchange.answer_tokens, exchange.prompt_tokens
        ttft = tpot = None
        if first is not None:
            ttft, tpot = first - exchange.arrived, mean_seconds_per_token(first, max(first, last), tokens)
        ttft_met, tpot_met = judge(outcome, Timing(ttft, tpot, tokens), self._objectives)
        metrics.judged(outcome, ttft_met, tpot_met, length_class(prompt))
        metrics.answer_tokens += tokens * exchange.body.choices
        if outcome is not Outcome.COMPLETED:
            return
        metrics.prompt_tokens += round(prompt)
        metrics.e2e.observe(last - exchange.arrived)
        if ttft is not None:
            metrics.ttft.observe(ttft)
        if tpot is not None:
            metrics.tpot.observe(tpot)
        if exchange.first_at is not None and exchange.prefilled_at is not None:
            metrics.handoff.observe(exchange.first_at - exchange.prefilled_at)

    def _learn(self, tokens: float, seconds: float, now: float) -> None:
        if now < self._sample_due and self._prefill.samples > ENOUGH_SAMPLES:
            return
        self._sample_due = now + SAMPLE_SECONDS
        self._prefill.learn(tokens, seconds)
        self.theta = theta_seconds(self._prefill.samples, self._gateways)

    def _first_token_at(self, exchange: Exchange) -> float | None:
        """When the first token was there: seen in a stream, estimated for an answer in one piece."""
        if exchange.first_at is not None or exchange.last_at is None:
            return exchange.first_at
        estimate = self._prefill.seconds(exchange.tokens) if exchange.aggregated else self._handoff.value
        return min(exchange.sent_at + estimate, exchange.last_at)
