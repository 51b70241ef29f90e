"""Strings to numbers: an exact hash table over Arrow buffers.

A place of the table is two words. They contain a string of up to 11 bytes itself, so that one access to memory finds
and compares it; of a longer string they contain its hash and size, and its bytes are compared in the table's data.

    word 0   the first eight bytes, zeros after the end       or, of a long string, its hash
    word 1   number + 1 << 32 | size << 24 | bytes 9, 10, 11  or  number + 1 << 32 | 255 << 24 | size modulo 2^24

Hashes only choose where to look; equality is always decided on the bytes, so no collision can merge two strings.

Any number of threads look up strings at once, without waiting. One at a time enters a new string: it writes word 1 of
the place last, so that a thread that sees it sees all of the string. The table grows while no thread uses it; then
several threads fill the larger one, each from its own part of the old one.
"""

from __future__ import annotations

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint8s, Uint64s
from dpunion.kernels.compiler import inlined, kernel, load_word, store_word, swap_word, word_at
from dpunion.kernels.hashing import U0, U1, U3, U7, U8, U16, U24, U32, hash_pair, table_hash

LOW_HALF = np.uint64(0xFFFFFFFF)
LONGEST_INSIDE = np.uint64(11)
LONG = np.uint64(255 << 24)
SIZE_MASK = np.uint64((1 << 24) - 1)
BLOCK = 512
FULL = (2, 3)  # at most two places of three are taken
# The state that threads share, each word in a separate cache line: whether one enters a string, the number of strings,
# and whether there is no room for one more.
STATE_WORDS = 24
BUSY, COUNT, FULL_UP = np.uint64(0), np.uint64(8), np.uint64(16)
MOST_TRIES = 100_000


