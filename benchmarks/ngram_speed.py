"""How fast texts become trigrams, and how much memory that takes, on generated text.

    python benchmarks/ngram_speed.py                     100 MB of text to private trigrams
    python benchmarks/ngram_speed.py --megabytes 20

The text is that of `speed_data.write_texts`. Tokenising is compared with polars' extract_all of the same pattern on
lower-cased text. Each part, making the text too, runs in a process of its own, compiled code warmed up, so that the
peak of the resident memory is that part's own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from speed_data import write_texts

WORD = r"[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*"


def part(name: str, path: Path) -> dict[str, Any]:
    """Run one part in this process and return its seconds and peak resident megabytes."""
    if name == "polars":
        import polars as pl

        column = pl.read_parquet(path, columns=["text"])["text"]
        before = time.perf_counter()
        column.str.to_lowercase().str.extract_all(WORD)
    elif name == "words":
        from dpunion.text.words import word_buffers

        texts = pq.read_table(path, columns=["text"])["text"]
        word_buffers(texts.slice(0, 10))
        before = time.perf_counter()
        word_buffers(texts)
    else:
        from dpunion import release_ngrams

        before = time.perf_counter()
        release_ngrams(path, user="user", text="text", longest=3, epsilon=3.0, delta=1e-6)
    seconds = time.perf_counter() - before
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Generate the text, run each part in a fresh process, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "generate":
        write_texts(arguments.path, arguments.megabytes)
        return
    if arguments.part:
        print(json.dumps(part(arguments.part, arguments.path)))
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.parquet", Path(folder) / "large.parquet"
        for path, megabytes in ((small, 0.5), (large, arguments.megabytes)):
            making = ["--part", "generate", "--megabytes", str(megabytes), "--path", str(path)]
            subprocess.run([sys.executable, __file__, *making], check=True)
        for name in ("polars", "words", "trigrams"):
            command = [sys.executable, __file__, "--part", name, "--path"]
            subprocess.run([*command, str(small)], check=True, capture_output=True)
            done = subprocess.run([*command, str(large)], check=True, capture_output=True, text=True)
            figures = json.loads(done.stdout)
            rate = arguments.megabytes / figures["seconds"]
            print(
                f"{name:10}{figures['seconds']:>8.2f} s{rate:>8.1f} MB/s{figures['peak_mb']:>9.0f} MB peak", flush=True
            )


if __name__ == "__main__":
    main()
