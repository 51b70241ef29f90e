"""Print the size of both packages: lines and modules by room, small modules, long and wide functions, tests of plans.

    python tools/survey_house.py                 # the working tree
    python tools/survey_house.py --since main    # lines and modules by room, at that revision and now
    python tools/survey_house.py --walk          # functions that a row passes through, see trace_row.py

tests/unit/test_house.py compares the same sums with [tool.house] of pyproject.toml.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = {"dpunion": "src/dpunion", "dpunion_lab": "lab/src/dpunion_lab"}
SMALL_MODULE, LONGEST_FUNCTION, WIDEST = 80, 60, 10


class Module(NamedTuple):
    """A module's package, its room there (a folder, or "ground"), its dotted name, and its text."""

    package: str
    room: str
    name: str
    text: str

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return len(self.text.splitlines())


def main() -> None:
    """Survey the packages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", metavar="REV", help="compare rooms with this revision")
    parser.add_argument("--walk", action="store_true", help="count the functions that hand a row on")
    asked = parser.parse_args()
    since = asked.since
    if asked.walk:
        print_walks()
        return
    now = find_modules()
    if since is None:
        print_rooms(now)
        print_details(now)
    else:
        print_change(find_modules(since), now)


def find_modules(revision: str | None = None) -> list[Module]:
    """Return the modules of both packages in the working tree, or at a revision."""
    texts = read_working_tree() if revision is None else read_revision(revision)
    return [describe_module(path, text) for path, text in sorted(texts.items())]


def read_working_tree() -> dict[str, str]:
    """Return the text of each module by its path from the root of the repository."""
    paths = [path for folder in PACKAGES.values() for path in (ROOT / folder).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}


def read_revision(revision: str) -> dict[str, str]:
    """Return the same for a revision; a revision from before a package has no modules of it."""
    packed = subprocess.run(  # noqa: S603 - git, with a revision that the developer names
        ["git", "archive", "--format=tar", revision],  # noqa: S607 - the developer's own git
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive if member.name.endswith(".py") and package_of(member.name)]
        files = {member.name: archive.extractfile(member) for member in members}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def package_of(path: str) -> str | None:
    """Return the package that a path belongs to, if any."""
    return next((package for package, folder in PACKAGES.items() if path.startswith(f"{folder}/")), None)


def describe_module(path: str, text: str) -> Module:
    """Return the module at a path of a package."""
    package = package_of(path) or ""
    inside = Path(path).relative_to(PACKAGES[package])
    room = "ground" if len(inside.parts) == 1 else inside.parts[0]
    name = ".".join(inside.with_suffix("").parts)
    return Module(package, room if package == "dpunion" else package, name, text)


def count_lines(modules: list[Module]) -> Counter[str]:
    """Return the lines of each room; dpunion_lab is one room."""
    lines: Counter[str] = Counter()
    for module in modules:
        lines[module.room] += module.lines
    return lines


def count_modules(modules: list[Module], *, by_room: bool = False) -> Counter[str]:
    """Return the number of modules of each package, or of each room."""
    return Counter(module.room if by_room else module.package for module in modules)


def print_rooms(modules: list[Module]) -> None:
    """Print lines and modules of each room and package."""
    lines, files = count_lines(modules), count_modules(modules, by_room=True)
    print("room             files   lines")
    for room, count in lines.most_common():
        print(f"{room:16} {files[room]:5} {count:7,}")
    for package, number in count_modules(modules).items():
        total = sum(module.lines for module in modules if module.package == package)
        print(f"{'all ' + package:16} {number:5} {total:7,}")


def print_change(before: list[Module], now: list[Module]) -> None:
    """Print lines and modules of each room and package, before and after."""
    old, new = count_lines(before), count_lines(now)
    files, more = count_modules(before, by_room=True), count_modules(now, by_room=True)
    print("room                    files            lines")
    for room, _ in (old | new).most_common():
        print(f"{room:16} {files[room]:5} -> {more[room]:3}  {old[room]:7,} -> {new[room]:7,}")
    for package in PACKAGES:
        counts = [[module.lines for module in modules if module.package == package] for modules in (before, now)]
        (first, last), (began, ends) = map(len, counts), map(sum, counts)
        print(f"{'all ' + package:16} {first:5} -> {last:3}  {began:7,} -> {ends:7,}")


def print_walks() -> None:
    """Print how many functions in how many modules hand on a row of a small CSV and of a small Parquet file."""
    from trace_row import trace_release

    for suffix in (".csv", ".parquet"):
        found = trace_release(suffix).names(everything=False)
        grouped = [module for module, _ in found if module.startswith(("reading.", "sets.", "errors"))]
        print(f"{suffix:9} from open to grouped: {len(grouped)} functions in {len(set(grouped))} modules", end="")
        print(f"; to the released file: {len(found)} in {len({module for module, _ in found})}")


def print_details(modules: list[Module]) -> None:
    """Print what the lines are spent on: small modules, long functions, wide functions, tests of plans."""
    small = sorted((module.lines, f"{module.package}.{module.name}") for module in modules if is_small(module))
    print(f"\nmodules below {SMALL_MODULE} lines: {len(small)}")
    for count, name in small:
        print(f"  {count:4} {name}")
    functions = [
        (parameters(node), (node.end_lineno or 0) - node.lineno + 1, f"{module.package}.{module.name}.{node.name}")
        for module in modules
        for node in ast.walk(ast.parse(module.text))
        if isinstance(node, ast.FunctionDef)
    ]
    long = sorted(((size, name) for _, size, name in functions if size > LONGEST_FUNCTION), reverse=True)
    print(f"\n{len(functions):,} functions; over {LONGEST_FUNCTION} lines: {len(long)}")
    for size, name in long:
        print(f"  {size:4} {name}")
    print("\nmost parameters")
    for count, _, name in sorted(functions, reverse=True)[:WIDEST]:
        print(f"  {count:4} {name}")
    tests = {f"{module.package}.{module.name}": tests_of_plans(module) for module in modules}
    found = sum(tests.values())
    print(f"\nisinstance on plans: {found} in {sum(map(bool, tests.values()))} modules")
    for name, count in sorted(tests.items()):
        if count:
            print(f"  {count:4} {name}")


def is_small(module: Module) -> bool:
    """Say whether a module has fewer lines than a file is worth; a package's own does not count."""
    return module.lines < SMALL_MODULE and not module.name.endswith("__")


def parameters(node: ast.FunctionDef) -> int:
    """Return how many parameters a function has, without self."""
    given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    return sum(one.arg not in ("self", "cls") for one in given)


def tests_of_plans(module: Module) -> int:
    """Return how often a module asks which kind of plan a value is."""
    calls = [node for node in ast.walk(ast.parse(module.text)) if isinstance(node, ast.Call)]
    asked = [node for node in calls if ast.unparse(node.func) == "isinstance" and len(node.args) > 1]
    return sum("Plan" in ast.unparse(node.args[1]) for node in asked)


if __name__ == "__main__":
    main()
