"""The command line: what it answers, on which stream, with which exit code."""

import json
import math
import os
from importlib.metadata import version

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.algorithms import ALGORITHMS
from dpunion.cli.release import RELEASE_HELP
from dpunion.errors import SensitivityMismatch
from dpunion.releases.formats import WRITERS
from dpunion.releases.release import FORMAT, Release
from dpunion.releases.statements import NOT_PRIVATE
from dpunion.samples import debian_depends
from dpunion_lab.study import RESEARCH_POLICIES
from opening import write_sqlite
from running import assert_error, run_python
from running import run_cli as run
from running import run_command as process

ITEMS = ["alpha", "beta", "gamma", "mañana", "line\nbreak", "=formula", "\x1b[31mred"]
BUDGET = ("-e", "2", "-d", "1e-4")
# In a process of its own the key is a real one: Funnel misses an item that everybody has once in 350 releases.
SURE = ("-a", "weighted-gaussian")
COLUMNS = ("--user", "author", "--item", "word")
E10 = "4.5399929762484854e-05"


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """A small file in which everybody has the same items."""
    path = tmp_path_factory.mktemp("posts") / "posts.parquet"
    people = 100
    table = pa.table({"author": [f"user{i}" for i in range(people) for _ in ITEMS], "word": ITEMS * people})
    pq.write_table(table.append_column("body", table["word"]), path)
    return str(path)


# --- help ---------------------------------------------------------------------------------------------------
def test_the_version_is_that_of_the_package():
    assert run("--version", code=0).stdout == f"dpunion {dpunion.__version__}\n" == f"dpunion {version('dpunion')}\n"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_first_help_names_the_commands(flag):
    result = run(flag, code=0)
    for word in ("release", "plan", "demo", "dpunion release --help"):
        assert word in result.stdout


def test_without_arguments_the_help_is_shown():
    assert "Usage" in run().output


def test_the_help_of_release_teaches():
    shown = " ".join(process("release", "--help", env=os.environ | {"COLUMNS": "300"}).stdout.split())
    assert "dpunion release posts.parquet --user author --item word -e 1 -d 1e-6 --out vocabulary.parquet" in shown
    assert "> queries.txt" in shown
    assert "Exit codes" in shown
    for code in ("0 done", "1 a bug", "2 a bad option", "3 bad data", "4 cannot write", "130 interrupted"):
        assert code in shown
    for name in (*ALGORITHMS, *WRITERS):
        assert name in shown
    for name in RESEARCH_POLICIES:
        assert name not in shown


@pytest.mark.parametrize("name", ["release", "plan", "demo", "sample"])
def test_every_command_has_help(name):
    result = run(name, "--help", code=0)
    assert "Usage" in result.stdout


def test_the_examples_of_the_help_parse(tmp_path, monkeypatch):
    """Each is run as it stands: on an empty folder they fail because there is no such file, not because of options."""
    import shlex

    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in RELEASE_HELP.splitlines() if line.startswith("  dpunion")]
    # The one for Spark would look for a cluster first.
    examples = [line for line in lines if "--engine spark" not in line]
    assert len(examples) >= 3
    for example in examples:
        words = shlex.split(example)
        arguments = words[1 : words.index(">")] if ">" in words else words[1:]
        result = run(*arguments, code=5 if "--scheduled" in words else 3)
        assert ("no ledger" if "--scheduled" in words else "no file") in result.stderr.lower()


def test_the_exit_codes_are_those_of_the_errors():
    errors = (dpunion.BadParameter, dpunion.NotPrivate, dpunion.BadSource, dpunion.CannotWrite)
    assert [error.exit_code for error in errors] == [2, 2, 3, 4]


# --- start-up -----------------------------------------------------------------------------------------------
HEAVY = ("numpy", "numba", "pyarrow", "pyarrow.compute", "pandas", "polars", "duckdb", "scipy")


def loaded_after(code):
    tail = f"\nimport sys; print(*[name for name in {HEAVY!r} if sys.modules.get(name)])"
    return run_python(code + tail, check=True).stdout.split("\n")[-2].split()


