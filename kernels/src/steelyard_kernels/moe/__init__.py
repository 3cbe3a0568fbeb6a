"""Mixtures of experts: who goes to which expert, how many fit, and many experts' products at once, on one process or several."""
