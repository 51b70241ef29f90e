"""The house rules, checked on the text of the source itself."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpunion

PACKAGE = Path(dpunion.__file__).parent
TESTS = Path(__file__).parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))
FEWEST_TESTS = 800

# Kernels that never see private data: pure mathematics, tables and the compiler.
PUBLIC_KERNELS = {"certificates", "compiler", "normal", "unicode_words", "walks"}
# What an engine's function is handed when it works on private data or with the secret key.
SENSITIVE = re.compile(r"\b(Contributions|Weights|RunKey)\b")
RANDOM_HOMES = {"randomness.py"}
PUBLIC_RANDOM_HOMES = {"lab", "audit"}  # generated data and searches: seeded, public, no release


def names(path):
    return str(path.relative_to(PACKAGE))


def tree(path):
    return ast.parse(path.read_text())


@pytest.fixture(params=SOURCES, ids=names)
def source(request):
    return request.param


def test_there_is_something_to_check():
    assert len(SOURCES) > 30


# --- Guarantees ---------------------------------------------------------------------------------------------


def public_functions(path):
    return [node for node in tree(path).body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def kernel_entries():
    """Yield the kernels that modules outside kernels/ use: (module, function)."""
    outside = [path for path in SOURCES if path.parent.name != "kernels"]
    used = {".".join(name.split(".")[-2:]) for path in outside for name in (*imported(tree(path)), *dotted(tree(path)))}
    for path in sorted((PACKAGE / "kernels").glob("*.py")):
        if path.stem not in PUBLIC_KERNELS and not path.stem.startswith(("reference", "_")):
            called = [node for node in public_functions(path) if f"{path.stem}.{node.name}" in used]
            yield from ((path.stem, node) for node in called if node.args.args)


def engine_entries():
    """Yield the engines' functions that take private data: (module, function)."""
    for path in sorted((PACKAGE / "engines").glob("*.py")):
        for node in public_functions(path):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            texts = [ast.unparse(argument.annotation) for argument in given if argument.annotation is not None]
            if any(SENSITIVE.search(text) for text in texts):
                yield path.stem, node


def imported(parsed):
    """Yield the dotted names of everything a module imports."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dotted(parsed):
    """Return all attribute accesses of a module, spelled out."""
    return {ast.unparse(node) for node in ast.walk(parsed) if isinstance(node, ast.Attribute)}


ENTRIES = [
    *(pytest.param(function, id=f"kernels.{module}.{function.name}") for module, function in kernel_entries()),
    *(pytest.param(function, id=f"engines.{module}.{function.name}") for module, function in engine_entries()),
]


@pytest.mark.parametrize("function", ENTRIES)
def test_what_touches_private_data_says_what_it_guarantees(function):
    assert "Guarantees:" in (ast.get_docstring(function) or ""), function.name


def test_guarantees_are_asked_of_the_right_functions():
    """The rule above finds the functions everybody would name."""
    found = {function.name for _, function in [*kernel_entries(), *engine_entries()]}
    assert found >= {"select", "weigh", "decide", "add_shares", "descend_l2", "keep_random", "blake2b_digests"}
    assert found >= {"decide_gaussian", "intern_rows", "select_by_funnel", "held_items"}


@pytest.mark.parametrize("name", ["release", "publish"])
def test_the_main_path_says_what_it_guarantees(name):
    from dpunion import pipeline

    assert "Guarantees:" in getattr(pipeline, name).__doc__


# --- names --------------------------------------------------------------------------------------------------


def test_the_public_names_are_sorted_and_exist():
    exported = [name for name in dpunion.__all__ if name != "__version__"]
    assert exported == sorted(exported)
    assert len(set(exported)) == len(exported)
    for name in exported:
        value = getattr(dpunion, name)
        assert value.__name__ == name
        assert value.__doc__
    assert set(dir(dpunion)) == set(dpunion.__all__)
    assert {*exported, "__version__"} == {*dpunion._HOMES, "__version__"}


def test_every_algorithm_and_the_errors_of_users_are_exported():
    from dpunion.algorithms import ALGORITHMS

    assert {kind.__name__ for kind in ALGORITHMS.values()} <= set(dpunion.__all__)
    assert {"DpunionError", "BadParameter", "BadSource", "CannotWrite", "NotPrivate"} <= set(dpunion.__all__)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'relaese'"):
        _ = dpunion.relaese


def test_all_lists_are_sorted_and_true(source):
    module = "dpunion" + "".join(f".{part}" for part in source.relative_to(PACKAGE).with_suffix("").parts)
    module = module.removesuffix(".__init__")
    if "__all__" not in source.read_text():
        return
    loaded = importlib.import_module(module)
    public = [name for name in loaded.__all__ if not name.startswith("__")]
    assert public == sorted(public)
    for name in public:
        assert hasattr(loaded, name)


# --- text ---------------------------------------------------------------------------------------------------


def test_modules_begin_well(source):
    parsed = tree(source)
    doc = ast.get_docstring(parsed)
    assert doc, "a module says in one sentence what it is"
    assert doc.splitlines()[0].rstrip().endswith((".", ":")), "the first line is a sentence"
    imports = [node for node in parsed.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    has_code = any(not isinstance(node, ast.Expr) for node in parsed.body)
    assert bool(imports) == has_code


def test_nothing_is_unfinished_or_printed(source):
    text = source.read_text()
    for word in ("TODO", "FIXME", "XXX", "NotImplementedError"):
        assert not re.search(rf"\b{word}\b", text), word
    nodes = list(ast.walk(tree(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    assert not [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if "Protocol" in map(ast.unparse, node.bases)]
    shapes = {node for protocol in protocols for node in protocol.body}
    stubs = [node for node in nodes if is_stub(node) and node not in shapes]
    assert not stubs, [node.name for node in stubs]


def is_stub(node):
    if not isinstance(node, ast.FunctionDef):
        return False
    last = node.body[-1]
    is_dots = isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...
    return isinstance(last, ast.Pass) or is_dots


def test_nothing_speaks_of_where_it_was_made(source):
    """No machine's paths, no private notes: sources cite papers or docs/."""
    text = source.read_text()
    for word in ("/work/", "/tmp/", "/home/", "/root/", "mathematics.md", "threats.md", "anchors.md"):
        assert word not in text