def test_importing_dpunion_loads_nothing_heavy():
    assert loaded_after("import dpunion; dir(dpunion)") == []


@pytest.mark.parametrize("arguments", [["--help"], ["release", "--help"], ["--version"]])
def test_asking_for_help_loads_nothing_heavy(arguments):
    code = f"""
import sys
sys.argv = ["dpunion", *{arguments!r}]
from dpunion.cli import app
try:
    app()  # not main, which ends the process
except SystemExit as done:
    assert not done.code
"""
    assert loaded_after(code) == []


def test_the_check_sees_what_is_loaded():
    assert "numpy" in loaded_after("import dpunion; dpunion.plan")


def test_a_release_loads_what_it_needs(posts, tmp_path):
    """Arrow's many functions take a while to load."""
    asked = f'user="author", item="word", epsilon=3, delta=1e-5, out={str(tmp_path / "o.parquet")!r}'
    loaded = loaded_after(f"import dpunion; dpunion.release({posts!r}, {asked})")
    assert set(loaded) - {"scipy"} == {"numpy", "numba", "pyarrow"}  # numba looks for scipy; the command hides it
    assert loaded_after("import pyarrow.compute") == ["numpy", "pyarrow", "pyarrow.compute"]


# --- the process ---------------------------------------------------------------------------------------------
def test_the_command_dumps_no_core():
    code = """
import ctypes, resource
import dpunion.cli.commands
dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
dpunion.cli.commands.run = lambda: print(resource.getrlimit(resource.RLIMIT_CORE), dumpable())
dpunion.cli.main()
"""
    assert run_python(code, check=True).stdout == "(0, 0) 0\n"


