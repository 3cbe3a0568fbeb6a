"""Quantize a Hugging Face checkpoint into one that inference engines load.

SOURCE is a folder with config.json, *.safetensors and tokenizer.json; TARGET a new folder. RECIPE is one of the presets fp8, int8,
int4-gptq, int4-awq, nvfp4, mxfp4, nf4 and ternary (as an InferenceService's quantization.weights), or a YAML file that changes one.
An interrupted run goes on when the same command is given again. Exit status: 0 the checkpoint is there; 1 the input or the recipe
cannot be used; 2 wrong arguments; 75 the disk failed, and the same command may go on; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from steelyard_kernels.quantize import recipe as recipes
from steelyard_kernels.quantize.errors import Busy, QuantizeError, Taken
from steelyard_kernels.quantize.report import Report
from steelyard_kernels.quantize.run import Job, Progress, describe, quantize

TEMPORARY = 75  # as in sysexits.h: it may go better next time
WAIT_SECONDS = 5.0  # between looks at what another run makes


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        job = _job(options)
        if (report := _made(job, options)) is None:
            print(f"{job.target} is there already")
            return 0
    except QuantizeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}; finished layers are kept, and the same command goes on after them", file=sys.stderr)
        return TEMPORARY
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


def _made(job: Job, options: argparse.Namespace) -> Report | None:
    """Make the checkpoint; None where it is there already and that is enough, also because another run has just made it."""
    while True:
        try:
            if options.quiet or not sys.stderr.isatty():
                return quantize(job, _silent if options.quiet else _told)
            with tqdm(desc="layers", unit="layer", file=sys.stderr) as bar:
                return quantize(job, _shown(bar))
        except Taken:
            if options.reuse and job.target.is_dir():
                return None
            raise
        except Busy as error:
            if not options.reuse:
                raise
            print(f"waits: {error}", file=sys.stderr, flush=True)
            _wait(WAIT_SECONDS)


def _wait(seconds: float) -> None:
    """Let another run get on."""
    time.sleep(seconds)


def _silent(done: int, total: int) -> None:
    """Say nothing."""


def _told(done: int, total: int) -> None:
    """One line a layer, for logs."""
    print(f"layer {done} of {total}", file=sys.stderr, flush=True)


def _shown(bar: tqdm) -> Progress:
    def progress(done: int, total: int) -> None:
        bar.total, bar.n = total, done
        bar.refresh()

    return progress


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
    parser.add_argument("--text", type=Path, help="calibration text (default: the packaged sample)")
    parser.add_argument(
        "--evaluate",
        type=Path,
        help="text to measure perplexity on (default: the last fifth of --text, without it of Python's help texts)",
    )
    parser.add_argument("--samples", type=int, help="windows of calibration text (default: the recipe's, 128)")
    parser.add_argument("--tokens", type=int, help="tokens a window (default: the recipe's, 512)")
    parser.add_argument(
        "--group", type=int, help="inputs that share a scale (default: the largest of 128, 64, 32 that fits)"
    )
    parser.add_argument("--windows", type=int, default=16, help="windows that perplexity is measured on (default: 16)")
    parser.add_argument("--no-perplexity", action="store_true", help="do not measure perplexity")
    parser.add_argument(
        "--reuse", action="store_true", help="a TARGET that is there, or that another run is writing, is what is wanted"
    )
    parser.add_argument("--restart", action="store_true", help="start anew instead of going on after finished layers")
    parser.add_argument("--device", default="cpu", help="where a layer is computed: cpu or cuda (default: cpu)")
    parser.add_argument(
        "--quiet", action="store_true", help="say nothing of progress: no bar on a terminal, no line a layer elsewhere"
    )
    parser.add_argument("--json", action="store_true", help="the report as one line of JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