@kernel
def words_at_the_end(data: Uint8s, start: np.uint64, size: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the words of a short string that is too near to the end of `data` to read 16 bytes."""
    first, rest = U0, size << U24
    for i in range(size):
        at = np.uint64(i)
        byte = np.uint64(data[start + at]) << ((at & U7) << U3)
        if at < U8:
            first |= byte
        else:
            rest |= byte
    return first, rest


@inlined
def words_of(data: Uint8s, start: np.uint64, size: np.uint64, seed: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the table's words for a string, without its number; if short, different strings have different words."""
    if size > LONGEST_INSIDE:
        return table_hash(data, start, start + size, seed), LONG | (size & SIZE_MASK)
    if start + U16 > np.uint64(len(data)):
        return words_at_the_end(data, start, size)
    first, rest = word_at(data, start), word_at(data, start + U8)
    if size >= U8:
        return first, (rest & ((U1 << ((size - U8) << U3)) - U1)) | (size << U24)
    return first & ((U1 << (size << U3)) - U1), size << U24


@kernel
def hash_strings(offsets: Int64s, data: Uint8s) -> Uint64s:
    """Return a hash of each string data[offsets[i]:offsets[i+1]]. Guarantees: row i depends on these bytes alone."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for i in range(len(hashes)):
        hashes[i] = table_hash(data, offsets[i], offsets[i + 1], U0)
    return hashes


@inlined
def same_bytes(a: Uint8s, a_start: np.uint64, b: Uint8s, b_start: np.uint64, size: np.uint64) -> bool:
    """Say whether a[a_start:a_start+size] equals b[b_start:b_start+size]; both have at least eight bytes."""
    at = U0
    while at + U8 <= size:
        if word_at(a, a_start + at) != word_at(b, b_start + at):
            return False
        at += U8
    return bool(word_at(a, a_start + size - U8) == word_at(b, b_start + size - U8))


@inlined
def find_string(
    data: Uint8s,
    start: np.uint64,
    size: np.uint64,
    a: np.uint64,
    b: np.uint64,
    at: np.uint64,
    slots: Uint64s,
    table_offsets: Int64s,
    table_data: Uint8s,
) -> tuple[np.int64, np.uint64]:
    """Return (number, place) of a string whose words are a and b, searching from place `at` on.

    If the string is not there, the number is -1 and the place is free.
    """
    mask = np.uint64((len(slots) >> 1) - 1)
    while True:
        taken = load_word(slots, (at << U1) + U1)
        if taken == U0:
            return np.int64(-1), at
        if slots[at << U1] == a and taken & LOW_HALF == b:
            code = np.int64(taken >> U32) - 1
            if b < LONG:
                return code, at
            begin = np.uint64(table_offsets[code])
            if np.uint64(table_offsets[code + 1]) - begin == size and same_bytes(data, start, table_data, begin, size):
                return code, at
        at = (at + U1) & mask


@kernel
def enter_strings(
    offsets: Int64s,
    data: Uint8s,
    new: Int64s,
    block: int,
    firsts: Uint64s,
    rests: Uint64s,
    places: Uint64s,
    codes: Int32s,
    slots: Uint64s,
    table_offsets: Int64s,
    table_data: Uint8s,
    state: Uint64s,
) -> int:
    """Number strings of a block that were not found; keep the numbers that another thread gave meanwhile.

    new: int64[n], their rows, rising; firsts, rests, places: words and places of the block's strings. In-place on codes
    and table. Returns how many are done: fewer if the table must grow, none if another thread enters for too long.

    Guarantees: of all threads one at a time enters strings; a thread that finds a string finds all of it.
    """
    tries = 0
    # subtle: a waiting thread only looks; swapping each time would take the memory from the thread that works. All
    # strings of a block are entered in one turn, because memory that another thread wrote to is slow to read.
    while load_word(state, BUSY) != U0 or not swap_word(state, BUSY, U0, U1):
        tries += 1
        if tries > MOST_TRIES:
            return 0
    done = 0
    while done < len(new):
        row = new[done]
        start = np.uint64(offsets[row])
        size = np.uint64(offsets[row + 1]) - start
        a, b, at = firsts[row - block], rests[row - block], places[row - block]
        code, at = find_string(data, start, size, a, b, at, slots, table_offsets, table_data)
        if code < 0:
            code = np.int64(state[COUNT])
            end = table_offsets[code]
            if must_grow(code, end + np.int64(size), slots, table_offsets, table_data):
                store_word(state, FULL_UP, U1)
                break
            for i in range(size):
                table_data[np.uint64(end) + np.uint64(i)] = data[start + np.uint64(i)]
            table_offsets[code + 1] = end + np.int64(size)
            state[COUNT] = np.uint64(code + 1)
            slots[at << U1] = a
            store_word(slots, (at << U1) + U1, (np.uint64(code + 1) << U32) | b)
        codes[row] = code
        done += 1
    store_word(state, BUSY, U0)
    return done


@kernel
def take_numbers(numbers: Int32s, places: Int32s, taken: Int32s) -> bool:
    """Write numbers[places] to taken: int32[rows]; False if one is outside. Guarantees: nothing outside is read."""
    count = np.uint32(len(numbers))
    for row in range(len(places)):
        place = np.uint32(places[row])
        if place >= count:
            return False
        taken[row] = numbers[place]
    return True


@kernel
def take_strings(offsets: Int64s, data: Uint8s, places: Int64s, ends: Int64s, taken: Uint8s) -> None:
    """Copy string places[i], which is data[offsets[places[i]]:offsets[places[i]+1]], to taken[ends[i]:ends[i+1]].

    Guarantees: nothing else of `data` is read.
    """
    for i in range(len(places)):
        start, begin = offsets[places[i]], ends[i]
        for at in range(ends[i + 1] - begin):
            taken[begin + at] = data[start + at]


@kernel
def intern_rows(
    offsets: Int64s,
    data: Uint8s,
    first: int,
    codes: Int32s,
    slots: Uint64s,
    table_offsets: Int64s,
    table_data: Uint8s,
    state: Uint64s,
    seed: np.uint64,
) -> int:
    """Number the strings of rows `first`... in order of first appearance; stop when the table must grow.

    offsets: int32|int64[rows+1] and data: uint8[] are Arrow's; codes: int32[rows], written. slots: uint64[2^(k+1)],
    two words for each of 2^k places; table_offsets: int64[capacity+1], table_data: uint8[capacity]; state:
    uint64[STATE_WORDS], of all threads. Returns the rows done. In-place on codes, slots, the table and the state.

    Guarantees: equal bytes get equal numbers, different bytes different ones, whatever their hashes and the threads.
    """
    rows = len(offsets) - 1
    mask = np.uint64((len(slots) >> 1) - 1)
    firsts, rests, places = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    new = np.empty(BLOCK, np.int64)
    touched = U0
    done = rows
    for block in range(first, rows, BLOCK):
        if load_word(state, FULL_UP) != U0:
            done = block
            break
        stop = min(block + BLOCK, rows)
        for row in range(block, stop):
            start = np.uint64(offsets[row])
            firsts[row - block], rests[row - block] = words_of(data, start, np.uint64(offsets[row + 1]) - start, seed)
        for i in range(stop - block):
            places[i] = hash_pair(firsts[i], rests[i], seed) & mask
        # subtle: a separate loop that reads all places of a block lets the processor fetch many at once; otherwise each
        # row of a large table would wait for memory.
        for i in range(stop - block):
            touched ^= slots[places[i] << U1]
        count = 0
        for row in range(block, stop):
            start = np.uint64(offsets[row])
            size = np.uint64(offsets[row + 1]) - start
            a, b, at = firsts[row - block], rests[row - block], places[row - block]
            code, at = find_string(data, start, size, a, b, at, slots, table_offsets, table_data)
            codes[row] = code
            if code < 0:
                new[count] = row
                count += 1
        if count > 0:
            entered = enter_strings(
                offsets, data, new[:count], block, firsts, rests, places, codes, slots, table_offsets, table_data, state
            )
            if entered < count:
                done = int(new[entered])
                break
    places[0] = touched
    return done


@inlined
def must_grow(count: np.int64, end: np.int64, slots: Uint64s, table_offsets: Int64s, table_data: Uint8s) -> bool:
    """Say whether there is no room for one more string, whose bytes would end at `end`."""
    return bool(
        2 * FULL[1] * (count + 1) > FULL[0] * len(slots) or count + 2 > len(table_offsets) or end > len(table_data)
    )


@kernel
def refill_slots(old: Uint64s, slots: Uint64s, seed: np.uint64) -> None:
    """Enter the strings of the `old` places into the empty `slots`, of which there are more. In-place.

    Several threads may do this at once, each with other `old` places, while no thread looks up strings.

    Guarantees: every string is found again with its number.
    """
    mask = np.uint64((len(slots) >> 1) - 1)
    for i in range(len(old) >> 1):
        a, b = old[2 * i], old[2 * i + 1]
        if b != U0:
            at = hash_pair(a, b & LOW_HALF, seed) & mask
            # subtle: if several threads try to take a free place, one gets it, and only that one writes word 0.
            while load_word(slots, (at << U1) + U1) != U0 or not swap_word(slots, (at << U1) + U1, U0, b):
                at = (at + U1) & mask
            slots[at << U1] = a
