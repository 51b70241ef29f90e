"""What is published: one version, metadata that is true, an image that can be built, nothing in the way."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import dpunion
from running import PATIENCE

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
    build(tmp_path)
    return tmp_path


def build(root, told="Name: dpunion\n"):
    """Put what is in the tree into a wheel and an sdist."""
    package = root / "src" / "dpunion"
    with zipfile.ZipFile(root / "dist" / "dpunion-1.2.3-py3-none-any.whl", "w") as wheel:
        for path in package.rglob("*.py"):
            wheel.write(path, path.relative_to(root / "src"))
        wheel.writestr("dpunion-1.2.3.dist-info/METADATA", "Name: dpunion\n")
    (root / "PKG-INFO").write_text(told)
    with tarfile.open(root / "dist" / "dpunion-1.2.3.tar.gz", "w:gz") as sdist:
        for name in ("src", "pyproject.toml", "CHANGELOG.md", "PKG-INFO"):
            sdist.add(root / name, f"dpunion-1.2.3/{name}")
    (root / "PKG-INFO").unlink()


def rewrite(root, name, text):
    """Change a file and build anew."""
    (root / name).write_text(text)
    build(root)


def test_the_version_has_one_home():
    assert PROJECT["dynamic"] == ["version"]
    assert tool("publish").version_in(ROOT) == dpunion.__version__
    assert re.search(rf"^## {re.escape(dpunion.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_page_on_installing_names_the_wheel_that_is_built():
    named = set(re.findall(r"dpunion-[\d.]+-py3-none-any\.whl", (ROOT / "docs/platforms.md").read_text()))
    assert named == {f"dpunion-{dpunion.__version__}-py3-none-any.whl"}
    assert "`pip install .`" in (ROOT / "README.md").read_text()


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
        (lambda root: rewrite(root, "CHANGELOG.md", "## 1.2.3\n"), "", [], "CHANGELOG"),
        (lambda root: rewrite(root, "CHANGELOG.md", "## 1x2.3 - 2026-12-01\n"), "", [], "CHANGELOG"),
        (lambda root: (root / "dist" / "dpunion-1.2.3.tar.gz").unlink(), "", [], "dist"),
        (lambda root: rewrite(root, "pyproject.toml", "[project]\n"), "", [], "urls"),
        (lambda root: (root / "CHANGELOG.md").write_text("## 1.2.3 - 2026-12-02\n"), "", [], "other files"),
        (lambda root: (root / "src" / "dpunion" / "new.py").write_text(""), "", [], "other files"),
        (lambda root: (root / "src" / "dpunion" / "__init__.py").write_text("'later'"), "", [], "other files"),
        (lambda root: (root / "src" / "dpunion" / "__init__.py").unlink(), "", [], "other files"),
        (lambda root: build(root, "Name: other\n"), "", [], "other files"),
    ],
)
def test_what_is_not_ready_is_not_published(ready, spoil, changed, tags, word):
    spoil(ready)
    (problem,) = tool("publish").obstacles(ready, "1.2.3", changed, tags)
    assert word in problem


def test_a_wheel_that_lacks_something_is_found(tmp_path):
    check = tool("check_wheel")
    modules = [str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "dpunion").rglob("*.py")]
    needed = [name for name in check.NEEDED if name.startswith("dpunion/")]
    whole = [*modules, *needed, "dpunion-0.1.0.dist-info/METADATA"]
    for held, expected in ((whole, []), (whole[1:], [f"lacks {whole[0]}"]), ([*whole, "tests/x.py"], ["holds tests"])):
        with zipfile.ZipFile(tmp_path / "dpunion-0.1.0.whl", "w") as archive:
            for name in held:
                archive.writestr(name, "")
        found = check.missing_parts(tmp_path / "dpunion-0.1.0.whl")
        assert len(found) == len(expected)
        assert all(part in one for part, one in zip(expected, found, strict=True))


def test_what_the_package_needs_is_in_the_tree():
    check = tool("check_wheel")
    homes = list(check.HOMES.values())
    assert [name for name in check.NEEDED if not any((home / name).is_file() for home in homes)] == []
    others = {path.suffix for home in homes for path in home.rglob("*") if path.is_file() and path.suffix}
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


def test_both_packages_have_one_version():
    import tomllib

    import dpunion
    import dpunion_lab

    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text("utf-8"))
    assert dpunion_lab.__version__ == dpunion.__version__
    assert lab["project"]["dependencies"] == [f"dpunion[report]=={dpunion.__version__}", "scipy>=1.14"]


@pytest.mark.parametrize("command", ["audit", "lab"])
def test_without_the_lab_its_commands_say_how_to_install_it(command):
    """In a process whose packages add no commands."""
    import subprocess
    import sys

    alone = (
        "import importlib.metadata as m, sys; m.entry_points = lambda **_: (); "
        f"sys.argv = ['dpunion', '{command}', 'compare', '--generate', '20', '-e', '1']; "
        "from dpunion.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert f"'dpunion {command}' is in the package dpunion-lab" in " ".join(done.stderr.split())
    assert "pip install dpunion-lab" in done.stderr
    assert "Traceback" not in done.stderr
