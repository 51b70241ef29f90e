"""The documentation site builds without a warning, says everything, and its links lead somewhere."""

import html.parser
import importlib.util
import os
import re
import shutil
import sys
import urllib.parse
from pathlib import Path

import command_reference
import plain_docstrings
import pytest

import dpunion
from running import run_program

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

PAGES = sorted(path.stem for path in DOCS.glob("*.md"))


class Page(html.parser.HTMLParser):
    """What a built page links to, which anchors it has, and its text."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.words = [], set(), []
        self.feed(path.read_text("utf-8"))
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values["id"]} if values.get("id") else set()
        self.links += [values[name] for name in ("href", "src") if values.get(name)]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; building runs the notebook."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    words = ("-m", "sphinx", "-W", "--keep-going", "-q", "-d", folder / "trees", DOCS, folder / "html")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = run_program(sys.executable, *words, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    """All built pages, by their path in the site."""
    return {str(path.relative_to(site)): Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_there(pages):
    assert {f"{name}.html" for name in PAGES} | {"notebooks/walkthrough.html"} <= set(pages)
    listed = set(pages["index.html"].links)
    assert {f"{name}.html" for name in PAGES if name != "index"} <= listed


def broken(name, page, pages, site):
    """Yield the links of a page that lead nowhere in the site."""
    for link in page.links:
        place = urllib.parse.urlsplit(link)
        if place.scheme or place.netloc:
            continue
        target = (
            os.path.normpath(os.path.join(os.path.dirname(name), urllib.parse.unquote(place.path)))
            if place.path
            else name
        )
        if target not in pages:
            if not (site / target).exists():
                yield link
        elif place.fragment and urllib.parse.unquote(place.fragment) not in pages[target].anchors:
            yield link


def test_every_link_and_anchor_leads_somewhere(pages, site):
    wrong = {name: sorted(set(broken(name, page, pages, site))) for name, page in pages.items()}
    assert {name: links for name, links in wrong.items() if links} == {}


def test_a_broken_link_is_found(pages, site):
    page = pages["ledger.html"]
    page.links += ["nowhere.html", "guarantees.html#nothing-there", "#nor-here"]
    assert len(set(broken("ledger.html", page, pages, site))) == 3
    del page.links[-3:]


def test_nothing_is_loaded_from_elsewhere(site):
    """A page of the site works without a network."""
    for path in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img)\b[^>]*>", path.read_text("utf-8")):
            assert not re.search(r"(?:src|href)=\"https?:", tag) or "canonical" in tag, (path.name, tag)


def test_the_reference_names_every_command_and_option(pages):
    text = pages["cli.html"].text
    found = list(command_reference.commands(command_reference.command_line))
    assert len(found) >= 10
    for name, command in found:
        assert f"{name} [OPTIONS]" in text or f"{name} " in text
        assert command_reference.anchor(name) in pages["cli.html"].anchors
        for option in command_reference.options(command):
            for spelled in (*option.opts, *option.secondary_opts):
                assert re.search(rf"(?<![\w-]){re.escape(spelled)}(?![\w-])", text), (name, spelled)


def test_the_reference_says_what_the_help_says(pages):
    text = pages["cli.html"].text
    for expected in (
        "How much one person may change the odds; smaller is more private (required).",
        "may be repeated",
        "default words",
    ):
        assert expected in text
    assert "[cyan]" not in text
    assert "[bold]" not in text


def public_names():
    import dpunion_lab as lab
    from dpunion import ledger, report
    from dpunion_lab import audit

    yield from (f"dpunion.{name}" for name in dpunion.__all__ if name != "__version__")
    for module in (audit, lab, ledger, report):
        yield from (f"{module.__name__}.{name}" for name in module.__all__)


@pytest.mark.parametrize("name", sorted(public_names()))
def test_every_public_name_is_documented(name, pages):
    assert name in pages["api.html"].anchors


def test_formulas_are_drawn_by_the_browser_itself(site, pages):
    html = (site / "guarantees.html").read_text("utf-8")
    assert html.count("<math") > 10
    assert "merror" not in "".join(path.read_text("utf-8") for path in site.glob("*.html"))
    for name, page in pages.items():
        assert "\\varepsilon" not in page.text, name
        assert not name.startswith("guarantees") or not re.search(r"\$|\\[a-z]{2,}", page.text), name


def test_the_guarantees_open_with_the_promise(pages):
    text = pages["guarantees.html"].text
    assert text.index("The promise, in plain words.") < text.index("Let someone think") < text.index("Papers.")


def test_commands_can_be_copied_without_their_prompts(site):
    assert "copybutton.js" in (site / "tutorial.html").read_text("utf-8")
    prompt = re.search(r"formatCopyText\(text, '(.*?)', true", (site / "_static" / "copybutton.js").read_text("utf-8"))
    shown = [">>> plan", "... more", "$ dpunion demo", "Released 848 items"]
    found = [re.match(prompt[1].replace("\\\\", "\\"), line) for line in shown]
    assert [bool(one) for one in found] == [True, True, True, False]


def test_the_changelog_is_shown(pages):
    assert "Keep a Changelog" in pages["changelog.html"].text


def load_configuration():
    """Return docs/conf.py as a module."""
    found = importlib.util.spec_from_file_location("site_configuration", DOCS / "conf.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_front_page_begins_with_the_first_screen_of_the_readme(pages):
    screen = load_configuration().read_first_screen((ROOT / "README.md").read_text("utf-8"))
    text = "".join(pages["index.html"].words).replace("¶", "")
    text = "".join(text.split())
    blocks = re.findall(r"^```\w+\n(.*?)^```", screen, re.DOTALL | re.MULTILINE)
    shown = ["".join(line.split()) for block in blocks for line in block.splitlines() if line]
    assert shown
    assert [line for line in shown if line not in text] == []
    assert text.index(shown[0]) < text.index("withpip,asawheel")


README = """# dpunion

