"""Rotations that spread outliers before quantization: fixed (Hadamard) and learned."""
