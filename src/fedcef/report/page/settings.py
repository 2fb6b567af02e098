"""The settings of the methods: what differs between them, and what they share."""

import re
from collections.abc import Sequence

from markupsafe import Markup

from fedcef.report.data.groups import Method, settings_as_text
from fedcef.report.page.render import render

MOST_COLUMNS = 8  # of methods; more of them are rows
NOT_SHOWN = ("label", "name", "compare", "reference")  # how runs are called, and what others there are


def render_settings(items: Sequence[Method]) -> Markup:
    """What differs between the methods as a table, what they share below it."""
    flat = [settings_as_text(item.records[0].config) for item in items]
    seeds = [", ".join(str(record.seed) for record in item.records) for item in items]
    flat = [
        {**settings, **({"seed": s} if "seed" in settings else {})} for settings, s in zip(flat, seeds, strict=True)
    ]
    keys = [key for key in dict.fromkeys(key for settings in flat for key in settings) if key not in NOT_SHOWN]
    differ = [key for key in keys if len({settings.get(key) for settings in flat}) > 1]
    return render(
        "settings.html",
        labels=[item.label for item in items],
        differ=[(_words(key), [settings.get(key) for settings in flat]) for key in differ],
        by_method=len(items) > max(MOST_COLUMNS, len(differ)),
        same=[f"{key} = {flat[0][key]}" for key in keys if key not in differ],
        breakable=Markup("<wbr>"),
    )


def _words(key: str) -> list[str]:
    """A dotted name in the pieces between which it may be broken."""
    return re.split(r"(?<=[._])", key)
