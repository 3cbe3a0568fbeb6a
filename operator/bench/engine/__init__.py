"""The embedded engine against a bare llama.cpp loop, on one core in one run; what a hand-off and a start cost.

    PYTHONPATH=operator e2e/bootstrap.sh python -m bench.engine      (or `make bench`)

Both run in this process, one after the other in pairs, with the weights of the demo. What counts is CPU time of the whole
process, so that other work on the machine disturbs little and what the engine's threads do beside llama.cpp is seen.
"""
