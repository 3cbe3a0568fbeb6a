"""`steelyard-kernels compare`: every technique on one real model and one text, side by side."""
