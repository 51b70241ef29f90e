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
PUBLIC_KERNELS = {"certificates", "compiler", "normal", "unicode_words", "novelty"}
# What a function is handed when it works on private data or with the secret key.
SENSITIVE = re.compile(
    r"\b(Contributions|ItemTable|Weights|RunKey|RowStore|StringTable|TokenStream|Positions|Piece|Sets)\b"
)
PRIVATE_ROOMS = ("engines", "ngrams", "sets", "sources", "spark", ".")
RANDOM_HOMES = {"randomness.py"}
PUBLIC_RANDOM_HOMES = {"lab", "audit", "report"}  # generated data, searches and models: seeded, public, no release


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
        if path.stem not in PUBLIC_KERNELS and not path.stem.startswith("_"):
            called = [node for node in public_functions(path) if f"{path.stem}.{node.name}" in used]
            yield from ((path.stem, node) for node in called if node.args.args)


def room_entries(room):
    """Yield a room's functions that take private data: (module, function)."""
    for path in sorted((PACKAGE / room).glob("*.py")):
        for node in public_functions(path):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            texts = [ast.unparse(argument.annotation) for argument in given if argument.annotation is not None]
            if any(SENSITIVE.search(text) for text in texts):
                yield path.stem, node


def classes(room):
    """Yield the classes of a room that are no mere shapes: (module, class, names of its methods)."""
    for path in sorted((PACKAGE / room).glob("*.py")):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
                yield path.stem, node, {each.name for each in node.body if isinstance(each, ast.FunctionDef)}


def task_entries():
    """Yield what is called with private rows: tasks that run in workers, and readers of sources: (module, class)."""
    for room in ("ngrams", "spark"):
        yield from ((module, node) for module, node, methods in classes(room) if "__call__" in methods)
    yield from ((module, node) for module, node, methods in classes("sources") if {"check", "batches"} <= methods)


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
    *(
        pytest.param(function, id=f"{room}.{module}.{function.name}")
        for room in PRIVATE_ROOMS
        for module, function in room_entries(room)
    ),
    *(pytest.param(task, id=f"{module}.{task.name}") for module, task in task_entries()),
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_touches_private_data_says_what_it_guarantees(entry):
    methods = [node for node in entry.body if isinstance(node, ast.FunctionDef) and isinstance(entry, ast.ClassDef)]
    said = [ast.get_docstring(node) or "" for node in (entry, *methods)]
    assert any("Guarantees:" in text for text in said), entry.name


def test_guarantees_are_asked_of_the_right_functions():
    """The rule above finds the functions everybody would name."""
    found = {entry.values[0].name for entry in ENTRIES}
    assert found >= {"select", "add_shares", "descend_l2", "keep_random", "blake2b_digests"}
    assert found >= {"decide_gaussian", "intern_rows", "draw_items", "held_items"}
    assert found >= {"encode", "group_rows", "joined", "shard_of", "read_partition", "publish_ngrams", "next_level"}
    assert found >= {"Weigh", "WeighRows", "Decide", "ParquetPart", "DelimitedPart", "PairsPart"}


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
    """Logs and warnings go where nobody looks for private data. There are three, of public things: a password in an
    address, a query that mixes people, and kernels that cannot be kept."""
    used = set(imported(tree(source)))
    assert "logging" not in used
    assert "warnings" not in used or source.name in {"databases.py", "queries.py", "answers.py", "compiler.py"}


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

# Kernels that no test calls itself, and a test that fails without each: it compares what their caller makes of them.
TESTED_THROUGH = {
    "bounding.drop_items": "unit/test_keys.py::test_known_keys_are_left_out_or_added",
    "grouping.split_rows": "unit/test_spill.py::test_spilling_changes_nothing",
    "interning.refill_slots": "unit/test_encoding.py::test_strings_are_numbered_by_first_appearance",
    "ngrams.collect": "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates",
    "ngrams.count_documents": (
        "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates"
    ),
    "ngrams.join_texts": "property/test_ngrams_property.py::test_all_lengths_as_one_set_equal_ready_items",
    "ngrams.lay_beside": "property/test_ngrams_property.py::test_all_lengths_as_one_set_equal_ready_items",
    "ngrams.number_pairs": "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates",
    "ngrams.refill_pairs": "property/test_ngrams_property.py::test_many_pairs_are_numbered_across_growing_tables",
    "ngrams.renumber": "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates",
    "ngrams.scatter_documents": (
        "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates"
    ),
    "ngrams.sort_unique": "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates",
    "words.split": "property/test_tokens_property.py::test_kernel_equals_reference",
}


def used_names(parsed):
    """Yield the dotted names that a module really uses, with its imports spelled out."""
    meant = {}
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom) and node.module:
            meant |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            meant |= {alias.asname or alias.name: alias.name for alias in node.names}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Attribute | ast.Name):
            head, dot, rest = ast.unparse(node).partition(".")
            if head in meant:
                yield meant[head] + dot + rest


USED_BY_TESTS = {
    name for path in TESTS.rglob("*.py") if path != Path(__file__) for name in used_names(ast.parse(path.read_text()))
}


@pytest.mark.parametrize("kernel", [f"{module}.{function.name}" for module, function in kernel_entries()])
def test_every_kernel_has_a_test(kernel):
    """A test uses it by its own module's name, or one is named that fails without it; never both, never neither."""
    through = TESTED_THROUGH.get(kernel)
    assert (f"dpunion.kernels.{kernel}" in USED_BY_TESTS) == (through is None), kernel
    if through is not None:
        file, _, name = through.partition("::")
        assert name in {node.name for node in public_functions(TESTS / file)}


@pytest.mark.parametrize("module", sorted(PUBLIC_KERNELS - {"unicode_words"}))
def test_every_public_kernel_module_is_used_by_a_test(module):
    assert any(name.startswith(f"dpunion.kernels.{module}.") for name in USED_BY_TESTS)


def test_the_kernels_tested_through_others_exist():
    assert set(TESTED_THROUGH) <= {f"{module}.{function.name}" for module, function in kernel_entries()}


@pytest.mark.parametrize("name", [f"{module}.{function.name}" for module, function in room_entries("engines")])
def test_every_engine_function_on_private_data_has_a_test(name):
    assert f"dpunion.engines.{name}" in USED_BY_TESTS


def test_names_are_spelled_out_by_their_imports():
    source = "from a import b as c, split\nimport d.e\nimport f as g\nc.x()\nsplit\nd.e\ng.h.i\nput\n'j.k'"
    found = set(used_names(ast.parse(source)))
    assert found >= {"a.b.x", "a.split", "f.h.i"}
    assert not [name for name in found if "put" in name or "j" in name]


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
