"""Write docs/settings.md: every setting, from the classes that declare and check them."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

sys.path.insert(0, str(Path(__file__).parent))  # the neighbours, wherever this is started
from field_notes import all_notes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fedcef.algorithms import ALGORITHMS
from fedcef.algorithms.algorithm import Algorithm
from fedcef.compressors import COMPRESSORS
from fedcef.core.aggregation import AGGREGATIONS
from fedcef.core.attack import Attack
from fedcef.core.network import Network
from fedcef.core.parts import options_of
from fedcef.core.schedules import SCHEDULES
from fedcef.core.training import Evaluation, Stopping, StoreOptions, Training
from fedcef.optimizers import LOCAL_UPDATES, SERVER_UPDATES
from fedcef.privacy import Privacy
from fedcef.problems.catalog import DATA, DRAWN
from fedcef.problems.data.partitions import PARTITIONS
from fedcef.problems.models import MODELS
from fedcef.regularizers import REGULARIZERS
from fedcef.runs.deployment_settings import DeploymentSettings
from fedcef.runs.own_compressors import own_compressor
from fedcef.runs.settings import Reference, Settings, Variant
from fedcef.secure.section import Secure

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
AMOUNTS = ("budget", "limit", "bytes")
"""Options that are given in bytes, as a number or like "300MB"."""

BEGINNING = """\
# Settings

Every setting of a run, with what it allows and its default. A test keeps this page up to date; it is written by
`python tools/docs/settings_page.py` from the classes that check the settings.

* **In a file**, `my.toml`: top-level settings first, then sections such as `[compressor]`. `fedcef run my.toml`.
* **On the command line**, by the dotted name: `--set rounds=200 --set compressor.ratio=0.02`. In `fedcef sweep` a
  value may be a list.
* **From Python**: options of a run are keyword arguments of [`fedcef.run`](python.md); the others are the problem and
  the method that you pass to it.

