"""Which tests hold what the documents claim: tests/claims.toml, read, and the tests that it names, looked up."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLAIMS = tomllib.loads((ROOT / "tests" / "claims.toml").read_text(encoding="utf-8"))
"""Of each document, by the number of a section or threat: its tests, as path::name."""


def numbered_sections(text):
    """Return the numbers of a document's sections, such as 7 and 7.1."""
    return re.findall(r"^#{2,3} (\d+(?:\.\d+)*)\.? ", text, re.MULTILINE)


def defined(path):
    """Return the names of the tests in a file, and of the state machines that are run as tests."""
    parsed = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    machines = {ast.unparse(node.value.value) for node in parsed.body if is_test_case(node)}
    return {node.name for node in parsed.body if isinstance(node, ast.FunctionDef)} | machines


def is_test_case(node):
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr == "TestCase"


def missing(tests):
    """Return those of some tests, as path::name, that do not exist."""
    named = [test.split("::") for test in tests]
    return [f"{path} has no {name}" for path, name in named if not (ROOT / path).is_file() or name not in defined(path)]
