"""Container images without a registry: contexts from uv's lock, layers by docker or buildah, archives for the clusters."""
