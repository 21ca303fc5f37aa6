"""Text is converted to the type of an annotation, or refused with the valid values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from fedsim.errors import InvalidInput
from fedsim.settings import field_names, from_text, pairs, spelled, unknown, with_fields


@dataclass(frozen=True)
class Inner:
    size: int = 3
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.size > 10 and self.rate is None:
            raise InvalidInput("a size above 10 needs a rate")


@dataclass(frozen=True)
class Outer:
    inner: Inner = field(default_factory=Inner)
    tags: tuple[str, ...] = ()
    thing: Any = None


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("12", int, 12),
        ("1e6", int, 1_000_000),
        ("1e-3", float, 1e-3),
        ("3", float, 3.0),
        ("yes", bool, True),
        ("False", bool, False),
        ("0", bool, False),
        ("abc", str, "abc"),
        ("12", str, "12"),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
        ("none", int | None, None),
        ("4", Optional[int], 4),  # noqa: UP045
        ("4", int | float, 4),
        ("4.5", int | float, 4.5),
        ("4", float | str, 4.0),
        ("four", float | str, "four"),
        ("5:8", int | range, range(5, 8)),
        ("w2,rhat", tuple[str, ...], ("w2", "rhat")),
        ("1,2", list[int], [1, 2]),
        ("", tuple[Any, ...], ()),
        ("data/x", Path, Path("data/x")),
        ("[1, 2]", Any, [1, 2]),
        ("word", Any, "word"),
    ],
)
def test_text_is_converted_by_its_annotation(text: str, annotation: Any, value: Any) -> None:
    read = from_text("x", text, annotation)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "sentence"),
    [
        ("1.5", int, "x=1.5: must be an integer"),
        ("", int, "x=: must be an integer"),
        ("fast", float, "x=fast: must be a number"),
        ("maybe", bool, "x=maybe: must be true or false"),
        ("c", Literal["a", "b"], "x=c: must be one of a, b"),
        ("c", int | None, "x=c: must be none or an integer"),
        ("1,b", tuple[int, ...], "x=1,b: must be a list of an integer with commas"),
        ("5", Inner, "x=5: Inner cannot be written as text; set its fields"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_what_would(text: str, annotation: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        from_text("x", text, annotation)
    assert str(refused.value) == sentence


def test_a_value_that_is_not_text_is_taken_as_it_is() -> None:
    assert from_text("x", 7, str) == 7


def test_dotted_fields_are_replaced_in_a_copy() -> None:
    before = Outer()
    after = with_fields(before, {"inner.size": "5", "tags": "a,b"})
    assert after == Outer(Inner(5), ("a", "b"))
    assert before == Outer()


def test_fields_of_one_object_change_together_before_its_checks() -> None:
    assert with_fields(Outer(), {"inner.size": "20", "inner.rate": "0.5"}).inner == Inner(20, 0.5)
    with pytest.raises(InvalidInput, match="a size above 10 needs a rate"):
        with_fields(Outer(), {"inner.size": "20"})


def test_an_unknown_field_names_the_closest_one() -> None:
    with pytest.raises(InvalidInput, match=r"unknown setting inner\.sizes; did you mean inner\.size\?"):
        with_fields(Outer(), {"inner.sizes": "5"})


def test_a_part_without_fields_is_refused() -> None:
    with pytest.raises(InvalidInput, match="thing is NoneType and has no fields to set"):
        with_fields(Outer(), {"thing.deep": "5"})


def test_a_part_cannot_be_set_together_with_its_fields() -> None:
    with pytest.raises(InvalidInput, match="inner is set together with one of its fields"):
        with_fields(Outer(), {"inner": "5", "inner.size": "5"})


def test_field_names_lists_what_can_be_set() -> None:
    assert field_names(Outer()) == ["inner", "inner.size", "inner.rate", "tags", "thing"]


def test_a_name_that_resembles_nothing_is_answered_with_what_there_is() -> None:
    assert str(unknown("zzz", ["alpha", "beta"])) == "unknown setting zzz; choose among alpha, beta"


def test_pairs_splits_at_the_first_equals_sign() -> None:
    assert pairs(["a=1", "b=x=y"], "--set") == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a=1", "a=2"]])
def test_pairs_refuses_what_is_no_pair_or_comes_twice(texts: list[str]) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        pairs(texts, "--set")


def test_annotations_are_spelled_as_one_writes_them() -> None:
    assert [spelled(a) for a in (int, int | None, Literal["a"])] == ["int", "int | None", "Literal['a']"]
