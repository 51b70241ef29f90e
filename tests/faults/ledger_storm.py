"""Processes that spend from one ledger at once, or are killed while they do: what the ledger's fault tests run.

    python ledger_storm.py spend ADDRESS DATASET CHARGE PROCESSES TRIES    prints how many spends were granted
    python ledger_storm.py same  ADDRESS DATASET CHARGE PROCESSES TRIES    the same, all asking for the same releases
    python ledger_storm.py kill  ADDRESS DATASET CHARGE KILLS SEED         prints how many grants the victims reported

A process of its own, which forks after importing once: no threads of the test runner are copied.
"""

import json
import os
import random
import signal
import sys
import time

from dpunion.errors import AlreadyReleased, BudgetExhausted, UnfinishedRelease
from dpunion.ledger import Amounts, Ledger


def spend(where, dataset, charge, tries, tag):
    """Try to spend `tries` times, settle what was granted, and return how often it was."""
    ledger = Ledger.open(where)
    granted = 0
    for number in range(tries):
        try:
            with ledger.reserve(dataset, charge, f"{tag}-{number}") as reservation:
                reservation.start_reading()
                granted += 1
                if number % 4 == 0:
                    reservation.settle(digest="0" * 64)
        except (AlreadyReleased, BudgetExhausted, UnfinishedRelease):
            pass
    return granted


def storm(where, dataset, charge, processes, tries, tags="process-{}"):
    """Fork the spenders and add up what they were granted."""
    pipes = []
    for number in range(processes):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"%d" % spend(where, dataset, charge, tries, tags.format(number)))
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    counts = [os.read(reader, 20) for reader in pipes]
    for _ in pipes:
        os.wait()
    return sum(int(count) for count in counts)


def storm_of_one(where, dataset, charge, processes, tries):
    """Let all processes ask for the same releases."""
    return storm(where, dataset, charge, processes, tries, tags="same")


def victim(where, dataset, charge, tag, writer):
    """Spend for ever, telling the parent of each grant the moment it is known."""
    ledger = Ledger.open(where)
    for number in range(10**9):
        try:
            with ledger.reserve(dataset, charge, f"{tag}-{number}") as reservation:
                if number % 3 == 2:
                    continue  # nothing was read: given back
                reservation.start_reading()
                os.write(writer, b"!")
                reservation.settle(digest="0" * 64)
        except BudgetExhausted:
            time.sleep(0.001)


def killings(where, dataset, charge, kills, seed):
    """Kill a victim -9 at a random moment, again and again; check the ledger after each; return the sure grants."""
    ledger = Ledger.open(where)
    draw = random.Random(seed)
    sure = 0
    for number in range(kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            victim(where, dataset, charge, f"victim-{number}", writer)
        os.close(writer)
        time.sleep(draw.random() * 0.08)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        sure += b"".join(iter(lambda reader=reader: os.read(reader, 4096), b"")).count(b"!")
        os.close(reader)
        found = ledger.verify()
        assert found.good, found.problem
    return sure


def main():
    command, where, dataset, charge, first, second = sys.argv[1:]
    run = {"spend": storm, "same": storm_of_one, "kill": killings}[command]
    sys.stdout.write(str(run(where, dataset, Amounts(*json.loads(charge)), int(first), int(second))))


if __name__ == "__main__":
    main()
