"""`steelyard-quantize`: a folder of safetensors in, a smaller checkpoint that engines load out, one layer in memory at a time."""
