"""What is published: one version, metadata that is true, an image that can be built, nothing in the way."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpunion

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def tool(name):
    """Return a script of tools/ as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def ready(tmp_path):
    """A tree of which a version can be published."""
    (tmp_path / "src" / "dpunion").mkdir(parents=True)
    (tmp_path / "src" / "dpunion" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nurls = {Homepage = "https://example.org"}\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 - 2026-12-01\n")
    (tmp_path / "dist").mkdir()
    for name in ("dpunion-1.2.3-py3-none-any.whl", "dpunion-1.2.3.tar.gz"):
        (tmp_path / "dist" / name).write_bytes(b"")
    return tmp_path


def test_the_version_has_one_home():
    assert PROJECT["dynamic"] == ["version"]
    assert tool("publish").version_in(ROOT) == dpunion.__version__
    assert re.search(rf"^## {re.escape(dpunion.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_pages_name_the_wheel_that_is_built():
    for page in ("README.md", "docs/platforms.md"):
        named = set(re.findall(r"dpunion-[\d.]+-py3-none-any\.whl", (ROOT / page).read_text()))
        assert named == {f"dpunion-{dpunion.__version__}-py3-none-any.whl"}


def test_a_finished_version_can_be_published(ready):
    publish = tool("publish")
    assert publish.version_in(ready) == "1.2.3"
    assert publish.obstacles(ready, "1.2.3", "", ["v1.2.2"]) == []
    assert [path.name for path in publish.built(ready, "1.2.3")] == [
        "dpunion-1.2.3-py3-none-any.whl",
        "dpunion-1.2.3.tar.gz",
    ]


@pytest.mark.parametrize(
    ("spoil", "changed", "tags", "word"),
    [
        (lambda _: None, " M README.md\n", [], "committed"),
        (lambda _: None, "", ["v1.2.3"], "tag"),
        (lambda root: (root / "CHANGELOG.md").write_text("## 1.2.3\n"), "", [], "CHANGELOG"),
        (lambda root: (root / "CHANGELOG.md").write_text("## 1x2.3 - 2026-12-01\n"), "", [], "CHANGELOG"),
        (lambda root: (root / "dist" / "dpunion-1.2.3.tar.gz").unlink(), "", [], "dist"),
        (lambda root: (root / "pyproject.toml").write_text("[project]\n"), "", [], "urls"),
    ],
)
def test_what_is_unfinished_is_not(ready, spoil, changed, tags, word):
    spoil(ready)
    (problem,) = tool("publish").obstacles(ready, "1.2.3", changed, tags)
    assert word in problem


def test_a_wheel_that_lacks_something_is_found(tmp_path):
    import zipfile

    check = tool("check_wheel")
    modules = [str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "dpunion").rglob("*.py")]
    whole = [*modules, *check.NEEDED, "dpunion-0.1.0.dist-info/METADATA"]
    for held, expected in ((whole, []), (whole[1:], [f"lacks {whole[0]}"]), ([*whole, "tests/x.py"], ["holds tests"])):
        with zipfile.ZipFile(tmp_path / "some.whl", "w") as archive:
            for name in held:
                archive.writestr(name, "")
        found = check.missing_parts(tmp_path / "some.whl")
        assert len(found) == len(expected)
        assert all(part in one for part, one in zip(expected, found, strict=True))


def test_what_the_package_needs_is_in_the_tree():
    check = tool("check_wheel")
    assert [name for name in check.NEEDED if not (ROOT / "src" / name).is_file()] == []
    others = {path.suffix for path in (ROOT / "src" / "dpunion").rglob("*") if path.is_file() and path.suffix}
    assert others - {".pyc"} == {".py", *(Path(name).suffix for name in check.NEEDED if Path(name).suffix)}


def test_the_image_is_made_of_what_is_there():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert {name for name, _ in steps} <= {"ARG", "FROM", "COPY", "RUN", "USER", "ENV", "WORKDIR", "ENTRYPOINT", "CMD"}
    copied = [word for name, rest in steps if name == "COPY" for word in rest.split()[:-1]]
    assert copied
    assert [word for word in copied if not (ROOT / word).exists()] == []
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == set(copied)
    extras = next(rest for name, rest in steps if name == "ARG" and rest.startswith("EXTRAS="))
    assert set(extras.removeprefix("EXTRAS=").split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_demo_of_the_makefile_leaves_no_file(tmp_path):
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert recipe.split() == ["@$(BIN)/dpunion", "demo"]
    command = [sys.executable, "-c", "from dpunion.cli import main; main()", "demo"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []
