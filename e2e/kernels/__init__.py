"""The environment of `kernels/`: torch without CUDA, apart from the workspace's, cached by content."""
