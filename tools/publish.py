"""Upload the wheel and the sdist of dist/ and tag the commit whose files they hold: the last step of `make publish`.

python tools/publish.py [--dry-run] [--repository NAME]    NAME: as in twine's configuration, which holds the token
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Check, upload, tag."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="check only")
    parser.add_argument("--repository", help="a name of twine's configuration; its default when left out")
    asked = parser.parse_args()
    version = version_in(ROOT)
    wrong = obstacles(ROOT, version, git("status", "--porcelain"), git("tag", "--list").split())
    for one in wrong:
        print(f"NOT YET: {one}")
    if wrong or asked.dry_run:
        print(f"dpunion {version} {'cannot be published.' if wrong else 'can be published.'}")
        return len(wrong)
    where = ["--repository", asked.repository] if asked.repository else []
    files = [str(path) for path in built(ROOT, version)]
    uploading = [sys.executable, "-m", "twine", "upload", "--non-interactive", *where, *files]
    subprocess.run(uploading, check=True)  # noqa: S603 - what an index took cannot be taken back: tagged only after it
    git("tag", "--annotate", f"v{version}", "--message", f"dpunion {version}")
    print(f"dpunion {version} is published and tagged v{version}. Push the tag: git push origin v{version}")
    return 0


def version_in(root: Path) -> str:
    """Return the version, whose one home is the package itself."""
    found = re.search(
        r'^__version__ = "([^"]+)"$', (root / "src" / "dpunion" / "__init__.py").read_text(), re.MULTILINE
    )
    if found is None:
        sys.exit("src/dpunion/__init__.py says no version.")
    return found[1]


def built(root: Path, version: str) -> list[Path]:
    """Return the wheel and the sdist of a version, as far as they are there."""
    names = (f"dpunion-{version}-py3-none-any.whl", f"dpunion-{version}.tar.gz")
    return [root / "dist" / name for name in names if (root / "dist" / name).is_file()]


def differing(root: Path, version: str) -> list[str]:
    """Name the files in which the wheel or the sdist of a version differs from the tree; both must be there."""
    wheel, sdist = built(root, version)
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {f"src/{name}": archive.read(name) for name in archive.namelist() if name.startswith("dpunion/")}
        described = archive.read(f"dpunion-{version}.dist-info/METADATA")
    with tarfile.open(sdist) as packed:
        members = {one.name.partition("/")[2]: packed.extractfile(one) for one in packed.getmembers() if one.isfile()}
        in_sdist = {name: file.read() for name, file in members.items() if file is not None}
    package = [path for path in (root / "src" / "dpunion").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    in_tree = {str(path.relative_to(root)): path.read_bytes() for path in package}
    # What describes the wheel is made of pyproject.toml and README.md, which the sdist holds.
    found = set() if in_sdist.pop("PKG-INFO", None) == described else {"PKG-INFO"}
    found |= {name for name, content in in_sdist.items() if not holds(root / name, content)}
    found |= {name for name in in_tree if name not in in_sdist}
    found |= {name for name in in_tree.keys() | in_wheel.keys() if in_tree.get(name) != in_wheel.get(name)}
    return sorted(found)


def holds(path: Path, content: bytes) -> bool:
    """Say whether a file is there and holds this."""
    return path.is_file() and path.read_bytes() == content


def obstacles(root: Path, version: str, changed: str, tags: Sequence[str]) -> list[str]:
    """Say what stands in the way of publishing a version; changed: what git says of the tree."""
    is_built = len(built(root, version)) == len(("wheel", "sdist"))
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    dated = re.compile(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", re.MULTILINE)
    found = {
        "There are changes that are not committed.": bool(changed.strip()),
        f"There is a tag v{version} already: raise __version__ in src/dpunion/__init__.py.": f"v{version}" in tags,
        f"CHANGELOG.md has no line '## {version} - YYYY-MM-DD'.": not dated.search((root / "CHANGELOG.md").read_text()),
        f"dist/ lacks the wheel or the sdist of {version}: make wheel.": not is_built,
        "dist/ was built from other files than these: make wheel.": is_built and bool(differing(root, version)),
        "pyproject.toml has no [project.urls]: write down where the project lives.": not project.get("urls"),
    }
    return [what for what, is_so in found.items() if is_so]


def git(*words: str) -> str:
    """Run git here and return what it prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603, S607


if __name__ == "__main__":
    sys.exit(main())
