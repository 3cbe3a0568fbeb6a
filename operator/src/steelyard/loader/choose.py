"""Which files of a repository an engine needs: those that the user names, else all but second copies of the weights.

Repositories often hold the same weights in several frameworks' formats; safetensors win over the others. What only people
read (pictures, the licence's text) is small and comes along, but for folders of other runtimes.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from steelyard.loader.errors import Refused
from steelyard.loader.hub import File

OTHER_FORMATS = (
    "*.bin",
    "*.pt",
    "*.pth",
    "*.h5",
    "*.msgpack",
    "*.ot",
    "*.onnx",
    "*.onnx_data",
    "*.tflite",
    "*.mlmodel",
)
OTHER_RUNTIMES = ("onnx/*", "openvino/*", "coreml/*", "original/*", "tf/*", "flax/*")
WEIGHTS = ("*.safetensors", "*.gguf")


def chosen(files: Iterable[File], patterns: Sequence[str]) -> tuple[File, ...]:
    """Choose; `patterns` are shell patterns of whole paths. Raises `Refused` where they leave no file."""
    every = tuple(files)
    if patterns:
        found = tuple(file for file in every if _any(file.path, patterns))
    elif any(_any(file.path, WEIGHTS) and not _any(file.path, OTHER_RUNTIMES) for file in every):
        found = tuple(file for file in every if not _any(file.path, (*OTHER_FORMATS, *OTHER_RUNTIMES)))
    else:
        found = every
    if not found:
        wanted = ", ".join(patterns) or "any"
        raise Refused(f"none of the repository's {len(every)} files matches spec.model.cache.files ({wanted})")
    return found


def _any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
