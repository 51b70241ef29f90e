"""Stages that a run reports, also while kernels are compiled; and compiling beforehand."""

import logging
import os
import subprocess
import sys

import pytest

import dpunion
from dpunion import kernels
from dpunion.engines.warming import Stages, show_compiling
from dpunion.kernels.compiler import CompileListener, kernel
from dpunion.warm_up import warm_up

ROWS = [(f"u{n}", word) for n in range(50) for word in "abc"]


def test_progress_gets_the_stages_of_a_run():
    stages = []
    run = dpunion.Run(progress=lambda stage, done: stages.append(stage))
    dpunion.release(ROWS, epsilon=2.0, delta=1e-4, counts=True, run=run)
    seen = [stage for stage in dict.fromkeys(stages) if stage not in {"planning", "compiling"}]
    assert seen == ["reading", "grouping", "selecting", "counting", "writing"]


def test_after_compiling_the_stage_is_reported_again():
    stages = []
    each = Stages(lambda stage, done: stages.append((stage, done)))
    each.compile(True)
    each.compile(False)
    each("reading", 0.25)
    each.compile(True)
    each.compile(False)
    compiling, reading = ("compiling", None), ("reading", 0.25)
    assert stages == [compiling, ("planning", None), reading, compiling, reading]


@show_compiling
def compile_something(*, run=dpunion.Run()):  # noqa: B008 - frozen
    """Compile a new function twice, one inside the other."""

    @kernel
    def inner(x):
        return x + 1

    @kernel
    def outer(x):
        return inner(x) * 2

    assert outer(3) == 8
    assert outer(2.0) == 6.0


@pytest.fixture
def uncached(monkeypatch):
    """What is compiled here is not kept, so that it is compiled each time."""
    monkeypatch.setattr("dpunion.kernels.compiler.cache_directory", lambda: None)


def test_compiling_is_reported_once_for_all_that_a_kernel_needs(uncached):
    stages = []
    compile_something(run=dpunion.Run(progress=lambda stage, done: stages.append(stage)))
    assert stages == ["compiling", "planning"] * 2


def test_without_progress_a_log_record_says_so_once(uncached, caplog, monkeypatch):
    monkeypatch.setattr(kernels, "_logged", [])
    with caplog.at_level(logging.INFO, logger="dpunion"):
        compile_something()
    assert [record.getMessage() for record in caplog.records] == [kernels.FIRST_TIME]
    assert kernels._hooks == []


def test_a_listener_replaces_the_log_record(uncached, caplog):
    events = []
    with kernels.on_compiling(events.append):
        compile_something()
    assert events == [True, False] * 2
    assert not caplog.records


def test_loading_a_compiled_kernel_is_not_announced(caplog):
    dpunion.release(ROWS, epsilon=2.0, delta=1e-4)
    caplog.clear()
    stages = []
    dpunion.release(ROWS, epsilon=2.0, delta=1e-4, run=dpunion.Run(progress=lambda stage, _: stages.append(stage)))
    assert "compiling" not in stages
    assert not caplog.records


def test_a_listener_that_fails_ends_the_run_and_leaves_no_listener():
    def refuse(stage, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dpunion.release(ROWS, epsilon=2.0, delta=1e-4, run=dpunion.Run(progress=refuse))
    assert kernels._hooks == []


def test_an_interrupt_while_compiling_leaves_numba_working(uncached):
    def refuse(stage, done):
        if stage == "compiling":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_something(run=dpunion.Run(progress=refuse))
    stages = []
    compile_something(run=dpunion.Run(progress=lambda stage, done: stages.append(stage)))
    assert stages == ["compiling", "planning"] * 2


def test_only_the_outermost_kernel_is_announced():
    seen = []
    listener = CompileListener()
    with kernels.on_compiling(seen.append):
        for event in (listener.on_start, listener.on_start, listener.on_end, listener.on_end):
            event(None)
    assert seen == [True, False]


# --- warm-up -----------------------------------------------------------------------------------------------------
def test_warm_up_makes_every_kind_of_release():
    stages = []
    warm_up(lambda job, done: stages.append((job, done)))
    parts = [done for _, done in stages]
    assert parts == sorted(parts)
    assert parts[0] == 0.0
    assert parts[-1] < 1.0
    assert {"funnel", "dp-sips", "words", "counts", "n-grams, policy-gaussian"} <= {job for job, _ in stages}


def in_home(home, *arguments):
    """Run Python with its own place for kernels."""
    env = {**os.environ, "XDG_CACHE_HOME": str(home)}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)


USES = """
import dpunion
rows = [(f"u{n}", f"w{m % 50} and more") for n in range(300) for m in range(n % 9)]
asked = dict(epsilon=3.0, delta=1e-4, counts=True)
for name in ("funnel", "policy-laplace", "dp-sips"):
    dpunion.release(rows, algorithm=name, epsilon=3.0, delta=1e-4)
dpunion.release(rows, item=dpunion.Words(), **asked)
dpunion.release(rows, item=dpunion.Words(lengths=(1, 2), tokenizer="whitespace"), **asked)
dpunion.release_ngrams(rows, longest=2, **asked)
dpunion.release({"u": {"a"}, "v": {"b"}}, epsilon=1.0, delta=1e-6, normalize="exact")
"""


@pytest.mark.full
def test_after_warm_up_nothing_is_compiled(tmp_path):
    """In a fresh home: warm-up keeps kernels, says where, and what people do then compiles nothing more."""
    home = tmp_path / "cache"
    home.mkdir(mode=0o700)
    first = in_home(home, "-m", "dpunion", "warm-up")
    assert first.returncode == 0, first.stderr
    assert f"kernels were compiled, and stored in {home}" in first.stderr
    assert len(list(home.rglob("*.nbc"))) > 50
    kept = sorted(home.rglob("*.nb?"))
    again = in_home(home, "-m", "dpunion", "warm-up")
    assert "Everything was compiled already" in again.stderr
    used = in_home(home, "-c", USES)
    assert used.returncode == 0, used.stderr
    assert used.stderr == ""
    assert sorted(home.rglob("*.nb?")) == kept


def test_warm_up_fails_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "file").write_text("")
    done = in_home(tmp_path / "file", "-m", "dpunion", "warm-up")
    assert done.returncode == 4
    assert "Set XDG_CACHE_HOME" in done.stderr
    assert done.stderr.count("has to compile its kernels at each start") == 1
