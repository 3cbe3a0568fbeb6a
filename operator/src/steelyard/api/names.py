"""Names of the objects that belong to one InferenceService: a function of the owner's name and a role, never random.

A name that would be longer than a DNS label (63 characters) is cut and gets a hash of the whole, so that two long
owners never share a child. The functions are a promise to clusters in use: a test holds a golden list.
"""

import hashlib

LABEL_LIMIT = 63
HASH_LENGTH = 8

# Suffixes that children use. An InferenceService may not end in one: `chat-decode` as a service of its own would meet
# the decode pool of `chat`.
SUFFIXES = ("prefill", "decode", "aggregated", "gateway")

# What is the operator's inside an engine's pod. Users' additions may not use these names, nor mount over these folders.
OWN_CONTAINERS = ("weights",)
OWN_VOLUMES = ("models", "settings", "tmp")
OWN_FOLDERS = ("/models", "/etc/steelyard", "/tmp")  # noqa: S108 (folders in the engine's container)


def child(owner: str, suffix: str) -> str:
    """Name the child `<owner>-<suffix>`, cut and hashed where it would pass 63 characters."""
    name = f"{owner}-{suffix}"
    if len(name) <= LABEL_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:HASH_LENGTH]
    room = LABEL_LIMIT - len(suffix) - HASH_LENGTH - 2
    return f"{owner[:room].rstrip('-')}-{digest}-{suffix}"


def engines(owner: str, role: str) -> str:
    """Name the Deployment, headless Service, settings and disruption budget of one role's engines."""
    return child(owner, role)


def gateway(owner: str) -> str:
    """Name the gateway's Deployment and the Service that clients call: the owner's own name."""
    return owner


def gateway_settings(owner: str) -> str:
    """Name the ConfigMap, ServiceAccount and Role of the gateway."""
    return child(owner, "gateway")


def quantize_job(owner: str, key: str) -> str:
    """Name the Job that quantizes a service's weights; `key` tells those of different recipes and settings apart."""
    return child(owner, f"quantize-{key}")


def label_value(text: str) -> str:
    """Make any text, such as a served model name, a valid label value; changed text gets a hash to stay distinct."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text).strip("-_.")
    if kept == text and len(text) <= LABEL_LIMIT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]
    return f"{kept[: LABEL_LIMIT - HASH_LENGTH - 1].rstrip('-_.')}-{digest}".lstrip("-")
