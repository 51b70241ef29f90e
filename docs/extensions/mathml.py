"""Formulas as MathML, which browsers draw themselves: no script, nothing from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import latex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def show_inline(writer: Any, node: Any) -> None:
    """Write a formula of the running text."""
    writer.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def show_block(writer: Any, node: Any) -> None:
    """Write a formula on lines of its own; one that is too wide scrolls."""
    writer.body.append(f'<div class="formula">{latex2mathml.tex2mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_html_math_renderer("mathml", (show_inline, None), (show_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