def test_every_public_function_has_a_docstring(source):
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name
    for node in tree(source).body:
        commands = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
        has_help = any("help=" in mark for mark in commands)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not has_help:
            assert ast.get_docstring(node), node.name


def test_modules_fit_in_a_head(source):
    if source.stem.startswith("unicode"):  # tables
        return
    assert len(source.read_text().splitlines()) <= 500


def test_there_is_no_drawer_for_everything():
    assert not {path.stem for path in SOURCES} & {"utils", "util", "helpers", "misc", "common"}


# --- randomness, logs and files -----------------------------------------------------------------------------


def test_randomness_has_one_home(source):
    place = source.relative_to(PACKAGE)
    if str(place) in RANDOM_HOMES:
        return
    used = {*imported(tree(source)), *dotted(tree(source))}
    assert not used & {"secrets", "os.getrandom", "uuid", "uuid.uuid4", "random", "random.Random"}
    if place.parts[0] not in PUBLIC_RANDOM_HOMES:
        assert not used & {"numpy.random", "np.random", "os.urandom"}
        assert not [name for name in used if name.startswith(("np.random.", "numpy.random."))]


def test_the_home_of_randomness_asks_the_operating_system():
    parsed = tree(PACKAGE / "randomness.py")
    assert "os.urandom" in dotted(parsed)
    assert not set(imported(parsed)) & {"random", "secrets", "numpy.random"}


def test_nothing_is_logged_or_warned(source):
    """Logs and warnings go where nobody looks for private data. There are two, of public things: a password in an
    address, and kernels that cannot be kept."""
    used = set(imported(tree(source)))
    assert "logging" not in used
    assert "warnings" not in used or source.name in {"databases.py", "answers.py", "compiler.py"}


def test_no_network(source):
    # Taking addresses apart is not calling them.
    used = {name.split(".")[0] for name in imported(tree(source)) if not name.startswith("urllib.parse")}
    assert not used & {"socket", "ssl", "http", "urllib", "requests", "httpx", "ftplib"}


def test_nothing_is_pickled_or_evaluated(source):
    used = {name.split(".")[0] for name in imported(tree(source))}
    assert not used & {"pickle", "marshal", "shelve"}
    called = {ast.unparse(node.func) for node in ast.walk(tree(source)) if isinstance(node, ast.Call)}
    assert not called & {"eval", "exec", "os.system", "compile"}


# --- tests --------------------------------------------------------------------------------------------------

KERNELS = sorted(path.stem for path in (PACKAGE / "kernels").glob("*.py") if path.stem != "__init__")
ENGINES = sorted(path.stem for path in (PACKAGE / "engines").glob("*.py") if path.stem != "__init__")


ALL_TESTS = "\n".join(path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__))


@pytest.mark.parametrize("module", KERNELS)
def test_every_kernel_is_tested_by_name(module):
    if module in {"reference", "reference_hashing", "reference_words", "unicode_words"}:
        return
    functions = [
        node.name for node in tree(PACKAGE / "kernels" / f"{module}.py").body if isinstance(node, ast.FunctionDef)
    ]
    direct = re.search(rf"kernels(\.| import .*\b){module}\b", ALL_TESTS)
    assert direct or any(re.search(rf"\b{name}\b", ALL_TESTS) for name in functions)


@pytest.mark.parametrize("module", ENGINES)
def test_every_engine_is_tested(module):
    assert re.search(rf"engines(\.| import .*\b){module}\b", ALL_TESTS) or module in {"rounds", "shares"}


def test_no_test_file_is_lost():
    """Collect as pytest would: every file has tests, and there are not suddenly fewer than there were."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:xdist", str(TESTS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS.parent,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert len([line for line in collected if Path(__file__).name not in line]) >= FEWEST_TESTS
    files = {line.split("::")[0].rsplit("/", 1)[-1] for line in collected}
    assert files == {path.name for path in TESTS.rglob("test_*.py")}
