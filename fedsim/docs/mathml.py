"""Formulas as MathML, which browsers draw without a script or a font of another site."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer "mathml", as an extension of Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: HTML5Translator, node: Node) -> None:
    writer.body.append(_markup(node.astext(), block=False))
    _skip()


def _block(writer: HTML5Translator, node: Node) -> None:
    writer.body.append(f'<div class="math">{_markup(node.astext(), block=True)}</div>')
    _skip()


def _markup(tex: str, *, block: bool) -> str:
    from docutils.utils.math.latex2mathml import tex2mathml

    return str(tex2mathml(tex, as_block=block))


def _skip() -> None:
    from docutils.nodes import SkipNode

    raise SkipNode
