"""Benchmarks of Steelyard's parts against rivals in the same run; their results are in docs/benchmarks."""
