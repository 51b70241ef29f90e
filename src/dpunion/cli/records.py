"""The private record of a release: options that make it again with --config, in a file that only its owner can read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpunion.addresses import SECRET, Address
from dpunion.cli.options import ALGORITHM_OPTIONS
from dpunion.errors import CannotWrite, ForeignErrors
from dpunion.releases.formats import is_utf8

if TYPE_CHECKING:
    from dpunion.plans import Planned

SUFFIX = ".private.toml"
HEAD = "# Private: how this release was made. Not part of the release.\n"

ADDRESSES = ("source", "ledger", "out_folder")
"""Options that are addresses."""
SECRET_SETTING = re.compile(rf"(?:{SECRET.pattern})\w*\s*=|:/\S*@", re.IGNORECASE)


def record_place(targets: Sequence[Path], out_folder: str | None = None) -> Path | None:
    """Return the path of the record: next to the first output, or None if no output is on this machine."""
    from dpunion.reading.locate import local_path

    first = targets[0] if targets else local_path(out_folder)
    return None if first is None else first.with_name(first.name + SUFFIX)


def check_outputs(targets: Sequence[Path], place: Path | None, read: Mapping[str, object]) -> None:
    """Refuse, before anything is charged, outputs and records that would overwrite an input or another file."""
    from dpunion.reading.locate import is_same_file, refuse_overwriting

    refuse_overwriting(targets, read)
    if place is None:
        return
    # A release may be made again from its own record.
    config = read.get("configuration")
    itself = isinstance(config, Path) and is_same_file(place, config)
    refuse_overwriting(place, {what: name for what, name in read.items() if what != "configuration" or not itself})
    problem = None
    try:
        if place.exists():
            with place.open("rb") as file:
                is_record = file.read(len(HEAD)) == HEAD.encode()
            if not is_record:
                problem = f"The release's private record would be written to {place}, but that is another file."
    except OSError:
        problem = f"The release's private record would be written to {place}, but that exists and cannot be read."
    if problem is not None:
        raise CannotWrite(problem, "Move that file, or choose another name for the output.")


def record_configuration(place: Path | None, options: dict[str, Any], plan: Planned | None = None) -> None:
    """Write the options of a release as a file for --config, whole or not at all.

    Guarantees: mode 0600; no password; nothing from the data; a record never repeats --charge-again.
    """
    from dpunion.files import OWNER_ONLY, atomic_file
    from dpunion.plans.look import AUTO

    if place is None:
        return
    values = {key: value for key, value in options.items() if value not in (None, [], ()) and value is not False}
    if plan is not None and plan.alternatives:
        automatic = {} if plan.look is None else {"max_items_per_user": AUTO}
        parameters = plan.opening.algorithm.parameters() | automatic
        values |= {"algorithm": plan.name}
        values |= {key: parameters.pop(key) for key in ALGORITHM_OPTIONS if key in parameters}
        values |= {"set": [f"{key}={value}" for key, value in parameters.items()]}
    # Whether to charge again is for a person to choose each time.
    lines = [_line(key, value) for key, value in values.items() if key != "charge_again"]

    def explain(error: CannotWrite) -> CannotWrite:
        return CannotWrite(f"The release was written, but not its private record. {error.what}", error.remedy)

    with ForeignErrors(explain, CannotWrite, ours_too=True), atomic_file(place, mode=OWNER_ONLY) as file:
        file.write((HEAD + "\n".join(lines) + "\n").encode())


def without_credentials(key: str, value: Any) -> Any:
    """Return the value of an option without user and password, or None if it may still contain them, or is no UTF-8.

    A PostgreSQL address keeps its host and database. An address with further settings gives None, as these may matter.
    """
    if not isinstance(value, (str, Path)):
        return value
    text = str(value)
    if not is_utf8(text):
        return None
    if key not in ADDRESSES:
        return None if SECRET_SETTING.search(text) else text
    address = Address.of(text)
    return str(address) if address.is_known and not address.settings else None


def _line(key: str, value: Any) -> str:
    """Return an option as a line of TOML, or as a comment if it must not be written down."""
    values = value if isinstance(value, (list, tuple)) else [value]
    plain = [without_credentials(key, one) for one in values]
    name = key.replace("_", "-")
    if None in plain:
        return f"# {name}: left out, as it may contain a password or is not text. Give it again."
    # JSON's strings, numbers and arrays are valid TOML, except for one character.
    shown = json.dumps(plain if isinstance(value, (list, tuple)) else plain[0], ensure_ascii=False)
    return f"{name} = {shown}".replace("\x7f", "\\u007f")
