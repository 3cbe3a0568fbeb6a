"""`steelyard-quantize`: what it writes means the model, a stopped run goes on, bad input ends with a message and no files."""

import json
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file, save_file
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

import tiny_model
from steelyard_kernels.formats import awq, gptq, ternary
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quant.nf4 import Nf4
from steelyard_kernels.quantize import cli
from steelyard_kernels.quantize import run as runs
from steelyard_kernels.quantize.errors import QuantizeError
from steelyard_kernels.quantize.recipe import PRESETS, Recipe
from steelyard_kernels.quantize.report import REPORT
from steelyard_kernels.quantize.run import Job
from steelyard_kernels.quantize.source import LINEARS, Source
from steelyard_kernels.rotation import learned
from steelyard_kernels.rotation.learned import Rotations
from steelyard_kernels.rotation.spin import nearest_rotation

REPOSITORY = Path(__file__).resolve().parents[3]
SMALL = {"samples": 6, "tokens": 64}
# The largest difference of logits, as a share of their size, that each preset may cause on the tiny model.
WORST = {
    "fp8": 0.15,
    "int8": 0.05,
    "int4-gptq": 0.25,
    "int4-awq": 0.3,
    "nvfp4": 0.4,
    "mxfp4": 0.45,
    "nf4": 0.4,
    "ternary": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("source") / "tiny")


def job(folder: Path, target: Path, recipe: Recipe) -> Job:
    return Job(folder, target, replace(recipe, **SMALL), judged=3)


