"""Pieces of HTML that several sections of the page share.  Text from run folders goes through `escape`."""

from collections.abc import Mapping
from html import escape

from fedcef.report.figures.style import look
from fedcef.report.figures.swatch import swatch


def count(number_of: int, what: str) -> str:
    return f"{number_of:,} {what}" if number_of == 1 else f"{number_of:,} {what}s"


def scrolling(table: str, label: str) -> str:
    """A table in a box of its own that scrolls sideways where the window is too narrow; reachable by keyboard."""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(label)}, may scroll sideways">{table}</div>'
    )


def curve_name(place: int, label: str, remark: str = "") -> str:
    """A method's name with the look of its curve."""
    below = f"<span class=seeds>{escape(remark)}</span>" if remark else ""
    return f"<div class=method>{swatch(look(place))}<div>{escape(label)}{below}</div></div>"


def stacked(parts: Mapping[str, float], whole: float) -> str:
    """A bar of parts one after the other; their names are classes of page.css."""
    pieces = "".join(
        f'<i class=fill-{name} style="width:{max(100 * part / whole, 0.3):.3g}%"></i>'
        for name, part in parts.items()
        if part > 0
    )
    return f"<span class=stack aria-hidden=true>{pieces}</span>"


def key(parts: Mapping[str, str]) -> str:
    """What the colours of a stacked bar mean."""
    return (
        f"<p class=key>{''.join(f'<span><i class=fill-{name}></i>{text}</span>' for name, text in parts.items())}</p>"
    )
