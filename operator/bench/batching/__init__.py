"""Four batching strategies side by side: one engine, one model, the same requests at the same moments.

    make compare-batching      (or `PYTHONPATH=operator e2e/bootstrap.sh python -m bench.batching`)

The engine's own scheduler and llama.cpp run on a clock that advances by the CPU time of each step, so that other work on the
machine delays nothing, and arrivals fall between the same steps as they would on an idle core.
"""
