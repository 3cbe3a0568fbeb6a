"""Real vLLM on the CPU, apart from every other environment: for tests that load checkpoints or read arguments with it."""