@pytest.mark.parametrize("text", ["debug: 1", "disable_jit: 1", "- not a mapping", "{", "num_threads: 0"])
def test_settings_of_numba_in_the_current_folder_are_not_obeyed(tmp_path, text):
    (tmp_path / ".numba_config.yaml").write_text(text)
    done = process("plan", *BUDGET, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["algorithm"] == "funnel"
    assert done.stderr == ""


def test_settings_of_numba_do_not_print_into_a_release(posts, tmp_path):
    environment = os.environ | {"NUMBA_DEBUG": "1", "NUMBA_DUMP_BYTECODE": "1", "NUMBA_DISABLE_JIT": "1"}
    done = process("release", posts, *COLUMNS, *BUDGET, *SURE, env=environment | {"XDG_CACHE_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(ITEMS)


@pytest.mark.parametrize("number", ["0", "-1", "many", ""])
def test_a_wrong_number_of_threads_is_refused(number):
    done = process("plan", *BUDGET, env=os.environ | {"NUMBA_NUM_THREADS": number})
    assert (done.returncode, done.stdout) == (2, "")
    assert "NUMBA_NUM_THREADS must be a whole number" in done.stderr


def test_a_policy_of_ones_own_may_import_anything(tmp_path):
    pytest.importorskip("scipy")
    pytest.importorskip("yaml")
    policy = "import scipy.stats\nimport yaml\ndef update(*_):\n    raise SystemExit(7)\n"
    (tmp_path / "mine.py").write_text(policy)
    done = process("audit", "policy", f"{tmp_path}/mine.py:update", "--norm", "l2", "--seconds", "1")
    assert done.returncode == 7, done.stderr


@pytest.mark.full
def test_releases_with_counts_are_audited():
    done = process("audit", "release", "--counts", "-a", "weighted-gaussian", "--trials", "500", "--no-exact")
    assert done.returncode == 0, done.stderr
    for name in ("counts: rough step", "counts: fine step", "weighted-gaussian with counts", "squared move"):
        assert name in done.stdout
    assert "VIOLATED" not in done.stdout
    refused = process("audit", "release", "--counts", "-a", "count-laplace", "--trials", "500")
    assert refused.returncode == 2
    assert "count-laplace cannot estimate counts" in refused.stderr


# --- plan ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("epsilon", "delta", "calibration", "stddev", "threshold"),
    [
        ("3", E10, "exact", (1.2824, 1.2840), (6.397, 6.405)),
        ("3", E10, "published", (1.33275, 1.3342), (6.823, 6.831)),
        ("1", "1e-5", "exact", (3.730, 3.735), (19.49, 19.52)),
        ("1", "1e-5", "published", (3.884, 3.888), (20.7895, 20.82)),
    ],
)
def test_plan_golden(epsilon, delta, calibration, stddev, threshold):
    result = run(
        *("plan", "-e", epsilon, "-d", delta, "-a", "policy-gaussian", "--max-items-per-user", 100),
        *("--calibration", calibration, "--json"),
        code=0,
    )
    plan = json.loads(result.stdout)
    assert stddev[0] <= plan["stddev"] <= stddev[1]
    assert threshold[0] <= plan["threshold"] <= threshold[1]
    assert plan["cutoff"] == pytest.approx(plan["threshold"] + 3 * plan["stddev"])
    assert plan["parameters"]["max_items_per_user"] == 100
    assert plan["parameters"]["calibration"] == calibration
    assert plan["delta_used"] <= float(delta)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_plan_shows_the_numbers_of_every_algorithm(name):
    shown = run("plan", *BUDGET, "-a", name, code=0)
    assert "No data was read" in shown.stdout
    planned = dpunion.plan(name, epsilon=2.0, delta=1e-4)
    for one in planned.alternatives:
        assert f"{one.threshold:.4g}" in shown.stdout or f"{one.threshold:.6g}" in shown.stdout
    as_json = json.loads(run("plan", *BUDGET, "-a", name, "--json").stdout)
    needed = as_json.pop("holders_needed")
    assert as_json == json.loads(json.dumps(planned.to_dict()))
    assert [one["items_each"] for one in needed] == [1, 10, 100]
    for one in needed:
        assert (one["chance_50"] or 10**6) <= (one["chance_90"] or 10**6)
        assert one["chance_50"] is None or f"{one['chance_50']:,}" in shown.stdout
    assert as_json["algorithm"] == name
    assert (as_json["epsilon"], as_json["delta"]) == (2.0, 1e-4)


def test_plan_takes_the_parameters():
    result = run(
        *("plan", *BUDGET, "-a", "policy-laplace", "--passes", 2, "--cutoff-margin", 4, "--json"),
        *("--user-order", "smallest-first", "--max-items-per-user", 7),
    )
    parameters = json.loads(result.stdout)["parameters"]
    chosen = {"max_items_per_user": 7, "cutoff_margin": 4.0, "passes": 2, "user_order": "smallest-first"}
    assert parameters == chosen | {"calibration": "published", "reserve": 0.0}


def test_plan_takes_any_parameter_by_name():
    result = run("plan", *BUDGET, "--set", "rounds=3", "--set", "keep-fraction=0.9", "--json")
    parameters = json.loads(result.stdout)["parameters"]
    assert (parameters["rounds"], parameters["keep_fraction"]) == (3, 0.9)


@pytest.mark.parametrize(
    "setting", ["nonsense", "=3", "rounds=", "rounds=many", "rounds=2.5", "keep_fraction=nan", "name=3"]
)
def test_plan_refuses_what_is_no_parameter(setting):
    assert_error(run("plan", *BUDGET, "-a", "funnel", "--set", setting), 2, "funnel")


# --- release ------------------------------------------------------------------------------------------------
PRINTED = ["=formula", "\\x1b[31mred", "alpha", "beta", "gamma", "line\\nbreak", "mañana"]


def test_release_prints_the_items_and_nothing_else_to_stdout(posts):
    done = process("release", posts, *COLUMNS, *BUDGET, *SURE)
    assert done.returncode == 0
    # Bytewise by item; escapes are made afterwards.
    assert sorted(done.stdout.splitlines()) == sorted(PRINTED)
    assert "Released 7 items to standard output." in done.stderr
    assert "(2, 0.0001)-differentially private" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_release_is_quiet_when_stderr_is_no_terminal(posts, tmp_path):
    done = process("release", posts, *COLUMNS, *BUDGET, "--out", tmp_path / "a.txt")
    assert done.stdout == ""
    for stage in ("reading", "planning", "selecting", "writing"):
        assert stage not in done.stderr
    assert "\r" not in done.stderr
    # With a cold cache the first run says that it compiles.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Compiling, once on this machine")]
    assert len(said) == 2 + 1
    assert said[-1].startswith("At this budget an item has an even chance of being released if about")


def test_release_prints_utf8_in_any_locale(posts):
    for setting in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        # This process has a real key: an algorithm without a cutoff misses the item with probability < 1e-9.
        asked = (*COLUMNS, "-e", "10", "-d", "1e-6", "-a", "count-gaussian")
        done = process("release", posts, *asked, env=os.environ | setting, text=False)
        assert done.returncode == 0, done.stderr
        assert "mañana\n".encode() in done.stdout


def test_release_writes_every_format(posts, tmp_path):
    paths = [tmp_path / f"out{suffix}" for suffix in WRITERS]
    result = run("release", posts, *COLUMNS, *BUDGET, *(part for path in paths for part in ("--out", path)), code=0)
    assert result.stdout == ""
    assert "Released 7 items to" in result.stderr
    assert all(path.exists() for path in paths)
    assert Release.from_json((tmp_path / "out.json").read_text()).items == tuple(sorted(ITEMS))


def test_release_overwrites_with_force_only(posts, tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    assert_error(run("release", posts, *COLUMNS, *BUDGET, "--out", path), 4, "exists already", "--force")
    assert path.read_text() == "old"
    assert run("release", posts, *COLUMNS, *BUDGET, "--out", path, "--force").exit_code == 0
    assert path.read_text() != "old"


def test_release_json(posts):
    result = run("release", posts, *COLUMNS, *BUDGET, "--json")
    values = json.loads(result.stdout)
    made = {"columns", "format", "notes", "guaranteed", "statement", "plan", "items", "about"}
    assert set(values) == made | {"version", "ledger"}
    assert set(values["about"]) == {"made"}
    assert values["version"] == dpunion.__version__
    assert values["ledger"] is None
    assert values["format"] == FORMAT
    assert values["guaranteed"] is True
    assert "NOT PRIVATE" not in values["statement"]
    assert values["items"] == sorted(ITEMS)
    assert result.stderr == ""


def test_release_json_beside_a_file_names_it_and_counts(posts, tmp_path):
    path = tmp_path / "out.csv"
    values = json.loads(run("release", posts, *COLUMNS, *BUDGET, "--json", "--out", path).stdout)
    made = {"columns", "format", "notes", "guaranteed", "statement", "plan", "released", "written", "about"}
    assert set(values) == made | {"version", "ledger"}
    assert values["released"] == len(ITEMS)
    assert values["written"] == [str(path)]


def test_a_test_key_is_stamped_everywhere(posts, tmp_path):
    path = tmp_path / "out.json"
    key = ("--unsafe-test-key", 1)
    shown = run("release", posts, *COLUMNS, *BUDGET, *key)
    assert shown.stderr.splitlines()[1:] == [NOT_PRIVATE]
    values = json.loads(run("release", posts, *COLUMNS, *BUDGET, *key, "--json", "--out", path).stdout)
    for stamped in (values, json.loads(path.read_text())):
        assert stamped["guaranteed"] is False
        assert stamped["statement"] == NOT_PRIVATE
    again = run("release", posts, *COLUMNS, *BUDGET, *key)
    assert again.stdout == shown.stdout


def test_a_weak_budget_needs_its_flag(posts, tmp_path):
    weak = ("-e", "12", "-d", "0.01")
    words = ("-u", "author", "-t", "body", "--longest", 1)
    for command in (("plan", "-a", "weighted-laplace"), ("release", posts, *COLUMNS), ("ngrams", posts, *words)):
        assert_error(run(*command, *weak), 2, "too weak", "more than 99.999 % sure", "1 in 100", "--weak-budget")
        assert run(*command, *weak, "--weak-budget").exit_code == 0
    assert "THE GUARANTEE IS WEAK" in run("plan", "-a", "weighted-laplace", *weak, "--weak-budget").stdout
    out = tmp_path / "out.json"
    result = run("release", posts, *COLUMNS, *weak, "--weak-budget", "--out", out)
    assert "THE GUARANTEE IS WEAK" in result.stderr
    assert "THE GUARANTEE IS WEAK" in json.loads(out.read_text())["statement"]
    record = tmp_path / "out.json.private.toml"
    assert "weak-budget = true" in record.read_text()
    assert run("release", "--config", record, "--out", tmp_path / "again.json").exit_code == 0


def test_a_query_that_mixes_people_is_warned_of(tmp_path):
    pytest.importorskip("adbc_driver_sqlite", reason="the driver for SQLite is not installed")
    path = tmp_path / "posts.db"
    write_sqlite(path, "posts (author text, word text)", [(f"u{i}", "x") for i in range(100)])
    query = "select author, word from posts"
    mixing, harmless = (
        process("release", path, *COLUMNS, *BUDGET, "--query", one) for one in (f"{query} limit 90", query)
    )
    assert (mixing.returncode, harmless.returncode) == (0, 0)
    assert mixing.stdout == harmless.stdout == "x\n"
    notes = [line for line in mixing.stderr.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 1
    assert "The query has LIMIT" in notes[0]
    assert "Note: " not in harmless.stderr


def test_options_of_texts_are_named_where_there_are_no_texts(posts):
    refused = run("release", posts, *COLUMNS, *BUDGET, "--stop-words", "stop.txt", "--min-length", 3)
    assert_error(refused, 2, "There is no column of texts for --stop-words and --min-length.", "with --text")


def test_a_list_of_stop_words_is_a_file(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"author": "a", "body": "some words"}\n')
    refused = run("release", path, "-u", "author", "-t", "body", *BUDGET, "--stop-words", "english")
    assert_error(refused, 3, "There is no file english with a list of stop words.", "one word or item on each line")


def test_a_pattern_over_partitions_names_the_folder_that_has_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "logs" / "year=2026" / "week=secret"
    place.mkdir(parents=True)
    table = pa.table({"author": [f"u{n}" for n in range(300)], "word": ["x"] * 300})
    pq.write_table(table, place / "part.parquet")
    asked = ("-u", "author", "-i", "week", *BUDGET)
    refused = run("release", "logs/*/*/*.parquet", *asked)
    assert_error(refused, 3, "There is no column 'week'", "Name the folder 'logs' to have its partitions as columns.")
    assert "secret" not in refused.stderr
    assert run("release", "logs", *asked).exit_code == 0
    # A folder of CSV files has no partitions.
    (place / "part.csv").write_text("author,word\na,x\n")
    assert "Name one of these columns" in run("release", "logs/*/*/*.csv", *asked).stderr


def test_texts_are_split_into_words(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"id": i, "body": "Don't panic, PANIC!"}) + "\n" for i in range(100)))
    result = run("release", path, "--user", "id", "--text", "body", *BUDGET)
    assert result.stdout.splitlines() == ["don't", "panic"]


def test_several_files_and_patterns_are_one_source(tmp_path):
    for part in range(3):
        rows = "".join(f"u{i},common\n" for i in range(part * 40, part * 40 + 40))
        (tmp_path / f"part{part}.csv").write_text("author,word\n" + rows)
    alone = [run("release", tmp_path / f"part{i}.csv", *COLUMNS, "-e", 1, "-d", "1e-12") for i in range(3)]
    together = run("release", tmp_path / "part*.csv", *COLUMNS, "-e", 1, "-d", "1e-12")
    listed = run("release", *(tmp_path / f"part{i}.csv" for i in range(3)), *COLUMNS, "-e", 1, "-d", "1e-12")
    assert {result.exit_code for result in [*alone, together, listed]} == {0}
    assert together.stdout == listed.stdout == "common\n"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_release_with_every_algorithm(posts, name):
    result = run("release", posts, *COLUMNS, "-e", 20, "-d", "1e-4", "--weak-budget", "-a", name, "--json", code=0)
    assert json.loads(result.stdout)["plan"]["algorithm"] == name


def test_no_rows_give_an_empty_release(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("author,word\n")
    out = tmp_path / "out.parquet"
    result = run("release", path, *COLUMNS, *BUDGET, "--out", out, code=0)
    assert "Released 0 items" in result.stderr
    assert pq.read_table(out).to_pydict() == {"item": []}
    assert run("release", path, *COLUMNS, *BUDGET).stdout == ""


def test_rows_without_a_user_are_refused_or_dropped(tmp_path):
    path = tmp_path / "nulls.csv"
    path.write_text("author,word\n,orphan\n" + "".join(f"u{i},common\n" for i in range(100)))
    assert_error(run("release", path, *COLUMNS, *BUDGET), 3, "null")
    dropped = run("release", path, *COLUMNS, *BUDGET, "--null-users", "drop")
    assert dropped.stdout == "common\n"


# --- errors -------------------------------------------------------------------------------------------------
def test_a_misspelt_column_is_guessed(posts):
    assert_error(run("release", posts, "--user", "auhtor", "--item", "word", *BUDGET), 3, "'auhtor'", "'author'?")
    assert_error(run("release", posts, "--user", "author", "--item", "wrod", *BUDGET), 3, "'wrod'", "'word'?")


def test_a_missing_file():
    assert_error(run("release", "no-such.parquet", *COLUMNS, *BUDGET), 3, "no-such.parquet", "Check the path")
    assert_error(run("release", "no-such-*.csv", *COLUMNS, *BUDGET), 3, "No file matches", "pattern")


@pytest.mark.parametrize(
    ("name", "words"), [("nothing.csv", ("no header", "column names")), ("data.xlsx", ("'.xlsx'", ".parquet"))]
)
def test_an_empty_file_and_an_unknown_format_are_refused(tmp_path, name, words):
    (tmp_path / name).write_bytes(b"")
    assert_error(run("release", tmp_path / name, *COLUMNS, *BUDGET), 3, *words)


BAD_EPSILONS, BAD_DELTAS = "nan inf -inf 0 -1 1e308 51 1e-9", "nan inf 0 -1e-6 1 1.5 1e-300"


@pytest.mark.parametrize("more", [("plan",), ("release", "no-such.parquet", *COLUMNS)], ids=["plan", "release"])
@pytest.mark.parametrize(
    ("bad", "value"),
    [*(("epsilon", value) for value in BAD_EPSILONS.split()), *(("delta", value) for value in BAD_DELTAS.split())],
)
def test_a_bad_budget_is_refused(more, bad, value):
    budget = {"epsilon": "1", "delta": "1e-6"} | {bad: value}
    assert_error(run(*more, *(f"--{name}={text}" for name, text in budget.items())), 2, f"'{bad}'")


def test_a_budget_that_is_no_number():
    assert_error(run("plan", "-e", "much", "-d", "1e-6"), 2, "'epsilon' parameter must be a number")


@pytest.mark.parametrize("missing", ["--epsilon", "--delta", "--user"])
def test_nothing_private_has_a_default(posts, missing):
    given = {"--epsilon": "1", "--delta": "1e-6", "--user": "author", "--item": "word"}
    arguments = [part for name, value in given.items() if name != missing for part in (name, value)]
    assert_error(run("release", posts, *arguments), 2, missing)


@pytest.mark.parametrize("columns", [(), ("--item", "word", "--text", "body")], ids=["neither", "both"])
def test_items_or_texts(posts, columns):
    assert_error(run("release", posts, "--user", "author", *columns, *BUDGET), 2, "exactly one of --item and --text")


@pytest.mark.parametrize("name", RESEARCH_POLICIES)
@pytest.mark.parametrize("command", ["plan", "release"])
def test_research_policies_are_refused_with_the_reason(posts, command, name):
    more = (posts, *COLUMNS) if command == "release" else ()
    assert_error(run(command, *more, *BUDGET, "-a", name), 2, name, "cannot be released", "for study only")


def test_an_unknown_algorithm(posts):
    assert_error(run("release", posts, *COLUMNS, *BUDGET, "-a", "magic"), 2, "'magic'", "policy-gaussian")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("weighted-gaussian", "--passes", "2"),
        ("count-laplace", "--cutoff-margin", "2"),
        ("weighted-laplace", "--user-order", "random"),
    ],
)
def test_a_parameter_of_another_algorithm(posts, name, option, value):
    parameter = option.removeprefix("--").replace("-", "_")
    result = run("release", posts, *COLUMNS, *BUDGET, "-a", name, option, value)
    assert_error(result, 2, f"{name} has no parameter {parameter!r}", "It has: max_items_per_user")


