"""Rules on the model: what its cache needs."""

from steelyard.api.model import ModelCache, ModelSpec
from steelyard.api.rules.rule import Rule, spec

_HUB = "hf://example/model"

MODEL_RULES = (
    Rule(
        name="cache-claim-with-its-kind",
        on=ModelCache,
        cel="has(self.claim) == (has(self.kind) && self.kind == 'claim')",
        message="claim names the PersistentVolumeClaim of kind claim: give both, or neither",
        accept=spec(model={"uri": _HUB, "cache": {"kind": "claim", "claim": "models"}}),
        reject=spec(model={"uri": _HUB, "cache": {"kind": "claim"}}),
        field="claim",
    ),
    Rule(
        name="cache-files-with-a-cache",
        on=ModelCache,
        cel="!has(self.files) || self.files.size() == 0 || (has(self.kind) && self.kind != 'none')",
        message="files chooses what a cache keeps; set kind to claim or node as well",
        accept=spec(model={"uri": _HUB, "cache": {"kind": "node", "files": ["*.gguf"]}}),
        reject=spec(model={"uri": _HUB, "cache": {"files": ["*.gguf"]}}),
        field="files",
    ),
    Rule(
        name="cache-of-a-hub-alone",
        on=ModelSpec,
        cel="!has(self.cache) || !has(self.cache.kind) || self.cache.kind == 'none' || self.uri.startsWith('hf://')",
        message="a cache keeps what comes from a hub (hf://); images and claims are there already, and an object store is read"
        " by the engine",
        accept=spec(model={"uri": _HUB, "cache": {"kind": "node"}}),
        reject=spec(model={"cache": {"kind": "node"}}),
        field="cache",
        reason="FieldValueForbidden",
    ),
)
