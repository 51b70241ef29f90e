"""Print the size of the house: lines by room, long functions and modules, wide signatures, who imports whom.

python tools/survey_house.py [src/dpunion]
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

LONGEST_FUNCTION, LONGEST_MODULE, WIDEST = 60, 400, 10


def main() -> None:
    """Survey the package."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/dpunion")
    lines: dict[str, int] = defaultdict(int)
    files: dict[str, int] = defaultdict(int)
    imports: dict[str, set[str]] = defaultdict(set)
    functions: list[tuple[int, int, str]] = []
    modules: list[tuple[int, str]] = []
    for path in sorted(root.rglob("*.py")):
        text, inside = path.read_text(), path.relative_to(root)
        room = inside.parts[0] if len(inside.parts) > 1 else "top"
        name = ".".join(inside.with_suffix("").parts)
        count = len(text.splitlines())
        lines[room] += count
        files[room] += 1
        modules.append((count, name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                wide = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                given = [one for one in wide if one.arg not in ("self", "cls")]
                functions.append((len(given), (node.end_lineno or 0) - node.lineno + 1, f"{name}.{node.name}"))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpunion"):
                parts = (node.module or "").split(".")
                imports[room].add(parts[1] if len(parts) > 1 else "top")
    print("room             files   lines  imports")
    for room in sorted(lines, key=lines.__getitem__, reverse=True):
        others = {other for other in imports[room] if other != room}
        print(f"{room:16} {files[room]:5} {lines[room]:7,}  {len(others)}")
    print(f"{'all':16} {sum(files.values()):5} {sum(lines.values()):7,}")
    long = [(size, name) for _, size, name in functions if size > LONGEST_FUNCTION]
    print(f"\n{len(functions):,} functions; over {LONGEST_FUNCTION} lines: {len(long)}")
    for size, name in sorted(long, reverse=True):
        print(f"  {size:4} {name}")
    longest = [(size, name) for size, name in modules if size > LONGEST_MODULE]
    print(f"\nmodules over {LONGEST_MODULE} lines: {len(longest)}")
    for size, name in sorted(longest, reverse=True):
        print(f"  {size:4} {name}")
    print("\nmost parameters")
    for count, _, name in sorted(functions, reverse=True)[:WIDEST]:
        print(f"  {count:4} {name}")


if __name__ == "__main__":
    main()
