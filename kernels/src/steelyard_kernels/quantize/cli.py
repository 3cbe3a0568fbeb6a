"""Quantize a Hugging Face checkpoint into one that inference engines load.

SOURCE is a folder with config.json, *.safetensors and tokenizer.json; TARGET a new folder. RECIPE is one of the presets fp8, int8,
int4-gptq, int4-awq, nvfp4, mxfp4, nf4 and ternary (as an InferenceService's quantization.weights), or a YAML file that changes one.
An interrupted run goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from steelyard_kernels.quantize import recipe as recipes
from steelyard_kernels.quantize.errors import QuantizeError
from steelyard_kernels.quantize.run import Job, describe, quantize


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 an error that was explained, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        job = _job(options)
        with tqdm(desc="layers", unit="layer", disable=options.quiet, file=sys.stderr) as bar:

            def progress(done: int, total: int) -> None:
                bar.total, bar.n = total, done
                bar.refresh()

            report = quantize(job, progress)
    except QuantizeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}; finished layers are kept, and the same command goes on after them", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: finished layers are kept, and the same command goes on after them", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(describe(report, job)))
    else:
        if report.resumed_after:
            print(f"went on after layer {report.resumed_after} of an earlier run")
        print(f"wrote {job.target}", *report.lines(), sep="\n")
    return 0


def _job(options: argparse.Namespace) -> Job:
    recipe = recipes.read(options.recipe)
    changes = {
        name: getattr(options, name) for name in ("samples", "tokens", "group") if getattr(options, name) is not None
    }
    if changes:
        recipe = recipes.of({**recipes.as_mapping(replace(recipe)), **changes}, "the command line")
    judged = 0 if options.no_perplexity else options.windows
    return Job(
        options.source, options.target, recipe, options.text, options.evaluate, judged, options.restart, options.device
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "steelyard-quantize", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("target", type=Path, metavar="TARGET")
    parser.add_argument("--recipe", required=True, help="a preset's name or a YAML file")
    parser.add_argument(
        "--text", type=Path, help="calibration text (default: the help texts of Python's standard library)"
    )
    parser.add_argument(
        "--evaluate", type=Path, help="text to measure perplexity on (default: the end of the calibration text)"
    )
    parser.add_argument("--samples", type=int, help="windows of calibration text (default: the recipe's, 128)")
    parser.add_argument("--tokens", type=int, help="tokens a window (default: the recipe's, 512)")
    parser.add_argument(
        "--group", type=int, help="inputs that share a scale (default: the largest of 128, 64, 32 that fits)"
    )
    parser.add_argument("--windows", type=int, default=16, help="windows that perplexity is measured on (default: 16)")
    parser.add_argument("--no-perplexity", action="store_true", help="do not measure perplexity")
    parser.add_argument("--restart", action="store_true", help="start anew instead of going on after finished layers")
    parser.add_argument("--device", default="cpu", help="where a layer is computed: cpu or cuda (default: cpu)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
