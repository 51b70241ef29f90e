"""Results of a study as files, each stamped NOT PRIVATE."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from dpunion.checks import check_suffix, check_whole
from dpunion.engines.publishing import Outputs
from dpunion.files import OWNER_ONLY, atomic_file, check_place
from dpunion_lab.figures import NOT_PRIVATE
from dpunion_lab.generators import Generated
from dpunion_lab.trials import Trial

SUFFIXES = (".json", ".parquet")
DATA_SUFFIXES = (".parquet", ".csv")
MOST_USERS = 2**30
STAMP = {"dpunion": "NOT PRIVATE", "warning": NOT_PRIVATE}


def refuse_replacing(targets: list[Path], source: Any) -> None:
    """Refuse results that would replace what is studied."""
    Outputs.of(targets, overwrite=True, counts=False).check_apart(source=source, known=None, charge=None)


def check_results(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Refuse early a place where results cannot be written."""
    return check_results_file(Path(path), "results", SUFFIXES, overwrite=overwrite)


def check_results_file(target: Path, what: str, suffixes: tuple[str, ...], *, overwrite: bool) -> Path:
    """Refuse early a file that cannot be written, or whose suffix is none of these."""
    check_suffix(f"The suffix of {what}", target, suffixes, f"Name the file for example {what}{suffixes[0]}.")
    check_place(target, overwrite=overwrite)
    return target


def write_results(
    path: str | os.PathLike[str], values: dict[str, Any], trials: Sequence[Trial], *, overwrite: bool
) -> Path:
    """Write everything as JSON, or the trials as Parquet, whole or not at all; for the owner alone: NOT PRIVATE."""
    target = check_results(path, overwrite=overwrite)
    with atomic_file(target, overwrite=overwrite, mode=OWNER_ONLY) as file:
        if target.suffix.lower() == ".json":
            file.write(json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n")
        else:
            _write_parquet(values, trials, file)
    return target


def _write_parquet(values: dict[str, Any], trials: Sequence[Trial], file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [trial.to_dict() for trial in trials]
    for row in rows:
        row["parameters"] = json.dumps(row["parameters"], sort_keys=True)
    facts = {"data": json.dumps(values["data"])}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(STAMP | facts), file, compression="zstd")


def write_generated(path: str | os.PathLike[str], generator: Generated, *, overwrite: bool = False) -> Path:
    """Write generated data as Parquet or CSV with columns user and item, whole or not at all."""
    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    check_whole("generated data", "users", generator.users, 1, MOST_USERS)
    check_whole("generated data", "seed", generator.seed, 0, 2**63 - 1)
    target = check_results_file(Path(path), "data", DATA_SUFFIXES, overwrite=overwrite)
    reader = generator.reader()
    stamp = {"dpunion": "generated data, nobody's", "users": str(generator.users), "seed": str(generator.seed)}
    with atomic_file(target, overwrite=overwrite) as file:
        if target.suffix.lower() == ".csv":
            with pcsv.CSVWriter(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        else:
            with pq.ParquetWriter(file, reader.schema.with_metadata(stamp), compression="zstd") as writer:
                for batch in reader:
                    writer.write_batch(batch)
    return target
