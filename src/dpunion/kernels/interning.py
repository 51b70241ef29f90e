"""Strings to numbers: an exact hash table over Arrow buffers.

Hashes only choose where to look; equality is always decided on the bytes, so no collision can merge two strings.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s
from dpunion.kernels.compiler import kernel
from dpunion.kernels.hashing import table_hash

CODE_MASK = np.uint64(0xFFFFFFFF)
TAG_MASK = np.uint64(0xFFFFFFFF00000000)
BLOCK = 256


@kernel
def same_bytes(a: Uint8s, a_start: int, b: Uint8s, b_start: int, length: int) -> bool:
    """Say whether a[a_start:a_start+length] equals b[b_start:b_start+length]."""
    for i in range(length):
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@kernel
def intern_rows(
    offsets: Int64s,
    data: Uint8s,
    first: int,
    codes: Int32s,
    slots: Uint64s,
    table_offsets: Int64s,
    table_data: Uint8s,
    count: int,
    seed: np.uint64,
) -> tuple[int, int]:
    """Number the strings of rows `first`... in order of first appearance; stop when the table must grow.

    offsets: int32|int64[rows+1] and data: uint8[] are Arrow's; codes: int32[rows], written. slots: uint64[2^k],
    0 = free, else hash tag << 32 | number + 1; table_offsets: int64[capacity+1], table_data: uint8[capacity].
    Returns (rows done, strings in the table). In-place on codes, slots and the table.

    Guarantees: equal bytes get equal numbers, different bytes different ones, whatever their hashes.
    """
    rows = len(offsets) - 1
    mask = np.uint64(len(slots) - 1)
    hashes = np.empty(BLOCK, np.uint64)
    repeated = np.empty(BLOCK, np.bool_)
    touched = np.uint64(0)
    for block in range(first, rows, BLOCK):
        stop = min(block + BLOCK, rows)
        # subtle: hashing a block and touching its places first lets the processor fetch them all at once; looked up
        # one by one, each row of a large table would wait for the memory.
        for row in range(block, stop):
            start = offsets[row]
            length = offsets[row + 1] - start
            repeated[row - block] = (
                row > first
                and start - offsets[row - 1] == length
                and same_bytes(data, start, data, offsets[row - 1], length)
            )
            if not repeated[row - block]:
                hashes[row - block] = table_hash(data, start, start + length, seed)
        for row in range(stop - block):
            if not repeated[row]:
                slot = slots[hashes[row] & mask]
                if slot != np.uint64(0):
                    touched ^= np.uint64(table_data[table_offsets[np.int64(slot & CODE_MASK) - 1]])
        for row in range(block, stop):
            if repeated[row - block]:
                codes[row] = codes[row - 1]
                continue
            start = offsets[row]
            length = offsets[row + 1] - start
            if (
                2 * (count + 1) > len(slots)
                or count + 2 > len(table_offsets)
                or table_offsets[count] + length > len(table_data)
            ):
                hashes[0] = touched
                return row, count
            tag = hashes[row - block] & TAG_MASK
            at = hashes[row - block] & mask
            while True:
                slot = slots[at]
                if slot == np.uint64(0):
                    begin = table_offsets[count]
                    for i in range(length):
                        table_data[begin + i] = data[start + i]
                    count += 1
                    table_offsets[count] = begin + length
                    slots[at] = tag | np.uint64(count)
                    codes[row] = count - 1
                    break
                if slot & TAG_MASK == tag:
                    code = np.int64(slot & CODE_MASK) - 1
                    begin = table_offsets[code]
                    if table_offsets[code + 1] - begin == length and same_bytes(data, start, table_data, begin, length):
                        codes[row] = code
                        break
                at = (at + np.uint64(1)) & mask
    hashes[0] = touched
    return rows, count


@kernel
def refill_slots(slots: Uint64s, table_offsets: Int64s, table_data: Uint8s, count: int, seed: np.uint64) -> None:
    """Enter the first `count` strings of the table into empty `slots` (after growing). In-place.

    Guarantees: every entered string is found again; the table itself is unchanged.
    """
    mask = np.uint64(len(slots) - 1)
    for code in range(count):
        hashed = table_hash(table_data, table_offsets[code], table_offsets[code + 1], seed)
        at = hashed & mask
        while slots[at] != np.uint64(0):
            at = (at + np.uint64(1)) & mask
        slots[at] = (hashed & TAG_MASK) | np.uint64(code + 1)