A section that stands for a part (`[algorithm]`, `[compressor]`, `[data]`, …) has a `name` and that part's own options.
The name may be the import path of a class of your own, `package.module:Class` ([how](extend.md)). What is left out has
its default, and `config.toml` in the run folder records the complete settings.
"""


def page() -> str:
    """The whole page."""
    parts = [
        BEGINNING,
        "## Problem and method",
        "Top-level settings that the method and the problem are built from.",
        table(
            "",
            Settings,
            [name for name in plain(Settings) if name not in {*Training.model_fields, "compare", "reference"}],
        ),
        "## The run",
        "Top-level settings, and in Python the fields of `fedcef.Training`.",
        table("", Training, plain(Training)),
        *model("eval", Evaluation, "When and on what the model is evaluated; [measures](data.md#measures)."),
        *model("stop", Stopping, "When a run ends before its last round; [measures](data.md#measures)."),
        *model("store", StoreOptions, "Where clients' states are kept; [scaling](scaling.md#where-states-are-kept)."),
        *model("network", Network, "A simulated network, for a clock in the records; [network](network.md)."),
        *model("attack", Attack, "Clients that lie, in a simulation; [robustness](robustness.md#attacks)."),
        *model("privacy", Privacy, "Clipping and noise in what clients send; [privacy](privacy.md)."),
        *model(
            "secure",
            Secure,
            "The server learns the sum of what clients send, and nothing else of it; "
            "[secure aggregation](guides/secure_aggregation.md).",
        ),
        *model("deployment", DeploymentSettings, "What a server demands; [deployment](deployment.md)."),
        "## `[algorithm]`",
        "Default: `fedcef`. What each method computes is in [algorithms](algorithms.md) and [methods](methods.md).",
        registry(ALGORITHMS, without=[*(field.name for field in fields(Algorithm)), "down_compressor"]),
        "## `[compressor]`, `[down_compressor]`",
        own_compressors() + " For the lossy downlink: `topk`, with ratio 0.05 if the section is left out; "
        "[measured](compressors.md).",
        registry(COMPRESSORS),
        "## `[regularizer]`",
        "Default: `l1`; [definitions](regularizers.md). `on`, a pattern or a list of patterns, restricts each to "
        'the parameters whose names match; it is `"*"` unless set.',
        registry(REGULARIZERS),
        "## `[local_schedule]`, `[server_schedule]`",
        "Default: `constant`. A factor on `local_lr` or `server_lr`.",
        registry(SCHEDULES),
        "## `[aggregation]`",
        "Default: `mean`. What the server makes of the clients' vectors; [robustness](robustness.md).",
        registry(AGGREGATIONS),
        "## `[local_update]`",
        "Default: the method's own, for most of them `sgd`; [a local optimiser](extend.md#a-local-optimiser).",
        registry(LOCAL_UPDATES),
        "## `[server_update]`",
        "Default: `plain`; [a server optimiser](extend.md#a-server-optimiser).",
        registry(SERVER_UPDATES),
        "## `[data]`",
        "Default: `digits`; [sources](data.md), [partitions](partitions.md). A problem of your own gets all but "
        f"`name` ([how](bring_your_own.md)). Partitions: {', '.join(f'`{name}`' for name in [*PARTITIONS, DRAWN])}.",
        registry(DATA, without=["name"]),
        "## `[model]`",
        "Default: `softmax`, where the data leave a choice. `buffers` says what becomes of the running statistics of "
        "normalisation layers ([how](guides/batchnorm.md)); a model of your own gets all other options.",
        models(),
        *model("[compare]", Variant, "The runs of `fedcef compare`: one `[[compare]]` entry for each."),
        *model(
            "[reference]", Reference, "Points from elsewhere for `fedcef frontier`: one `[[reference]]` entry for each."
        ),
    ]
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def own_compressors() -> str:
    """Which compressor is whose default."""
    own = {name: own_compressor({"name": name}) for name in ALGORITHMS}
    others = [
        f"`{name}`: `{section['name']}` ({', '.join(f'{k} {v}' for k, v in section.items() if k != 'name')})"
        for name, section in own.items()
        if section["name"] != "identity"
    ]
    return (
        f"Default: the method's own, which is that of its class: {'; '.join(others)}; all others: `identity`. Options "
        "without a `name` change the method's own."
    )


def plain(kind: type[BaseModel]) -> list[str]:
    """The settings of a model that are values, not sections."""
    hints = get_type_hints(kind, include_extras=True)
    return [name for name in kind.model_fields if values_of(hints[name]) != "section"]


def model(section: str, kind: type[BaseModel], note: str) -> list[str]:
    """A section whose options are always the same."""
    name = section.strip("[]")
    return [
        f"## `[{section}]`",
        note,
        table("" if section.startswith("[") else f"{name}.", kind, list(kind.model_fields)),
    ]


def table(prefix: str, kind: type, names: Iterable[str]) -> str:
    """One row for each option of a class."""
    rows = [f"| `{prefix}{alias(kind, name)}` | {cells} |" for name, cells in options(kind, names)]
    return "\n".join(["| setting | values | default | meaning |", "|---|---|---|---|", *rows])


def registry(kinds: Mapping[str, type], without: Iterable[str] = ()) -> str:
    """One row for each part, followed by rows for its own options; parts of one class share their rows."""
    names = {kind: [name for name, other in kinds.items() if other is kind] for kind in kinds.values()}
    rows = ["| `name` | values | default | meaning |", "|---|---|---|---|"]
    for kind, called in names.items():
        rows.append(f"| **{', '.join(f'`{name}`' for name in called)}** | | | {line(kind)} |")
        own = [name for name in options_of(kind) if name not in set(without)]
        rows += [f"| `.{name}` | {cells} |" for name, cells in options(kind, own)]
    return "\n".join(rows)


def models() -> str:
    rows = ["| `name` | options and defaults | meaning |", "|---|---|---|"]
    for name, build in MODELS.items():
        given = list(inspect.signature(build).parameters.values())[2:]
        own = ", ".join(f"`{option.name} = {toml(option.default)}`" for option in given)
        rows.append(f"| `{name}` | {own} | {line(build)} |")
    return "\n".join(rows)


def options(kind: type, names: Iterable[str]) -> list[tuple[str, str]]:
    """Each option with its further cells: values, default, meaning."""
    hints, notes = get_type_hints(kind, include_extras=True), all_notes(kind)
    found = []
    for name in names:
        words = "bytes" if name in AMOUNTS else values_of(hints[name]).replace("section", "table")
        meaning = escaped(notes.get(name, ""))
        found.append((name, f"{words} | {default(kind, name)} | {meaning}"))
    return found


def default(kind: type, name: str) -> str:
    """The default as it would be written in a file; nothing where the setting is required or a table."""
    if is_dataclass(kind):
        value = next(field.default for field in fields(kind) if field.name == name)
    else:
        value = kind.model_fields[name].default  # type: ignore[attr-defined]
    if value is MISSING or value is PydanticUndefined:
        return "" if has_factory(kind, name) else "required"
    return "none" if value is None else f"`{toml(value)}`"


def has_factory(kind: type, name: str) -> bool:
    """Whether a default is made anew each time: an empty list or table."""
    if is_dataclass(kind):
        return any(field.default_factory is not MISSING for field in fields(kind) if field.name == name)
    return kind.model_fields[name].default_factory is not None  # type: ignore[attr-defined]


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, tuple) else f"{value}"


def values_of(hint: Any) -> str:
    """What an option allows, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return ranged(values_of(arguments[0]), arguments[1:])
    if origin is Literal:
        return ", ".join(f"`{toml(value)}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(values_of(kind) for kind in arguments if kind is not NoneType))
    if origin in (tuple, list):
        return "list"
    if origin is dict or is_section(hint):
        return "section"
    return {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}.get(hint, "import path")


def is_section(hint: Any) -> bool:
    """Whether an annotation stands for a section of its own."""
    return isinstance(hint, type) and (issubclass(hint, BaseModel) or hint.__name__ in ("Schedule", "Aggregation"))


def ranged(words: str, metadata: Iterable[Any]) -> str:
    """A kind of number with its bounds."""
    bounds = {}
    for item in metadata:
        for bound in item.metadata if isinstance(item, FieldInfo) else [item]:
            bounds |= {
                sign: value for sign in ("gt", "ge", "lt", "le") if (value := getattr(bound, sign, None)) is not None
            }
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    shown = [f"{signs[sign]} {value:g}" for sign, value in bounds.items() if value != 2**62]
    return f"{words} {', '.join(shown)}" if shown else words


def alias(kind: type, name: str) -> str:
    """The name in a file, where it differs from the one in the code."""
    return getattr(getattr(kind, "model_fields", {}).get(name), "alias", None) or name


def line(kind: Callable[..., object]) -> str:
    """The first paragraph of a docstring, in one line."""
    return escaped((inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "))


def escaped(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
