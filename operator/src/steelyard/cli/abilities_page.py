"""The reference page of engines' abilities, in Markdown, made from the table that the operator refuses by and the tests use."""

from collections.abc import Iterator

from steelyard.catalog.abilities import ABILITIES, ANY, ENGINE_NAMES, Setting
from steelyard.catalog.engines import ENGINES

_HEADER = "<!-- Generated from operator/src/steelyard/catalog/abilities.toml by `make generate`; do not edit. -->"
_INTRODUCTION = """
Each typed setting and each engine. What an engine lacks is refused with the reason below, never dropped.

| word | what is shown |
|---|---|
| run | the engine has run with it in the tests: vllm on plain processors and on demand (`make test-full`), the others always |
| parsed | the engine's own argument parser reads what is rendered, in the tests |
| rendered | files in the tests show what is rendered; no engine has read it here |
| evaluated | of load: Prometheus evaluates the queries in the tests, on made-up series with the names in the engine's source |

Nothing more is claimed. Which number format has a kernel on which accelerator, and whether a model fits, is judged apart
from it (`kubectl describe`, condition `Accepted`; `steelyard plan`)."""


def page() -> str:
    """Write the page."""
    return (
        "\n".join([_HEADER, "", "# Engines", _INTRODUCTION, "", *_engines(), "", *_table(), "", *_reasons()]).rstrip()
        + "\n"
    )


def _engines() -> Iterator[str]:
    yield from ("## Versions, weights and load", "")
    yield from ("| engine | version | weights from | load that the autoscaler reads |", "|---|---|---|---|")
    for name, engine in ENGINES.items():
        places = ", ".join(f"`{scheme}://`" for scheme in engine.model_schemes) or "reads none"
        since = f", from version {engine.measured_from} on" if engine.measured_from else ""
        load = "run" if engine.backend else f"evaluated{since}"
        yield f"| {name} | {engine.version or 'the operator’s'} | {places} | {load} |"


def _table() -> Iterator[str]:
    yield from (
        "## Settings",
        "",
        f"| setting | field | {' | '.join(ENGINE_NAMES)} |",
        "|---|---|" + "---|" * len(ENGINE_NAMES),
    )
    for number, row in enumerate(_listed(), start=1):
        cells = [row.shown(engine) or f"no ({number})" for engine in ENGINE_NAMES]
        yield f"| {row.title} | {_written(row)} | {' | '.join(cells)} |"


def _reasons() -> Iterator[str]:
    yield from ("## Why not", "")
    for number, row in enumerate(_listed(), start=1):
        by_reason: dict[str, list[str]] = {}
        for engine in ENGINE_NAMES:
            if (lack := row.lack(engine)) is not None:
                by_reason.setdefault(lack, []).append(engine)
        if by_reason:
            told = "; ".join(f"*{', '.join(engines)}*: {reason}" for reason, engines in by_reason.items())
            yield f"- ({number}) {row.title}: {told}."


def _listed() -> list[Setting]:
    """The rows that say something: not those that every engine takes without doing anything."""
    return [row for row in ABILITIES if set(row.cells.values()) != {"run"}]


def _written(row: Setting) -> str:
    return f"`{row.field}`" if row.value == ANY else f"`{row.field}: {row.value}`"
