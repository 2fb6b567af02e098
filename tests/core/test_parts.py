"""From names and options to objects, and the sentences for what is wrong."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
import torch
from pydantic import BaseModel, Field, ValidationError

from fedcef.algorithms import ALGORITHMS
from fedcef.compressors import COMPRESSORS
from fedcef.core.errors import ConfigError
from fedcef.core.parts import check, choose, explain, make, unknown_key, validate
from fedcef.regularizers import L1, REGULARIZERS
from fedcef.regularizers.regularizer import Regularizer


@dataclass(frozen=True)
class Kettle:
    litres: Annotated[float, Field(gt=0)] = 1.5
    cups: Annotated[int, Field(ge=1, le=12)] = 4
    colour: Literal["red", "blue"] = "red"
    whistles: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toaster:
    name: str
    slots: int = 2


KITCHEN = {"kettle": Kettle, "toaster": Toaster}


def problem_of(call, *args, **options):
    with pytest.raises(ConfigError) as info:
        call(*args, **options)
    return str(info.value)


def test_options_become_the_object():
    options = {"name": "kettle", "litres": 2, "cups": 3, "colour": "blue", "whistles": True, "labels": ["a", "b"]}
    made = make("kitchen", KITCHEN, options)
    assert made == Kettle(2.0, 3, "blue", True, ("a", "b"))
    assert type(made.litres) is float
    assert make("kitchen", KITCHEN, {"name": "kettle"}) == Kettle()


def test_a_class_may_have_a_name_of_its_own():
    assert make("kitchen", KITCHEN, {"name": "toaster"}) == Toaster("toaster", 2)


def test_given_fields_are_no_options():
    assert make("kitchen", KITCHEN, {"name": "kettle"}, cups=7) == Kettle(cups=7)
    sentence = problem_of(make, "kitchen", KITCHEN, {"name": "kettle", "cups": 3}, cups=7)
    assert sentence.startswith("There is no setting kitchen.cups; there are kitchen.name, kitchen.litres, ")
    assert "kitchen.cups," not in sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "kettel"}, "kitchen.name is 'kettel'; it must be one of kettle, toaster.  Did you mean kettle?"),
        ({"name": "fridge"}, "kitchen.name is 'fridge'; it must be one of kettle, toaster."),
        ({"name": 3}, "kitchen.name is 3; it must be one of kettle, toaster."),
        ({}, "kitchen.name is None; it must be one of kettle, toaster."),
        (
            {"name": "toaster", "slot": 3},
            "There is no setting kitchen.slot; there are kitchen.name, kitchen.slots.  Did you mean kitchen.slots?",
        ),
        ({"name": "kettle", "litres": 0}, "kitchen.litres is 0; it must be greater than 0."),
        ({"name": "kettle", "litres": float("nan")}, "kitchen.litres is nan; it must be greater than 0."),
        ({"name": "kettle", "cups": 13}, "kitchen.cups is 13; it must be less than or equal to 12."),
        ({"name": "kettle", "colour": "green"}, "kitchen.colour is 'green'; it must be 'red' or 'blue'."),
        ({"name": "kettle", "whistles": "sometimes"}, "kitchen.whistles is 'sometimes'; it must be a valid boolean"),
        ({"name": "kettle", "cups": 2.5}, "kitchen.cups is 2.5; it must be a valid integer"),
        ({"name": "kettle", "litres": "lots"}, "kitchen.litres is 'lots'; it must be a valid number"),
        ({"name": "kettle", "labels": ["a", 3]}, "kitchen.labels.1 is 3; it must be a valid string."),
    ],
)
def test_sentences(options, sentence):
    found = problem_of(make, "kitchen", KITCHEN, options)
    assert found.startswith(sentence)
    assert "\n" not in found
    if sentence.endswith((".", "?")):
        assert found == sentence


def test_a_setting_with_no_near_miss_has_no_suggestion():
    assert unknown_key("zzz", ["litres", "cups"]) == "There is no setting zzz; there are litres, cups."
    assert unknown_key("cup", ["litres", "cups"]).endswith("  Did you mean cups?")


def test_choose():
    assert choose("colour", "red", {"red": 1, "blue": 2}) == "red"
    assert problem_of(choose, "colour", "rod", iter(["red", "blue"])) == (
        "colour is 'rod'; it must be one of red, blue.  Did you mean red?"
    )


def test_check():
    assert check("n", int, "3") == 3
    assert check("on", list[str], ["a"]) == ["a"]
    assert problem_of(check, "n", int, None).startswith("n is None; it must be a valid integer")


@dataclass(frozen=True, eq=False)
class Cupboard:
    tables: dict[str, torch.Tensor] = field(default_factory=dict)
    parts: tuple[Regularizer, ...] = ()
    names: tuple[str, ...] = ()


def test_fields_of_several_tensors_or_parts_are_the_matter_of_their_class():
    validate(Cupboard(tables={"a": torch.ones(2)}, parts=(L1(0.1),), names=("a",)))
    assert "names.0 is 3" in problem_of(validate, Cupboard(names=(3,)))


def test_a_missing_setting():
    class Oven(BaseModel):
        heat: float

    with pytest.raises(ValidationError) as info:
        Oven.model_validate({})
    assert explain(info.value) == "The setting heat is missing."
    assert explain(info.value, "oven") == "The setting oven.heat is missing."


REGISTERED = [
    (section, registry, name)
    for section, registry in (("algorithm", ALGORITHMS), ("compressor", COMPRESSORS), ("regularizer", REGULARIZERS))
    for name in registry
]


@pytest.mark.parametrize(("section", "registry", "name"), REGISTERED, ids=[f"{s}.{n}" for s, _, n in REGISTERED])
def test_everything_registered_can_be_made_by_name(section, registry, name):
    made = make(section, registry, {"name": name})
    assert type(made) is registry[name]
    sentence = problem_of(make, section, registry, {"name": name, "no_such_thing": 1})
    assert sentence.startswith(f"There is no setting {section}.no_such_thing; there are {section}.name")
    sentence = problem_of(make, section, registry, {"name": name + "x"})
    assert sentence.startswith(f"{section}.name is '{name}x'; it must be one of {', '.join(registry)}.")
    assert "  Did you mean " in sentence