def tensors_in(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def dequantized(folder: Path) -> dict[str, Tensor]:
    """The checkpoint's weights, read with the library where it has the layout, else with our own reader."""
    tensors, config = tensors_in(folder), json.loads((folder / "config.json").read_text())["quantization_config"]
    method = config["quant_method"]
    out = {}
    for layer in range(tiny_model.LAYERS):
        for name in LINEARS:
            linear = f"model.layers.{layer}.{name}"
            parts = {
                key.removeprefix(f"{linear}."): tensors.pop(key)
                for key in list(tensors)
                if key.startswith(f"{linear}.")
            }
            if "bias" in parts:
                out[f"{linear}.bias"] = parts.pop("bias")
            if method == "compressed-tensors":
                group = QuantizationConfig.model_validate(config).config_groups["group_0"]
                weight = BaseCompressor.get_value_from_registry(config["format"]).decompress(parts, group)["weight"]
            elif method == "bitsandbytes":
                state = json.loads(bytes(parts["weight.quant_state.bitsandbytes__nf4"].tolist()))
                rows, inputs = state["shape"]
                weight = Nf4(
                    parts["weight"].view(rows, inputs // 2), parts["weight.absmax"].view(rows, -1)
                ).dequantize()
            elif method == ternary.METHOD:
                weight = ternary.values_of(parts["weight_packed"]) * parts["weight_scale"]
            else:
                weight = (gptq.codes_of(parts, 4) if method == "gptq" else awq.codes_of(parts)).dequantize()
            out[f"{linear}.weight"] = weight.float()
    return out | tensors


def logits(config: dict, tensors: dict[str, Tensor]) -> Tensor:
    """Over a text like that of the calibration: bytes that never occurred there say nothing about it."""
    text = "A class definition is an executable statement. The inheritance list usually gives a list of base classes."
    alphabet = sorted(ByteLevel.alphabet())
    tokens = torch.tensor([alphabet.index("Ġ" if letter == " " else letter) for letter in text])
    with torch.no_grad():
        return Llama(config, tensors).forward(tokens)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_writes_a_checkpoint_that_means_the_model(name: str, folder: Path, tmp_path: Path) -> None:
    report = runs.quantize(job(folder, tmp_path / name, PRESETS[name]))
    before = logits(tiny_model.CONFIG, tensors_in(folder))
    after = logits(tiny_model.CONFIG, dequantized(tmp_path / name))
    assert ((after - before).norm() / before.norm()).item() < WORST[name]
    assert {one.name for one in (tmp_path / name).iterdir()} >= {"config.json", "tokenizer.json", REPORT}
    assert not list(tmp_path.glob(".*"))  # the work folder is gone
    index = json.loads((tmp_path / name / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(tensors_in(tmp_path / name))
    assert len(report.layers) == tiny_model.LAYERS
    assert report.nbytes["after"] < report.nbytes["before"]
    assert report.perplexity is not None
    assert report.perplexity["windows"] == 3


def test_calibration_lowers_the_error_that_rounding_leaves(folder: Path, tmp_path: Path) -> None:
    for name in ("int4-gptq", "int4-awq"):
        errors = {}
        for method in (PRESETS[name].method, "rtn"):
            # A rounding that calibrates too, so that both errors are of outputs on the same text.
            found = runs.quantize(job(folder, tmp_path / f"{name}-{method}", replace(PRESETS[name], method=method)))
            errors[method] = logits(tiny_model.CONFIG, dequantized(tmp_path / f"{name}-{method}"))
            assert found.recipe["method"] == method
        exact = logits(tiny_model.CONFIG, tensors_in(folder))
        assert (errors[PRESETS[name].method] - exact).norm() < (errors["rtn"] - exact).norm()


def test_awq_scales_o_proj_too_where_every_query_head_has_its_own_values(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path / "many", kv_heads=tiny_model.HEADS)
    runs.quantize(job(folder, tmp_path / "out", PRESETS["int4-awq"]))
    config = {**tiny_model.CONFIG, "num_key_value_heads": tiny_model.HEADS}
    before, after = logits(config, tensors_in(folder)), logits(config, dequantized(tmp_path / "out"))
    assert ((after - before).norm() / before.norm()).item() < WORST["int4-awq"]


@pytest.mark.parametrize("rotation", ["none", "hadamard", "learned"])
@pytest.mark.parametrize("name", ["int8", "int4-awq", "nvfp4"])
def test_biases_and_rotations_leave_what_the_model_says(name: str, rotation: str, tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path / "biased", kv_heads=tiny_model.HEADS, biased=True)
    head = tiny_model.WIDTH // tiny_model.HEADS
    if rotation == "learned":
        rotation = str(tmp_path / "rotations.safetensors")
        learned.write(
            Rotations(*(nearest_rotation(torch.randn(n, n)) for n in (tiny_model.WIDTH, head)), []), Path(rotation)
        )
    runs.quantize(job(folder, tmp_path / "out", replace(PRESETS[name], rotation=rotation)))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] == (rotation == "none")
    before = logits(json.loads((folder / "config.json").read_text()), tensors_in(folder))
    after = logits(config, dequantized(tmp_path / "out"))
    assert ((after - before).norm() / before.norm()).item() < WORST[name]


def test_rotations_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.safetensors"
    learned.write(Rotations(torch.eye(32), torch.eye(16), []), small)
    for rotation, says in (("nowhere.safetensors", "cannot be read as rotations"), (str(small), "this model needs")):
        with pytest.raises(QuantizeError, match=says):
            runs.quantize(job(folder, tmp_path / "out", replace(PRESETS["int8"], rotation=rotation)))
    assert list(tmp_path.iterdir()) == [small]


def test_no_more_than_a_layer_is_in_memory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, alive = Source.layer, []

    def watched(source: Source, number: int) -> dict[str, Tensor]:
        assert not [one for one in alive if one() is not None], (
            f"layer {number - 1} is still held while {number} is read"
        )
        found = read(source, number)
        alive.extend(weakref.ref(tensor) for tensor in found.values())
        return found

    monkeypatch.setattr(Source, "layer", watched)
    runs.quantize(job(folder, tmp_path / "out", PRESETS["int4-gptq"]))
    assert len(alive) == tiny_model.LAYERS * (len(LINEARS) + 2)


def test_presets_are_the_values_of_the_api() -> None:
    crd = yaml.safe_load((REPOSITORY / "crds" / "serving.steelyard.dev_inferenceservices.yaml").read_text())
    found = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["quantization"]
    assert set(found["properties"]["weights"]["enum"]) - {"auto", "none"} == set(PRESETS)


@pytest.mark.parametrize(("name", "stop"), [("int4-gptq", 2), ("int8", 1)])
def test_an_interrupted_run_goes_on_and_ends_the_same(name: str, stop: int, folder: Path, tmp_path: Path) -> None:
    whole, twice = job(folder, tmp_path / "whole", PRESETS[name]), job(folder, tmp_path / "twice", PRESETS[name])
    runs.quantize(whole)

    def interrupt(done: int, total: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.quantize(twice, interrupt)
    assert not twice.target.exists()
    seen: list[int] = []
    report = runs.quantize(twice, lambda done, total: seen.append(done))
    assert seen[0] == report.resumed_after == stop
    once, again = tensors_in(whole.target), tensors_in(twice.target)
    assert once.keys() == again.keys()
    assert all(torch.equal(once[key].view(torch.uint8), again[key].view(torch.uint8)) for key in once)


def test_another_recipe_does_not_go_on_with_an_earlier_ones_layers(folder: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.quantize(job(folder, tmp_path / "out", PRESETS["fp8"]), interrupt)
    assert runs.quantize(job(folder, tmp_path / "out", PRESETS["mxfp4"])).resumed_after == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["format"].startswith(
        "mxfp4"
    )


def change_config(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in folder.glob("*.safetensors"):
            save_file({key: value for key, value in load_file(file).items() if key != name}, file)

    return change


def with_nan(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for file in folder.glob("*.safetensors"):
            tensors = load_file(file)
            if name in tensors:
                tensors[name][0, 0] = torch.nan
            save_file(tensors, file)

    return change


LAST = "model.layers.2.mlp.down_proj.weight"
BAD = [
    ("no config", lambda folder: (folder / "config.json").unlink(), r"has no config\.json"),
    ("broken config", lambda folder: (folder / "config.json").write_text("{"), "is no JSON"),
    ("another architecture", change_config(architectures=["GPT2LMHeadModel"]), "architecture GPT2LMHeadModel; supported are"),
    ("quantized already", change_config(quantization_config={"quant_method": "gptq"}), "quantized already"),
    ("scaled positions", change_config(rope_scaling={"rope_type": "yarn"}), "rope scaling 'yarn' is not computed here"),
    ("a sliding window", change_config(sliding_window=64), "sliding_window 64"),
    ("biases are missing", change_config(attention_bias=True), r"lacks 12 of the tensors .*q_proj\.bias"),
    ("a tensor is missing", without(LAST), f"lacks 1 of the tensors .* among them {LAST}"),
    ("a shape differs", change_config(intermediate_size=96), "and config.json says"),
    ("a file is cut short", lambda folder: (folder / "part-0.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{"), "cannot be read"),
    ("no weights", lambda folder: [file.unlink() for file in folder.glob("*.safetensors")], "no \\*.safetensors file"),
    ("not a number, in the last layer", with_nan(LAST), f"{LAST} has values that are not finite"),
    ("no tokenizer", lambda folder: (folder / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "spoil", "says"), BAD, ids=[one[0] for one in BAD])
def test_bad_input_ends_with_a_message_and_no_files(
    given: str, spoil: Callable[[Path], object], says: str, folder: Path, tmp_path: Path
) -> None:
    spoiled = tmp_path / "source" / "tiny"
    shutil.copytree(folder, spoiled)
    spoil(spoiled)
    (tmp_path / "target").mkdir()
    with pytest.raises(QuantizeError, match=says):
        runs.quantize(job(spoiled, tmp_path / "target" / "out", PRESETS["int8"]))
    assert not list((tmp_path / "target").iterdir())


def test_a_full_disk_is_noticed_before_any_work(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(runs.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(QuantizeError, match=r"has 0\.0 GiB free and .* are needed"):
        runs.quantize(job(folder, tmp_path / "out", PRESETS["fp8"]))
    assert not list(tmp_path.iterdir())


def test_groups_that_do_not_divide_the_inputs_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match="int4-gptq needs groups of 48"):
        runs.quantize(job(folder, tmp_path / "out", replace(PRESETS["int4-gptq"], group=48)))


def test_the_command_reports_and_explains(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("weights: int4-gptq\nlayout: compressed-tensors\ngroup: 32\nsamples: 4\ntokens: 64\n")
    arguments = [str(folder), str(tmp_path / "out"), "--recipe", str(recipe), "--windows", "2", "--quiet"]
    assert cli.main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is True
    assert printed["recipe"]["group"] == 32
    assert printed["bits"] == 4 + 20 / 32
    assert cli.main(arguments) == 1
    assert "exists; name a new folder" in capsys.readouterr().err
    assert cli.main([str(folder), str(tmp_path / "other"), "--recipe", "fp8", "--windows", "2", "--quiet"]) == 0
    assert "perplexity" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("weights: int3", "weights is 'int3'; it must be one of fp8"),
        ("weights: fp8\nlayout: gptq", "layout is 'gptq'; with weights fp8 it may be compressed-tensors"),
        ("weights: int4-gptq\nsmooth: 0.5", "SmoothQuant serves int8"),
        ("weights: int8\nsmooth: 1.5", "smooth is 1.5; it must be between 0 and 1"),
        ("weights: int8\nsamples: many", "samples is 'many'; it must be of type int"),
        ("weights: ternary\nrotation: hadamard", "trained to be ternary must not be rotated"),
        ("weights: int8\nsample: 3", "no field 'sample'; there are weights, activations"),
        ("- fp8", "must be a mapping"),
        ("weights: [", "is no YAML"),
    ],
)
def test_a_recipe_that_means_nothing_is_refused(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    assert cli.main([str(tmp_path), str(tmp_path / "out"), "--recipe", str(path)]) == 1
    assert says in capsys.readouterr().err


def test_a_name_that_is_no_preset_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([str(tmp_path), str(tmp_path / "out"), "--recipe", "int4"]) == 1
    assert "neither a file nor one of the presets fp8, int8, int4-gptq" in capsys.readouterr().err
