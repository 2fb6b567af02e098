"""The page's templates.

Everything that comes from run folders is untrusted text.  Templates escape whatever they are given, except what another
template made; data for scripts goes through `tojson`, which leaves no `<` in it.
"""

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedcef.core.amounts import format_bytes
from fedcef.report.data.units import format_number
from fedcef.report.page.swatch import dashes_of, outline_of


def make_environment(package: str) -> Environment:
    """The templates in the folder `templates` of a package."""
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def count(number_of: int, what: str) -> str:
    """`1 client`, `2 clients`."""
    return f"{number_of:,} {what}" if number_of == 1 else f"{number_of:,} {what}s"


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    count, dashes_of, format_bytes, format_number, outline_of, zip,
)  # fmt: skip
_ENVIRONMENT = make_environment("fedcef.report.page")
_ENVIRONMENT.globals |= {function.__name__: function for function in _FUNCTIONS}


def render(template: str, **values: Any) -> Markup:
    """A template of the page, filled."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))
