"""An answer of Prometheus, read row by row: what stays of a row is one number in a column.

The answer about a large fleet is megabytes of text, and ten times that as Python's objects. So it never becomes a tree: a
row is read, its number is put into the column, and the row is gone. Keys are kept once for all answers of one look.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Key = tuple[str, ...]
"""The values of the labels that a query groups by, in its order."""
Vector = Mapping[Key, float]

WORDS_LIMIT = 300
NO_ROW = math.nan  # in a column: the answer has no row of this key
NO_NUMBER = math.inf  # it has one, of NaN or infinity


class Unanswered(Exception):
    """A query has no answer that can be used; the message says why in one line."""


class Keys:
    """The places of keys in columns: one place a key, the same in all answers of one look whose rows have these labels."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], dict[Key, int]] = {}
        self._words: dict[str, str] = {}
        self.fault = ""  # why nothing more is asked in this look

    def places(self, labels: tuple[str, ...]) -> dict[Key, int]:
        """The places of keys with these labels; whoever reads an answer adds those that are new."""
        return self._places.setdefault(labels, {})

    def once(self, key: Key) -> Key:
        """The same key, of words that are in memory once: a namespace and a service have many pods."""
        words = self._words
        return tuple([words.setdefault(word, word) for word in key])


class Column(Mapping[Key, float]):
    """The numbers of one answer, eight bytes each."""

    __slots__ = ("_numbers", "_places")

    def __init__(self, places: Mapping[Key, int], numbers: "array[float]") -> None:
        """Keys that `places` learnt after this answer have a place past the end."""
        self._places = places
        self._numbers = numbers

    def get(self, key: Key, default: Any = None) -> Any:
        """The number of a row, or the default where there is none: the look-up of every tick, without an exception."""
        place = self._places.get(key)
        if place is None or place >= len(self._numbers):
            return default
        number = self._numbers[place]
        return number if math.isfinite(number) else default

    def __getitem__(self, key: Key) -> float:
        number: float | None = self.get(key)
        if number is None:
            raise KeyError(key)
        return number

    def __iter__(self) -> Iterator[Key]:
        numbers = self._numbers
        return (key for key, place in self._places.items() if place < len(numbers) and math.isfinite(numbers[place]))

    def __len__(self) -> int:
        return sum(map(math.isfinite, self._numbers))


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    warnings: list[str] = []
    data: msgspec.Raw = msgspec.Raw()


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[msgspec.Raw]


class _Row(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


_ANSWER = msgspec.json.Decoder(_Answer)
_DATA = msgspec.json.Decoder(_Data)
_ROW = msgspec.json.Decoder(_Row)


def parse(status: int, data: bytes, labels: tuple[str, ...], keys: Keys | None = None) -> Vector:
    """Read an answer of the query API, keyed by `labels`; a row that is no finite number is left out.

    `keys` are shared by the answers of one look; one thread at a time may read with them. Raises `Unanswered` for an error,
    for another kind of result than a vector, for warnings (stores that did not answer leave only a part of the truth), for
    a row that lacks a label, and for two rows of one key: taking either would be a guess.
    """
    try:
        answer = _ANSWER.decode(data)
    except msgspec.ValidationError:
        answer = _Answer()
    except msgspec.DecodeError:
        raise Unanswered(short(f"HTTP {status} without JSON: {data[:100].decode(errors='replace')!r}")) from None
    if answer.status != "success":
        raise Unanswered(short(f"HTTP {status}: {answer.error or 'no success'}"))
    if answer.warnings:
        raise Unanswered(short(f"only a part of the answer: {'; '.join(answer.warnings)}"))
    try:
        found = _DATA.decode(answer.data)
        if found.result_type != "vector":
            raise Unanswered(f"a {found.result_type} where a vector was asked for")
        return _column(found.result, labels, keys or Keys())
    except (msgspec.DecodeError, KeyError, ValueError) as failure:
        raise Unanswered(short(f"a row of another form than the query's: {failure!r}")) from failure


def short(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= WORDS_LIMIT else line[: WORDS_LIMIT - 1] + "…"


def _column(rows: list[msgspec.Raw], labels: tuple[str, ...], keys: Keys) -> Column:
    places = keys.places(labels)
    numbers = array("d", (NO_ROW,)) * len(places)
    for text in rows:
        row = _ROW.decode(text)
        metric, number = row.metric, float(row.value[1])
        key = tuple([metric[label] for label in labels])
        place = places.get(key)
        if place is None:
            place = len(numbers)
            places[keys.once(key)] = place
            numbers.append(NO_ROW)
        elif not math.isnan(numbers[place]):
            raise Unanswered(f"two rows for {dict(zip(labels, key, strict=True))} where one was asked for")
        numbers[place] = number if math.isfinite(number) else NO_NUMBER
    return Column(places, numbers)
