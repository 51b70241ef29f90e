"""The house rules, checked on the text of the source itself."""

import ast
import collections
import doctest
import importlib
import importlib.util
import json
import operator
import re
import sys
import tomllib
from pathlib import Path

import pytest

import dpunion
import dpunion_lab
from running import run_program

PACKAGE = Path(dpunion.__file__).parent
TESTS = Path(__file__).parents[1]
LAB = Path(dpunion_lab.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py")) + sorted(LAB.rglob("*.py"))
FEWEST_TESTS = 2_700

# Kernels that never see private data: pure mathematics, tables and the compiler.
PUBLIC_KERNELS = {"compiler", "normal", "novelty"}
# What a function is handed when it works on private data or with the secret key.
SENSITIVE = re.compile(
    r"\b(Contributions|ItemTable|Weights|RunKey|Secret|RowStore|TextStore|StringTable|TokenStream|Positions|Piece"
    r"|Selecting|Sets|RowBatch|Rows)\b"
)
# The same for a method: readers and tasks are handed columns and batches of somebody's rows.
ROWS = re.compile(
    rf"{SENSITIVE.pattern}|\b(Batches|Wanted)\b|\bpa\.(Array|ChunkedArray|RecordBatch|RecordBatchReader)\b"
)
# What reads a source, and what cleans its columns, has one of these methods.
READS = {"batches", "clean", "text"}
# Rooms that are not asked: kernels have a rule of their own, the others make no release of anybody's data.
UNASKED_ROOMS = {"dpunion_lab", "kernels", "report"}
# Classes that only carry a secret from one place to another.
CARRIERS = {"engines.spark.tasks.Secret"}
MOST_LINES, LONGEST_FUNCTION = 600, 60
# Longer than they should be: they may shrink, not grow; one that fits is taken off the list.
LONG_MODULES = {}
LONG_FUNCTIONS = {"pipeline.py release": 82}


def names(path):
    """Return the name of a module within dpunion, or with the lab before it."""
    return str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else LAB.parent))


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


def private_modules():
    """Return the modules that may work on private data: all but those of a few rooms, so that a new room is asked."""
    return [path for path in SOURCES if Path(names(path)).parts[0] not in UNASKED_ROOMS]


def dotted_name(path):
    """Return a module's name inside the package: engines.spark.wire."""
    return ".".join(Path(names(path)).with_suffix("").parts).removesuffix(".__init__")


def takes(function, kinds):
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    texts = [ast.unparse(argument.annotation) for argument in given if argument.annotation is not None]
    return any(kinds.search(text) for text in texts)


def function_entries(*, every=False):
    """Yield the functions that take private data: (module, function); without those whose module speaks for them."""
    for path in private_modules():
        if "Guarantees of every function here:" in (ast.get_docstring(tree(path)) or "") and not every:
            continue
        yield from ((dotted_name(path), node) for node in public_functions(path) if takes(node, SENSITIVE))


def methods_of(node):
    return [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]


def is_record(node):
    """Say whether a class gets its repr from its fields."""
    return any("dataclass" in ast.unparse(mark) for mark in node.decorator_list) or "NamedTuple" in map(
        ast.unparse, node.bases
    )


def is_protocol(node):
    """Say whether a class describes others, of any type or of one."""
    return any(base.split("[")[0] == "Protocol" for base in map(ast.unparse, node.bases))


def class_entries():
    """Yield the classes that hold private data, take it in a method, or read a source: (module, class)."""
    for path in private_modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not is_protocol(node):
                methods, name = methods_of(node), f"{dotted_name(path)}.{node.name}"
                reads = name.startswith("reading.") and READS & {each.name for each in methods}
                holds = SENSITIVE.fullmatch(node.name) and not is_record(node)
                if (reads or holds or any(takes(each, ROWS) for each in methods)) and name not in CARRIERS:
                    yield dotted_name(path), node


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
    *(pytest.param(entry, id=f"{module}.{entry.name}") for module, entry in (*function_entries(), *class_entries())),
]


