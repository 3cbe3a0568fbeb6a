"""Flags of `steelyard simulate` that could never make sense, or would have no effect: refused before anything is played."""

from collections.abc import Mapping

from steelyard.cli.flags import above_zero, objective, unused, within
from steelyard.cli.simulated import Setting
from steelyard.sim.load import PATTERN_SECONDS, PATTERNS, Wanted

MOST_REQUESTS = 20_000_000  # some twenty minutes of playing
MOST_VARIATION = 5.0  # lengths that differ by a factor of 150, two times in three
LEAST_BURSTINESS, MOST_BURSTINESS = 0.01, 100.0
OTHERS = ("--other-rate", "--other-prompt-tokens", "--other-output-tokens")
OF_PATTERNS = (
    "--rate",
    "--prompt-tokens",
    "--output-tokens",
    *OTHERS,
    "--variation",
    "--burstiness",
    "--period",
    "--swing",
)
OF_TRACES = ("--start", "--speed", "--shared-cache", "--prefix-cache")
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "poisson": ("--burstiness", "--period", "--swing", *OTHERS),
    "gamma": ("--period", "--swing", *OTHERS),
    "sinusoid": OTHERS,
    "alternating": ("--swing",),
}


def check(given: frozenset[str], wanted: Wanted, setting: Setting) -> None:
    """Raise ValueError naming the flag, its value and the remedy, or the two flags that clash."""
    _effect(given, wanted, setting)
    _load(wanted)
    objective("--ttft", setting.ttft)
    objective("--tpot", setting.tpot)
    within("--max-sequences", setting.max_sequences, 1, 65_536)
    within("--max-batch-tokens", setting.max_batch_tokens, 1, 16_777_216)
    if setting.client_timeout is not None:
        above_zero("--client-timeout", setting.client_timeout)
    if setting.budget is not None and setting.budget < 1:
        raise ValueError(
            f"--budget is {setting.budget}; at least 1 accelerator is needed, or leave it out for no limit"
        )


def _effect(given: frozenset[str], wanted: Wanted, setting: Setting) -> None:
    if setting.service is not None:
        of_manifest = "with --service, whose spec.batching says it"
        unused(given, ("--max-sequences", "--max-batch-tokens"), of_manifest, "leave them out, or write it there")
    else:
        unused(given, ("--accelerators",), "without --service", "name a manifest, or leave it out")
    if wanted.trace is not None and wanted.pattern is None:
        unused(given, OF_PATTERNS, "with --trace, whose requests are played", "use --scale or --speed, or a --pattern")
        if wanted.trace.is_dir():
            unused(given, OF_TRACES[2:], f"with the folder {wanted.trace}, which has no prefix hashes", "leave it out")
    elif wanted.pattern is not None and wanted.trace is None:
        unused(
            given, OF_TRACES, "with --pattern, which is made up from its start on", "leave it out, or give a --trace"
        )
        without = WITHOUT_EFFECT.get(wanted.pattern, ())
        others = ", ".join(name for name in PATTERNS if name != wanted.pattern)
        unused(given, without, f"with --pattern {wanted.pattern}", f"leave it out, or use another of {others}")


def _load(wanted: Wanted) -> None:
    for flag, value in (
        ("--rate", wanted.rate),
        ("--prompt-tokens", wanted.prompt_tokens),
        ("--output-tokens", wanted.output_tokens),
        ("--other-rate", wanted.other_rate),
        ("--other-prompt-tokens", wanted.other_prompt_tokens),
        ("--other-output-tokens", wanted.other_output_tokens),
        ("--period", wanted.period),
        ("--duration", wanted.duration),
        ("--speed", wanted.speed),
        ("--scale", wanted.scale),
    ):
        above_zero(flag, value)
    seconds = PATTERN_SECONDS if wanted.duration is None else wanted.duration
    rate = max(wanted.rate, wanted.other_rate or 0.0)
    if wanted.pattern is not None and rate * seconds * wanted.scale > MOST_REQUESTS:
        told = f"{rate:g} requests/s for {seconds:g} s and --scale {wanted.scale:g} are more than {MOST_REQUESTS:,} requests"
        raise ValueError(f"--rate: {told}, which takes too long to play; lower one, or give a shorter --duration")
    within("--variation", wanted.variation, 0, MOST_VARIATION)
    within("--burstiness", wanted.burstiness, LEAST_BURSTINESS, MOST_BURSTINESS)
    within("--swing", wanted.swing, 0, 1)


def check_failures(moments: Mapping[str, float], wanted: Wanted, last: float) -> None:
    """Refuse failures after the duration that was asked for, or else the last arrival, at `last` seconds: nothing is played then.

    `moments` holds the seconds of each --fail as it was written.
    """
    for text, at in moments.items():
        if wanted.duration is not None and at >= wanted.duration:
            raise ValueError(
                f"--fail {text} comes after --duration {wanted.duration:g}s, so it has no effect; name an earlier time, or"
                " a longer duration"
            )
        if wanted.duration is None and at > last:
            raise ValueError(f"--fail {text} comes after the last arrival, at {last:.0f}s; name an earlier time")