@pytest.mark.parametrize(
    ("option", "value", "name"),
    [
        ("--max-items-per-user", "0", "max_items_per_user"),
        ("--max-items-per-user", "1000000", "max_items_per_user"),
        ("--passes", "0", "passes"),
        ("--cutoff-margin", "nan", "cutoff_margin"),
        ("--calibration", "wishful", "calibration"),
        ("--user-order", "richest-first", "user_order"),
    ],
)
def test_a_parameter_out_of_range(posts, option, value, name):
    result = run("release", posts, *COLUMNS, *BUDGET, "-a", "policy-gaussian", option, value)
    assert_error(result, 2, repr(name))


@pytest.mark.parametrize(("option", "value"), [("--null-users", "keep"), ("--normalize", "upper")])
def test_an_unknown_choice(posts, option, value):
    name = option.removeprefix("--").replace("-", "_")
    assert_error(run("release", posts, *COLUMNS, *BUDGET, option, value), 2, repr(value), repr(name))


def test_a_column_of_floats_is_no_user(tmp_path):
    path = tmp_path / "floats.parquet"
    pq.write_table(pa.table({"author": [1.5, math.nan], "word": ["a", "b"]}), path)
    assert_error(run("release", path, *COLUMNS, *BUDGET), 3, "author", "double")


