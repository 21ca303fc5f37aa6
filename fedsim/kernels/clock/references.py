# mypy: disable-error-code="attr-defined"
"""References to tables and states: a loop passes one pointer to its inner functions instead of all their fields.

Numba passes a NamedTuple field by field, an array as seven numbers. Of a table with forty arrays that is most of the
code of a small function, so that packing and unpacking arguments took half of the time in which a loop compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from numba.core.datamodel.models import PrimitiveModel
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import register_model

from fedsim.kernels.intrinsics import Builder, Context, Signature, Type, Typing, Value, cgutils, intrinsic, types


class Reference(Type):
    """The type of a reference to a NamedTuple; it never reaches Python."""

    def __init__(self, to: Any) -> None:
        self.to, self.types, self.fields, self.instance_class = to, to.types, to.fields, to.instance_class
        digest = blake2b(to.name.encode(), digest_size=8).hexdigest()  # names of functions repeat those of types
        super().__init__(name=f"{to.instance_class.__name__}_{digest}")

    def field(self, name: str) -> tuple[int, Any]:
        """Return the number and the type of a field."""
        index = self.fields.index(name)
        return index, self.types[index]


@register_model(Reference)
class ReferenceModel(PrimitiveModel):  # type: ignore[misc]
    """A pointer to the tuple's value."""

    def __init__(self, manager: Any, kind: Reference) -> None:
        super().__init__(manager, kind, manager.lookup(kind.to).get_value_type().as_pointer())


@intrinsic
def by_reference(typing: Typing, value: Any) -> Any:
    """Return a reference to a copy of a NamedTuple on the stack of a unit."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        place = cgutils.alloca_once(builder, args[0].type)
        for i in range(len(value.types)):
            builder.store(builder.extract_value(args[0], i), cgutils.gep_inbounds(builder, place, 0, i))
        return place

    return Reference(value)(value), build


@infer_getattr
class ReferenceFields(AttributeTemplate):  # type: ignore[misc]
    """The type of a field: of a NamedTuple a reference, too."""

    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> Any:
        if name in reference.fields:
            kind = reference.field(name)[1]
            return Reference(kind) if isinstance(kind, types.NamedTuple) else kind
        return None


@lower_getattr_generic(Reference)
def field_of(context: Context, builder: Builder, reference: Reference, value: Value, name: str) -> Any:
    index, kind = reference.field(name)
    place = cgutils.gep_inbounds(builder, value, 0, index)
    return place if isinstance(kind, types.NamedTuple) else builder.load(place)