def says_guarantees(node):
    """Say whether the docstring of a function or class, or of one of its methods, states guarantees."""
    methods = methods_of(node) if isinstance(node, ast.ClassDef) else []
    return any("Guarantees:" in (ast.get_docstring(each) or "") for each in (node, *methods))


def guaranteed_names():
    """Return the names of the functions, methods and classes that state guarantees, with those of Protocols."""
    nodes = [node for path in SOURCES for node in ast.walk(tree(path))]
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef) and says_guarantees(node)}


def guaranteed_protocols():
    """Return the names of the methods of each Protocol that states guarantees."""
    nodes = [node for path in SOURCES for node in tree(path).body if isinstance(node, ast.ClassDef)]
    return [{each.name for each in methods_of(node)} for node in nodes if is_protocol(node) and says_guarantees(node)]


GUARANTEED, PROTOCOLS = guaranteed_names(), guaranteed_protocols()


def only_call(function):
    """Return the name of the function whose result this one returns, if it does nothing else."""
    is_doc = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    last = function.body[-1]
    call = getattr(last, "value", None) if len(function.body) == 1 + is_doc else None
    return ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else None


def guarantees(node):
    """Say whether a function or class states guarantees, or has those of what it calls, extends or implements."""
    if says_guarantees(node):
        return True
    if isinstance(node, ast.FunctionDef):
        return only_call(node) in GUARANTEED
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    methods = {each.name for each in methods_of(node)}
    return bool(bases & GUARANTEED) or any(protocol and protocol <= methods for protocol in PROTOCOLS)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_touches_private_data_says_what_it_guarantees(entry):
    assert guarantees(entry), entry.name


def test_guarantees_are_asked_of_the_right_functions():
    """The rule above finds the functions and classes that everybody would name, in every room of the main path."""
    found = {entry.id for entry in ENTRIES}
    assert found >= {"kernels.descent.add_shares", "kernels.descent.descend_l2", "kernels.bounding.keep_random"}
    assert found >= {"engines.local.run_rounds", "engines.spark.wire.shard_of", "engines.spark.tasks.Weigh"}
    assert found >= {"engines.spark.tasks.WeighRows", "engines.spark.tasks.Decide", "engines.spark.texts.read_pairs"}
    assert found >= {"sets.encoding.encode", "sets.grouping.group_rows", "sets.narrowing.Sets", "sets.spill.RowStore"}
    assert found >= {"reading.columnar.ParquetPart", "reading.delimited.DelimitedPart", "reading.pairs.PairsPart"}
    assert found >= {"reading.cleaning.Cleaner", "reading.spelling.Column", "ngrams.lengths.next_level"}
    assert found >= {"mechanisms.FunnelMechanism", "sets.narrowing.draw_items"}


RECORDS = [
    pytest.param(node, id=f"{dotted_name(path)}.{node.name}")
    for path in private_modules()
    for node in tree(path).body
    if isinstance(node, ast.ClassDef) and SENSITIVE.fullmatch(node.name) and is_record(node)
]


@pytest.mark.parametrize("record", RECORDS)
def test_records_of_private_data_have_a_repr_of_their_own(record):
    is_numbers = {ast.unparse(node.annotation) for node in record.body if isinstance(node, ast.AnnAssign)} == {"int"}
    assert "__repr__" in {node.name for node in methods_of(record)} or is_numbers


@pytest.mark.parametrize(
    ("source", "is_asked", "says"),
    [
        ("def f(key: RunKey): 'Guarantees: none.'", True, True),
        ("def f(*, sets: list[Sets]): 'Something.'", True, False),
        ("def f(number: int): 'Something.'", False, False),
        ("def f(data: Contributions | None): pass", True, False),
        ("def f(key: RunKey): 'Something.'; return bound_stream(key)", True, True),
        ("def f(key: RunKey): 'Something.'; key.print(); return bound_stream(key)", True, False),
        ("def f(key: RunKey): 'Something.'; return no_such_function(key)", True, False),
    ],
)
def test_the_rule_can_be_broken(source, is_asked, says):
    function = ast.parse(source).body[0]
    assert (takes(function, SENSITIVE), guarantees(function)) == (is_asked, says)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("class A(WaitingStore[int]):\n def add(self): 'Add.'", True),
        ("class A(object):\n def add(self): 'Add.'", False),
        ("class A:\n def toss(self): 'Toss.'", True),
        ("class A:\n def throw(self): 'Throw.'", False),
    ],
)
def test_a_class_has_the_guarantees_of_its_base_or_protocol(source, says):
    assert guarantees(ast.parse(source).body[0]) == says