<!-- first-screen -->
See [the tutorial](docs/tutorial.md#start), [others](CONTRIBUTING.md) and [the web](https://example.org).

![A picture](docs/_static/comparison.svg)
<!-- /first-screen -->

More.

## Later
"""


def test_links_of_the_first_screen_hold_on_the_site():
    read = load_configuration().read_first_screen
    screen = read(README)
    assert "[the tutorial](tutorial.md#start), others and [the web](https://example.org)" in screen
    assert "![A picture](_static/comparison.svg)" in screen
    assert "More." not in screen
    unmarked = read(README.replace("<!-- first-screen -->", "").replace("<!-- /first-screen -->", ""))
    assert "More." in unmarked
    assert "Later" not in unmarked


FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--virtual-time-budget=20000", "--dump-dom",
)  # fmt: skip


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("what epsilon", "choosing-epsilon"), ("epsilon", "choosing-epsilon"), ("delta", "choosing-epsilon"),
        ("stop words", "texts"), ("budget used up", "faq"), ("install", "platforms"), ("ledger", "ledger"),
    ],
)  # fmt: skip
def test_a_search_finds_the_right_page_first(query, page, site, tmp_path):
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    address = f"{(site / 'search.html').as_uri()}?q={urllib.parse.quote_plus(query)}"
    done = run_program(browser, *FLAGS, f"--user-data-dir={tmp_path}", address, check=True)
    found = re.findall(r'<li class="kind[^>]*>\s*<a href="([\w/-]+)\.html', done.stdout)
    assert found[0] == page
    assert "changelog" not in found
    assert not {"reproduction", "proofs"} & set(found[:8])


def test_docstrings_become_paragraphs_and_lists():
    lines = [
        "Do it.",
        "",
        "how: quickly. where, when: `here`, not *there*; always.",
        "",
        "Guarantees:",
        "- one;",
        "- two.",
    ]
    markup = "\n".join(plain_docstrings.as_markup(lines, {"how", "where", "when"}))
    first = "Do it.\n\n- **how**: quickly.\n- **where, when**: ``here``, not \\*there\\*; always.\n\n"
    assert markup == f"{first}**Guarantees**\n\n- one;\n- two.\n"


def test_tables_in_docstrings_become_lists():
    table = ["how    quickly, or", "       slowly", "where  `here`"]
    assert plain_docstrings.as_markup(table, {"how", "where"}) == [
        "- **how**: quickly, or slowly",
        "- **where**: ``here``",
        "",
    ]
    assert plain_docstrings.as_markup(table, {"how"})[0].startswith("how quickly")


def test_examples_in_docstrings_stay_examples(pages, site):
    example = [">>> 1 + 1", "2", ">>> 2", "2"]
    assert plain_docstrings.as_markup(["Add.", "", *example], set()) == ["Add.", "", *example, ""]
    text = (site / "api.html").read_text("utf-8")
    assert text.count("highlight-pycon") + text.count("doctest") >= 3


def test_the_parameters_of_a_release_are_listed(pages):
    text = pages["api.html"].text
    for name in ("source", "known", "charge", "run"):
        assert f"{name} :" in text, name


def test_the_notebook_is_shown_with_what_it_printed(pages):
    text = pages["notebooks/walkthrough.html"].text
    assert "-differentially private for adding or removing one user" in text
    assert "Traceback" not in text


def test_pages_read_well_without_the_site():
    """What only Sphinx understands stays out of the way: the hidden contents, and the entries of the API."""
    for path in DOCS.glob("*.md"):
        directives = re.findall(r"^`{3,}\{([\w-]+)\}", path.read_text("utf-8"), re.MULTILINE)
        allowed = {"index": {"toctree"}, "api": {"eval-rst"}}.get(path.stem, set())
        assert set(directives) <= allowed, path.name
        roles = re.findall(r"\{[a-z]+(?::[a-z]+)*\}`", path.read_text("utf-8"))
        assert roles == [], path.name
