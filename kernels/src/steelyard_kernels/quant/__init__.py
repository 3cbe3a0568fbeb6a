"""Quantizers of weights and activations."""
