"""The settings of the methods: what differs between them, and what they share."""

import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fedcef.report.data.groups import Method, settings_as_text
from fedcef.report.page.render import render

MOST_COLUMNS = 8  # of methods; more of them are rows
NOT_SHOWN = ("label", "name", "compare", "reference")  # how runs are called, and what others there are


def render_settings(items: Sequence[Method]) -> Markup:
    """What differs between the methods as a table; what they share, and what only some of them have, below it."""
    flat = [settings_as_text(item.records[0].config) for item in items]
    seeds = [", ".join(str(record.seed) for record in item.records) for item in items]
    flat = [
        {**settings, **({"seed": s} if "seed" in settings else {})} for settings, s in zip(flat, seeds, strict=True)
    ]
    keys = [key for key in dict.fromkeys(key for settings in flat for key in settings) if key not in NOT_SHOWN]
    options = [key for key in keys if _is_option(key, flat)]
    differ = [key for key in keys if key not in options and len({settings.get(key) for settings in flat}) > 1]
    return render(
        "settings.html",
        labels=[item.label for item in items],
        differ=[(_words(key), [settings.get(key) for settings in flat]) for key in differ],
        by_method=len(items) > max(MOST_COLUMNS, len(differ)),
        options=[f"{key} = {_held(key, flat).pop()}" for key in options],
        same=[f"{key} = {flat[0][key]}" for key in keys if key not in differ and key not in options],
        breakable=Markup("<wbr>"),
    )


def _is_option(key: str, flat: Sequence[Mapping[str, str]]) -> bool:
    """Whether some methods lack a setting because their part has another name, and all others agree on it."""
    name = f"{key.rpartition('.')[0]}.name"
    with_it, without = ({settings.get(name) for settings in flat if (key in settings) == has} for has in (True, False))
    return bool(without) and len(_held(key, flat)) == 1 and None not in with_it | without and not with_it & without


def _held(key: str, flat: Sequence[Mapping[str, str]]) -> set[str]:
    return {settings[key] for settings in flat if key in settings}


def _words(key: str) -> list[str]:
    """A dotted name in the pieces between which it may be broken."""
    return re.split(r"(?<=[._])", key)