def test_the_unasked_rooms_exist():
    assert all((PACKAGE / room).is_dir() or LAB.name == room for room in UNASKED_ROOMS)


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
    home = PACKAGE.parent if source.is_relative_to(PACKAGE) else LAB.parent
    module = ".".join(source.relative_to(home).with_suffix("").parts).removesuffix(".__init__")
    if "__all__" not in source.read_text():
        return
    loaded = importlib.import_module(module)
    public = [name for name in loaded.__all__ if not name.startswith("__")]
    assert public == sorted(public)
    for name in public:
        assert hasattr(loaded, name)


# Sister engines offer the same verbs on purpose. The others are to get names of their own: the list may only shrink.
SAME_NAME_TWICE = {"Entry", "listed", "parts_of", "read_texts", "release_command", "run_rounds"}


def test_a_public_name_has_one_home():
    """Whoever looks for a name finds one function or class."""
    homes = {}
    for path in SOURCES:
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(path)
    assert {name for name, places in homes.items() if len(places) > 1} <= SAME_NAME_TWICE


# --- examples -----------------------------------------------------------------------------------------------
EXAMPLES = [path for path in SOURCES if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=names)
def test_examples_in_docstrings_print_what_they_show(path):
    home = PACKAGE.parent if path.is_relative_to(PACKAGE) else LAB.parent
    module = importlib.import_module(".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__"))
    found = doctest.testmod(module)
    assert found.failed == 0
    assert found.attempted > 0


@pytest.mark.parametrize("thing", ["release", "tokenize", "Candidates", "Plan.needed"])
def test_the_help_of_what_people_call_first_has_an_example(thing):
    assert ">>> " in operator.attrgetter(thing)(dpunion).__doc__


# --- text ---------------------------------------------------------------------------------------------------
def test_modules_begin_with_a_sentence_and_annotations_from_the_future(source):
    parsed = tree(source)
    doc = ast.get_docstring(parsed)
    assert doc.splitlines()[0].rstrip().endswith((".", ":")), "the first line is a sentence"
    imports = [node for node in parsed.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    has_code = any(not isinstance(node, ast.Expr) for node in parsed.body)
    assert bool(imports) == has_code


def test_nothing_is_unfinished(source):
    assert "NotImplementedError" not in source.read_text()
    nodes = list(ast.walk(tree(source)))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if is_protocol(node)]
    shapes = {node for protocol in protocols for node in protocol.body}
    stubs = [node for node in nodes if is_stub(node) and node not in shapes]
    assert not stubs, [node.name for node in stubs]


def is_overload(node):
    return "overload" in map(ast.unparse, node.decorator_list)


def is_stub(node):
    if not isinstance(node, ast.FunctionDef) or is_overload(node):
        return False
    last = node.body[-1]
    is_dots = isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...
    return isinstance(last, ast.Pass) or is_dots


def test_nothing_speaks_of_where_it_was_made(source):
    """No machine's paths, no private notes: sources cite papers or docs/."""
    text = source.read_text()
    for word in ("/work/", "/tmp/", "/home/", "/root/", "mathematics.md", "threats.md", "anchors.md"):
        assert word not in text


def test_no_module_is_too_long(source):
    lines = len(source.read_text().splitlines())
    assert lines <= LONG_MODULES.get(names(source), MOST_LINES)


def test_functions_fit_on_a_page(source):
    for name, lines in function_lines(source):
        assert lines <= LONG_FUNCTIONS.get(name, LONGEST_FUNCTION), name


