"""The run: every layer in turn, with what calibration and both models' hidden states are after the layers before it.

Three streams go through the layers: the calibration windows and the evaluation windows through the quantized layers, so that a
later layer makes up for earlier ones' errors, and the evaluation windows through the original ones, for the perplexity before.
Memory holds one layer, its statistics, and the streams.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quantize import codes, layer, text
from steelyard_kernels.quantize.errors import QuantizeError
from steelyard_kernels.quantize.recipe import Recipe, as_mapping
from steelyard_kernels.quantize.report import REPORT, Report
from steelyard_kernels.quantize.source import LINEARS, Source, open_source
from steelyard_kernels.quantize.workfolder import WorkFolder, taken
from steelyard_kernels.rotation import learned

COPIED = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "vocab.json", "merges.txt",
          "generation_config.json", "chat_template.jinja", "added_tokens.json")  # fmt: skip
SPARE = 1.05  # disk asked for beyond the estimate
Progress = Callable[[int, int], None]


class Job(NamedTuple):
    """Everything a run needs. `judged` windows measure perplexity; 0 skips that."""

    source: Path
    target: Path
    recipe: Recipe
    text: Path | None = None
    evaluation: Path | None = None
    judged: int = 16
    restart: bool = False
    device: str = "cpu"


def quantize(job: Job, progress: Progress = lambda done, total: None) -> Report:
    """Write the quantized checkpoint into `job.target`, a new folder; `progress` hears of finished layers.

    QuantizeError says what is wrong with the input, and then nothing is left behind but what an earlier run had finished; Busy and
    Taken say that another process is writing the target, or has written it. After an interruption, equal arguments go on.
    """
    started = time.monotonic()
    if job.target.exists():
        raise taken(job.target)
    source = _rotated(open_source(job.source), job.recipe)
    group = codes.settle_group(
        job.recipe, {source.places[f"model.layers.0.{name}.weight"].shape[1] for name in LINEARS}
    )
    with WorkFolder(job.target) as work, torch.no_grad():
        windows = _windows(job)
        _check_disk(job, source, group, windows)
        work.begin(_fingerprint(job, source, windows), job.restart)
        try:
            with torch.device(job.device):
                resumed = work.done
                for number in range(work.done, source.shape.layers):
                    progress(number, source.shape.layers)
                    _one_layer(job, source, group, number, windows, work)
                progress(source.shape.layers, source.shape.layers)
                perplexity = _perplexity(source, windows, work.state(), job.device) if _judged(windows) else None
            report = _finish(job, source, group, work, perplexity, resumed, started)
        except QuantizeError:
            work.remove()
            raise
    return report


def _rotated(source: Source, recipe: Recipe) -> Source:
    if recipe.rotation == "none":
        return source
    width, head = source.shape.width, source.shape.head
    try:
        if recipe.rotation == "hadamard":
            return source.rotated(learned.fixed(width, head))
        return source.rotated(learned.read(Path(recipe.rotation), width, head))
    except ValueError as error:
        raise QuantizeError(f"rotation {recipe.rotation!r} cannot be used: {error}") from error


def _windows(job: Job) -> text.Windows | None:
    samples = job.recipe.samples if job.recipe.calibrates else 0
    if not samples and not job.judged:
        return None
    tokenizer = text.tokenizer_of(job.source)
    return text.windows(tokenizer, job.text, job.evaluation, samples, job.recipe.tokens, job.judged)


def _judged(windows: text.Windows | None) -> bool:
    return windows is not None and len(windows.evaluation) > 0


def _one_layer(
    job: Job, source: Source, group: int, number: int, windows: text.Windows | None, work: WorkFolder
) -> None:
    tensors = {name: tensor.to(job.device) for name, tensor in source.layer(number).items()}
    state = _streams(source, number, windows, work, job.device)
    original = Llama(source.config, tensors)
    seen = layer.watch(original, number, state["calibration"]) if "calibration" in state else None
    found = layer.quantize(job.recipe, group, source.shape, number, tensors, seen)
    quantized = Llama(source.config, found.meaning)
    after = {}
    if "calibration" in state:
        after["calibration"] = layer.run(quantized, number, state["calibration"])
    if "before" in state:
        after["before"] = layer.run(original, number, state["before"])
        quantized.on_input = lambda name, x: codes.rounded_input(job.recipe, found.known, name, x)
        after["after"] = layer.run(quantized, number, state["after"])
    for name, hidden in after.items():
        if not torch.isfinite(hidden).all():
            raise QuantizeError(
                f"layer {number} gives values that are not finite ({name}); the checkpoint or the text is unusable"
            )
    stored = {name: tensor.cpu() for name, tensor in found.stored.items()}
    kept = {name: tensor.cpu() for name, tensor in after.items()}
    work.add_layer(_file(number, source), stored, kept, {"errors": found.errors})


def _streams(
    source: Source, number: int, windows: text.Windows | None, work: WorkFolder, device: str
) -> dict[str, Tensor]:
    if windows is None:
        return {}
    if number:
        return {name: tensor.to(device) for name, tensor in work.state().items()}
    embedding = source.others()["model.embed_tokens.weight"].to(device).float()
    tokens = {"calibration": windows.calibration, "before": windows.evaluation, "after": windows.evaluation}
    return {name: embedding[ids.to(device)] for name, ids in tokens.items() if len(ids)}


def _perplexity(
    source: Source, windows: text.Windows | None, state: dict[str, Tensor], device: str
) -> dict[str, float]:
    assert windows is not None
    model = Llama(source.config, {name: tensor.to(device) for name, tensor in source.others().items()})

    def of(hidden: Tensor) -> float:
        losses = [
            F.cross_entropy(model.logits(one.to(device))[:-1], ids.to(device)[1:])
            for one, ids in zip(hidden, windows.evaluation, strict=True)
        ]
        return torch.stack(losses).mean().exp().item()

    count, tokens = windows.evaluation.shape
    return {"before": of(state["before"]), "after": of(state["after"]), "windows": count, "tokens": tokens}


def _finish(
    job: Job,
    source: Source,
    group: int,
    work: WorkFolder,
    perplexity: dict[str, float] | None,
    resumed: int,
    started: float,
) -> Report:
    work.add_tensors(_file(source.shape.layers, source), source.others())
    placed: dict[str, tuple[str, int]] = work.progress["tensors"]
    after = sum(nbytes for _, nbytes in placed.values())
    config = {**source.config, "quantization_config": codes.config(job.recipe, group)}
    index = {
        "metadata": {"total_size": after},
        "weight_map": {name: file for name, (file, _) in sorted(placed.items())},
    }
    layers = [found["errors"] for found in work.progress["layers"]]
    sizes = {"before": source.nbytes(), "after": after}
    bits = codes.bits(job.recipe, group)
    report = Report(as_mapping(job.recipe), layers, perplexity, sizes, bits, resumed, time.monotonic() - started)
    for name, content in (
        ("config.json", config),
        ("model.safetensors.index.json", index),
        (REPORT, report.as_mapping()),
    ):
        (work.path / name).write_text(json.dumps(content, indent=2) + "\n")
    for name in COPIED:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, work.path / name)
    work.finish()
    return report


def _file(number: int, source: Source) -> str:
    return f"model-{number + 1:05}-of-{source.shape.layers + 1:05}.safetensors"


def _fingerprint(job: Job, source: Source, windows: text.Windows | None) -> str:
    """Equal for runs that would write the same."""
    files = sorted({place.file for place in source.places.values()})
    rotations = source.rotations.residual.numpy().tobytes() if source.rotations else b""
    parts = [
        as_mapping(job.recipe),
        source.config,
        hashlib.sha256(rotations).hexdigest(),
        [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files],
    ]
    return hashlib.sha256(json.dumps([*parts, windows.digest if windows else ""], sort_keys=True).encode()).hexdigest()


def _check_disk(job: Job, source: Source, group: int, windows: text.Windows | None) -> None:
    """QuantizeError when the checkpoint and two rounds of hidden states would not fit."""
    linears = {f"model.layers.{number}.{name}.weight" for number in range(source.shape.layers) for name in LINEARS}
    weights = sum(torch.Size(source.places[name].shape).numel() for name in linears)
    rest = sum(place.nbytes for name, place in source.places.items() if name not in linears) + source.head_nbytes()
    hidden = (windows.calibration.numel() + 2 * windows.evaluation.numel()) * source.shape.width * 4 if windows else 0
    needed = int((weights * codes.bits(job.recipe, group) / 8 + rest + 2 * hidden) * SPARE)
    existing = next(_existing(job.target.absolute().parent))
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise QuantizeError(
            f"{existing} has {free / 2**30:.1f} GiB free and {needed / 2**30:.1f} GiB are needed "
            f"({2 * hidden / 2**30:.1f} of them while it runs); free some, or calibrate with fewer samples"
        )


def _existing(path: Path) -> Iterator[Path]:
    yield from (one for one in (path, *path.parents) if one.exists())


def describe(report: Report, job: Job) -> dict[str, Any]:
    """The report with the place of what it is about, for a line of JSON."""
    return {"ok": True, "target": str(job.target), **report.as_mapping()}
