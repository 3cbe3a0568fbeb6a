"""Rules on the model and its engine: the forms of their names, and what a cache needs."""

from steelyard.api.engine import VERSION, Engine
from steelyard.api.model import ADAPTER_URI, SERVED_NAME, URI, Adapter, ModelCache, ModelSpec
from steelyard.api.rules.rule import Rule, spec

_HUB = "hf://example/model"

_FORMS = (
    Rule(
        name="model-uri-form",
        on=ModelSpec,
        cel=URI.cel("uri"),
        message=f"model.uri has another form; {URI.words}",
        accept=spec(model={"uri": "hf://Qwen/Qwen3-32B@main"}),
        reject=spec(model={"uri": "hf://Qwen"}),
        field="uri",
    ),
    Rule(
        name="served-name-form",
        on=ModelSpec,
        cel=SERVED_NAME.cel("servedName", optional=True),
        message=f"model.servedName has another form; {SERVED_NAME.words}",
        accept=spec(model={"servedName": "org/model:v1+a"}),
        reject=spec(model={"servedName": "my model"}),
        field="servedName",
    ),
    Rule(
        name="adapter-uri-form",
        on=Adapter,
        cel=ADAPTER_URI.cel("uri"),
        message=f"an adapter's uri has another form; {ADAPTER_URI.words}",
        accept=spec(model={"uri": _HUB, "adapters": [{"name": "a", "uri": "hf://org/a"}]}),
        reject=spec(model={"uri": _HUB, "adapters": [{"name": "a", "uri": "s3://bucket/a"}]}),
        field="uri",
    ),
    Rule(
        name="engine-version-form",
        on=Engine,
        cel=VERSION.cel("version", optional=True),
        message=f"engine.version has another form; {VERSION.words}",
        accept=spec(engine={"version": "0.32.0"}),
        reject=spec(engine={"version": "v0.32"}),
        field="version",
    ),
)

MODEL_RULES = (
    *_FORMS,
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