def function_lines(path):
    """Yield every function of a module with its number of lines: ("pipeline.py release", 68)."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            yield f"{names(path)} {node.name}", node.end_lineno - node.lineno + 1


def test_what_is_listed_as_too_long_is_too_long():
    """A module or function that was shortened, moved or removed is taken off the list."""
    modules = {names(path): len(path.read_text().splitlines()) for path in SOURCES}
    functions = {name: lines for path in SOURCES for name, lines in function_lines(path)}
    fitting = [name for name in LONG_MODULES if modules.get(name, 0) <= MOST_LINES]
    fitting += [name for name in LONG_FUNCTIONS if functions.get(name, 0) <= LONGEST_FUNCTION]
    assert not fitting, "take these off the list"


def test_there_is_no_drawer_for_everything():
    assert not {path.stem for path in SOURCES} & {"utils", "util", "helpers", "misc", "common"}


# --- the budget: [tool.house] of pyproject.toml -------------------------------------------------------------
BUDGET = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["house"]
RAISE = "take as much out, or raise the number and say in CHANGELOG.md, under House, what it buys."


@pytest.fixture(scope="module")
def survey():
    """tools/survey_house.py as a module: it counts."""
    found = importlib.util.spec_from_file_location("survey_house", TESTS.parent / "tools" / "survey_house.py")
    module = importlib.util.module_from_spec(found)
    sys.modules["survey_house"] = module
    found.loader.exec_module(module)
    return module


def complaints(kind, counted, allowed):
    """Return a sentence for each sum above its number, and for each room or package without a number."""
    unknown = [f"{name} has no number of {kind} in [tool.house]." for name in counted if name not in allowed]
    grown = {name: number - allowed[name] for name, number in counted.items() if number > allowed.get(name, number)}
    return unknown + [f"{name} grew by {more} {kind} to {counted[name]:,}: {RAISE}" for name, more in grown.items()]


def test_the_house_does_not_grow(survey):
    modules = survey.find_modules()
    assert len(modules) == len(SOURCES)
    counted = {"lines": survey.count_lines(modules), "modules": survey.count_modules(modules)}
    assert [text for kind in counted for text in complaints(kind, counted[kind], BUDGET[kind])] == []
    assert {kind: set(BUDGET[kind]) for kind in counted} == {kind: set(counted[kind]) for kind in counted}


def test_growth_is_reported_and_shrinking_is_not(survey):
    modules = [survey.describe_module("src/dpunion/reading/new.py", "\n" * 120)]
    assert complaints("lines", survey.count_lines(modules), {"reading": 100}) == [
        f"reading grew by 20 lines to 120: {RAISE}"
    ]
    assert complaints("modules", survey.count_modules(modules), {}) == [
        "dpunion has no number of modules in [tool.house]."
    ]
    assert complaints("lines", survey.count_lines(modules), {"reading": 121}) == []


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("src/dpunion/errors.py", "ground"),
        ("src/dpunion/engines/local/engine.py", "engines"),
        ("lab/src/dpunion_lab/audit/noise.py", "dpunion_lab"),
    ],
)
def test_every_module_is_in_a_room(survey, path, room):
    assert survey.describe_module(path, "").room == room


# --- randomness and logs ---------------------------------------------------------------------------------------
def test_the_home_of_randomness_asks_the_operating_system():
    parsed = tree(PACKAGE / "randomness.py")
    assert "os.urandom" in dotted(parsed)
    assert not set(imported(parsed)) & {"random", "secrets", "numpy.random"}


NOT_SILENT = {"databases.py", "frames.py", "schedules.py", "answers.py", "compiler.py"}


def test_nothing_is_logged_or_warned(source):
    """Logs and warnings go where nobody looks for private data. There are six, of public things: a password in an
    address, a query that mixes people, guessed types, a changed list, kernels that cannot be kept or are compiled."""
    used = set(imported(tree(source)))
    assert "logging" not in used or names(source) == "kernels/__init__.py"
    assert "warnings" not in used or source.name in NOT_SILENT


# --- tests --------------------------------------------------------------------------------------------------
# Kernels that no test calls itself, and a test that fails without each: it compares what their caller makes of them.
THROUGH_KERNEL_TESTS = {
    "unit/reading/test_known.py::test_lines_that_are_empty_or_repeated_do_not_count": "interning.hash_strings",
    "property/test_counting_property.py::test_digests_are_found_by_both_words": "counting.find_in_buckets",
    "unit/reading/test_keys.py::test_known_keys_are_left_out_or_added": "bounding.drop_items",
    "unit/sets/test_spill.py::test_spilling_changes_nothing": "grouping.split_rows",
    "property/test_kernels_equal_reference.py::test_selected_strings_are_the_wanted_ones": "interning.take_strings",
    "property/test_ngrams_property.py::test_users_hold_exactly_their_ngrams_that_are_candidates": (
        "ngrams.collect ngrams.count_documents ngrams.number_pairs ngrams.renumber ngrams.scatter_documents "
        "ngrams.sort_unique"
    ),
    "property/test_ngrams_property.py::test_all_lengths_as_one_set_equal_ready_items": (
        "ngrams.join_texts ngrams.lay_beside"
    ),
    "property/test_ngrams_property.py::test_many_pairs_are_numbered_across_growing_tables": "ngrams.refill_pairs",
    "property/test_tokens_property.py::test_kernel_equals_reference": "words.split_words",
}
TESTED_THROUGH = {kernel: test for test, names in THROUGH_KERNEL_TESTS.items() for kernel in names.split()}


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
    has_a_test(f"dpunion.kernels.{kernel}", TESTED_THROUGH.get(kernel))


def has_a_test(name, through):
    assert (name in USED_BY_TESTS) == (through is None), name
    if through is not None:
        file, _, test = through.partition("::")
        assert test in {node.name for node in public_functions(TESTS / file)}, through


@pytest.mark.parametrize("module", sorted(PUBLIC_KERNELS))
def test_every_public_kernel_module_is_used_by_a_test(module):
    assert any(name.startswith(f"dpunion.kernels.{module}.") for name in USED_BY_TESTS)


def test_the_kernels_tested_through_others_exist():
    assert set(TESTED_THROUGH) <= {f"{module}.{function.name}" for module, function in kernel_entries()}


ENGINE_FUNCTIONS = [
    f"{module}.{node.name}" for module, node in function_entries(every=True) if module.startswith("engines.")
]
# The same for engines: what needs a cluster is compared with one machine.
THROUGH_ENGINE_TESTS = {
    "golden/test_recorded.py::test_releases_and_plans_are_those_recorded": (
        "engines.publishing.draft_release engines.local.texts.read_texts"
    ),
    "parity/test_spark_counts.py::test_one_shard_counts_as_one_machine": (
        "engines.spark.counting.keep_holdings engines.spark.counting.read_holdings engines.spark.counting.measure_on"
    ),
    "parity/test_engines_agree.py::test_the_sample_by_policies_in_one_shard": (
        "engines.spark.tasks.read_renamed engines.spark.rounds.run_rounds engines.spark.rounds.select_items"
    ),
    "property/test_spark_tasks.py::test_one_task_releases_what_rounds_on_spark_do": "engines.spark.tasks.run_shards",
    "property/test_spark_tasks.py::test_one_shard_is_one_machine": (
        "engines.spark.tasks.weigh_shard engines.spark.tasks.by_digest"
    ),
    "unit/test_look.py::test_known_items_are_not_looked_at": "engines.local.engine.unwanted_items",
    "property/test_spark_sizes.py::test_sets_cut_after_a_look_equal_those_read_so": "engines.spark.tasks.pack_pieces",
    "parity/test_engines_agree.py::test_shards_of_policies_agree_with_themselves": (
        "engines.spark.rounds.select_from_pieces"
    ),
    "parity/test_spark_ngrams.py::test_one_shard_gives_what_one_machine_gives": (
        "engines.spark.texts.name_pairs engines.spark.texts.read_kept_tokens engines.spark.texts.read_texts"
    ),
}
ENGINES_TESTED_THROUGH = {name: test for test, names in THROUGH_ENGINE_TESTS.items() for name in names.split()}


@pytest.mark.parametrize("name", ENGINE_FUNCTIONS)
def test_every_engine_function_on_private_data_has_a_test(name):
    """As for kernels: a test uses it by name, or one is named that fails without it."""
    has_a_test(f"dpunion.{name}", ENGINES_TESTED_THROUGH.get(name))


def test_both_engines_are_looked_at():
    assert {name.split(".")[1] for name in ENGINE_FUNCTIONS} == {"local", "publishing", "spark"}
    assert set(ENGINES_TESTED_THROUGH) <= set(ENGINE_FUNCTIONS)


def test_names_are_spelled_out_by_their_imports():
    source = "from a import b as c, split\nimport d.e\nimport f as g\nc.x()\nsplit\nd.e\ng.h.i\nput\n'j.k'"
    found = set(used_names(ast.parse(source)))
    assert found >= {"a.b.x", "a.split", "f.h.i"}
    assert not [name for name in found if "put" in name or "j" in name]


def test_no_test_file_is_lost():
    """Collect as pytest would: every file has tests, and there are not suddenly fewer than there were."""
    words = ("-m", "pytest", "--collect-only", "-p", "no:xdist", TESTS)
    done = run_program(sys.executable, *words, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert len([line for line in collected if Path(__file__).name not in line]) >= FEWEST_TESTS
    files = {line.split("::")[0] for line in collected}
    assert files == {path.relative_to(TESTS.parent).as_posix() for path in TESTS.rglob("test_*.py")}


def recipe(target):
    """Return the lines of a target in the Makefile."""
    text = (TESTS.parent / "Makefile").read_text()
    return re.search(rf"^{target}:.*\n((?:\t.*\n)*)", text, re.MULTILINE)[1]


def test_the_two_runs_are_all_tests_and_none_twice():
    """What has the mark is in one, what has not in the other; CI makes both, and plain pytest leaves nothing out."""
    runs = {
        target: re.findall(r" -m (\"[^\"]*\"|\S+)$", recipe(target), re.MULTILINE) for target in ("test", "test-all")
    }
    assert runs == {"test": ['"not full"'], "test-all": ["full"]}
    ran = re.findall(r"^make (\S+)", (TESTS.parent / ".ci" / "run").read_text(), re.MULTILINE)
    assert ran == ["test", "test-all", "wheel"]
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "-m " not in options["addopts"]
    assert [mark.split(":")[0] for mark in options["markers"]] == ["full"]


IGNORES = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
EXCEPTIONS = {"chances.py"} | {Path(name).name for name, rules in IGNORES.items() if "TID251" in rules}
FORBIDDEN = """
import socket, ssl, http.client, urllib.request, requests, httpx, ftplib
from http import server
import secrets, uuid, random, pickle, marshal, shelve
import numpy.random
import os, numpy as np; np.random.default_rng(), os.getrandom(8), os.urandom(8)
""".strip()


@pytest.mark.parametrize("package", ["src/dpunion", "lab/src/dpunion_lab"])
def test_ruff_refuses_networks_pickles_and_other_randomness(package):
    """`make test` runs ruff, whose settings say what no module may use and which module is an exception."""
    ruff = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", f"{package}/new.py"]
    done = run_program(*ruff, "--output-format", "json", "-", input=FORBIDDEN)
    rows = collections.Counter(one["location"]["row"] for one in json.loads(done.stdout))
    assert rows == {1: 7, 2: 1, 3: 6, 4: 1, 5: 3}


def test_exceptions_from_what_ruff_refuses_are_for_draws_of_numpy_and_the_system(source):
    """Seeded draws of public things, and the one home of randomness."""
    assert not re.search(r"urllib\.(?!parse)\w|from urllib import", source.read_text())
    assert "TID251" not in source.read_text() or source.name in EXCEPTIONS
    if source.name in EXCEPTIONS:
        others = "random|secrets|uuid|pickle|marshal|shelve|socket|ssl|http|requests|httpx|ftplib"
        assert not [name for name in imported(tree(source)) if re.match(rf"({others})\b", name)]


def test_nothing_is_evaluated(source):
    called = {ast.unparse(node.func) for node in ast.walk(tree(source)) if isinstance(node, ast.Call)}
    assert not called & {"eval", "exec", "os.system", "compile"}
