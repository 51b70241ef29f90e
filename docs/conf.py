"""The documentation site: `make docs` builds it into docs/_build/html, with warnings as errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

from sphinx.errors import ConfigError  # noqa: E402

import dpunion  # noqa: E402

project = "dpunion"
author = "The dpunion authors"
project_copyright = "The dpunion authors, Apache-2.0"
release = version = dpunion.__version__

extensions = [
    "myst_nb",  # Markdown, and the notebook, which is run while the site is built
    "sphinx.ext.autodoc",
    "plain_docstrings",  # docstrings are plain sentences here; this turns them into lists and paragraphs
    "mathml",  # formulas, drawn by the browser itself
    "sphinx_copybutton",  # commands and code with one click, without prompts and output
    "command_reference",  # the page cli is made from the command line itself
]
source_suffix = {".nb.md": "myst-nb", ".md": "myst-nb"}
root_doc = "index"
exclude_patterns = ["_build", "extensions"]
highlight_language = "text"
smartquotes = False  # two dashes are an option, not a dash
nitpicky = True
# Types of other libraries, and of our own inside, are named in signatures but have no page here.
nitpick_ignore_regex = [("py:.*", r".*")]
suppress_warnings = ["config.cache"]  # custom formats of myst_nb hold a dictionary, which is compared anew each time

# --- Markdown -----------------------------------------------------------------------------------------------
myst_enable_extensions = ["deflist", "dollarmath"]
myst_dmath_allow_space = False
myst_dmath_double_inline = False
html_math_renderer = "mathml"
myst_heading_anchors = 4

# --- the notebook -------------------------------------------------------------------------------------------
nb_custom_formats = {".nb.md": ["jupytext.reads", {"fmt": "md"}]}
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_merge_streams = True

# --- the API ------------------------------------------------------------------------------------------------
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False

# --- copy buttons: a console's commands, or the whole of a block without prompts ----------------------------
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

# --- the look -----------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = f"dpunion {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "extensions" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


FIRST_SCREEN = re.compile(r"<!-- first-screen -->\n(.*?)<!-- /first-screen -->", re.DOTALL)
OPENING = re.compile(r"^# [^\n]*\n(.*?)(?=^## )", re.DOTALL | re.MULTILINE)
PLACE = re.compile(r"^<!-- first-screen: .* -->$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:|#)([^)]+)\)")


def read_first_screen(readme: str) -> str:
    """Return what README has between its marks, or else up to its second heading, with links that hold on the site.

    What README links outside of docs/ has no page here: its text stays, without the link.
    """
    found = FIRST_SCREEN.search(readme) or OPENING.search(readme)
    if found is None:
        raise ConfigError(
            "README.md has no first screen. Put <!-- first-screen --> and <!-- /first-screen --> around it."
        )
    return LINK.sub(lambda link: f"[{link[1]}]({link[2][5:]})" if link[2].startswith("docs/") else link[1], found[1])


def fill_page(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put the project's changelog, and README's first screen, in place of what points to them."""
    if page == "changelog":
        # subtle: it names every option, so it would be the first that a search finds.
        source[0] = "---\nnosearch: true\n---\n\n" + (HERE.parent / "CHANGELOG.md").read_text("utf-8")
    elif page == "index":
        screen = read_first_screen((HERE.parent / "README.md").read_text("utf-8"))
        source[0] = PLACE.sub(lambda _: screen, source[0])


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("source-read", fill_page)