@pytest.mark.parametrize(
    ("step", "error", "code", "words"),
    [
        ("run_rounds", SensitivityMismatch("the test says so"), 1, ("bug in dpunion", "No release was made")),
        ("encode", MemoryError(), 3, ("memory",)),
    ],
    ids=["bug", "memory"],
)
def test_a_bug_of_dpunion_and_too_little_memory_are_named(posts, monkeypatch, step, error, code, words):
    def fail(*_given, **_options):
        raise error

    monkeypatch.setattr(f"dpunion.engines.local.engine.{step}", fail)
    assert_error(run("release", posts, *COLUMNS, *BUDGET), code, *words)


# --- demo ---------------------------------------------------------------------------------------------------
def test_demo_works_anywhere_and_says_what_it_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--out", "words.csv", code=0)
    lines = (tmp_path / "words.csv").read_text().splitlines()
    assert lines[0] == "item"
    assert len(lines) > 50
    assert f"Released {len(lines) - 1:,} items to words.csv." in result.stdout
    assert "(1, 1e-06)-differentially private" in result.stdout
    assert lines[1] in result.stdout


def test_demo_leaves_nothing_behind_unless_asked_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", code=0)
    assert "items.\n" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_sample_is_there_for_the_command_that_the_demo_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (shown,) = [line[2:] for line in run("demo").stdout.splitlines() if line.startswith("$ ")]
    assert run("sample").exit_code == 0
    assert (tmp_path / "debian_depends.parquet").read_bytes() == debian_depends().read_bytes()
    run(*shown.split()[1:], "--out", "words.txt", code=0)
    assert_error(run("sample"), 4, "debian_depends.parquet")
    assert run("sample", ".", "--force").exit_code == 0
    assert_error(run("sample", "nowhere"), 4, "nowhere")


def test_demo_refuses_a_bad_output_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--out", "words.xlsx")
    assert_error(result, 2, "'.xlsx'")
