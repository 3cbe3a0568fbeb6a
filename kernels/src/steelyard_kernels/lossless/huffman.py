"""A canonical Huffman code over bytes with a bounded length, and the table that decodes it by looking at the next bits.

Lengths come from Huffman's algorithm; a code longer than `LONGEST` bits is shortened by raising the smallest counts, which costs a
little compression and lets one table of 2^LONGEST entries decode any symbol in one look.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import torch
from torch import Tensor

LONGEST = 12


class Code(NamedTuple):
    """Per byte value: length in bits [256] (0: does not occur) and code word [256], its first bit the highest."""

    lengths: Tensor
    words: Tensor

    def table(self) -> tuple[Tensor, Tensor]:
        """For every value of the next LONGEST bits [2^LONGEST]: the symbol, uint8, and its length, uint8."""
        symbols = torch.zeros(2**LONGEST, dtype=torch.uint8)
        lengths = torch.zeros(2**LONGEST, dtype=torch.uint8)
        for symbol in self.lengths.nonzero().flatten().tolist():
            length = int(self.lengths[symbol])
            first = int(self.words[symbol]) << (LONGEST - length)
            symbols[first : first + (1 << (LONGEST - length))] = symbol
            lengths[first : first + (1 << (LONGEST - length))] = length
        return symbols, lengths


def build(counts: Tensor) -> Code:
    """The code of symbols that occur `counts` [256] times."""
    return from_lengths(_lengths(counts))


def from_lengths(lengths: Tensor) -> Code:
    """The canonical code: shorter words first, then smaller symbols. A decoder needs only the lengths."""
    words = torch.zeros(256, dtype=torch.int32)
    word = previous = 0
    for length, symbol in sorted((int(n), symbol) for symbol, n in enumerate(lengths.tolist()) if n):
        word <<= length - previous
        words[symbol] = word
        word, previous = word + 1, length
    return Code(lengths.to(torch.int32), words)


def _lengths(counts: Tensor) -> Tensor:
    present = counts.nonzero().flatten().tolist()
    lengths = torch.zeros(256, dtype=torch.int32)
    if len(present) == 1:
        lengths[present[0]] = 1
        return lengths
    least = 1
    while True:
        heap = [(max(int(counts[symbol]), least), symbol, [symbol]) for symbol in present]
        heapq.heapify(heap)
        lengths.zero_()
        while len(heap) > 1:
            (few, _, left), (more, tie, right) = heapq.heappop(heap), heapq.heappop(heap)
            lengths[left + right] += 1
            heapq.heappush(heap, (few + more, tie, left + right))
        if not present or int(lengths.max()) <= LONGEST:
            return lengths
        least = least * 2 if least > 1 else max(2, int(counts.sum()) >> (LONGEST + 2))
