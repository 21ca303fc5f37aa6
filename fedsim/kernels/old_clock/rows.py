# mypy: allow-untyped-defs
"""Rows of a replica's columns. A clock knows where its columns are by their addresses, which its state holds.

Numba counts who holds an array at every call, and a clock has thirty of them. A row of an array is a mere pointer.
"""

from __future__ import annotations

import numpy as np
from numba import carray, from_dtype

from fedsim.kernels.inner import inline
from fedsim.kernels.llvm import cgutils, intrinsic, ir, types
from fedsim.kernels.old_clock import state
from fedsim.kernels.sharing_columns import BUNDLE, LINK

WORD = ir.IntType(64)


def rows_of(column, dtype):
    """A function of (s, i): row i of the column, whose address is in the state s."""
    record, offset = from_dtype(dtype), state.STATE.fields[f"at_{column}"][1]

    @intrinsic
    def row(typing, s, i):
        def build(context, builder, signature, args):
            held = builder.gep(builder.bitcast(args[0], cgutils.voidptr_t), [WORD(offset)])
            begin = builder.load(builder.bitcast(held, WORD.as_pointer()))
            at = builder.add(begin, builder.mul(args[1], WORD(dtype.itemsize)))
            return builder.inttoptr(at, context.get_value_type(record))

        return record(s, types.int64), build

    return row


event_at, visit_at = rows_of("events", state.EVENT), rows_of("visits", state.VISIT)
client_at, place_at = rows_of("clients", state.CLIENT), rows_of("places", state.PLACE)
ended_at, round_at = rows_of("ended", state.ENDED), rows_of("rounds", state.ROUND)
note_at, interval_at = rows_of("notes", state.NOTE), rows_of("intervals", state.INTERVAL)
flow_at, node_at = rows_of("flows", state.FLOW), rows_of("nodes", state.NODE)
finish_at, route_at = rows_of("finishes", state.FINISH), rows_of("routes", state.ROUTE)
link_at, bundle_at = rows_of("links", LINK), rows_of("bundles", BUNDLE)
user_at, more_at = rows_of("users", state.USER), rows_of("more", state.MORE)

chosen_at, times_at, waiting_at = (rows_of(name, state.NUMBER) for name in ("chosen", "times", "waiting"))
route_link_at, private_at = rows_of("route_links", state.NUMBER), rows_of("privates", state.NUMBER)
bucket_at, starting_at = rows_of("table", state.NUMBER), rows_of("starting", state.NUMBER)
dirty_at, group_at = rows_of("dirty", state.NUMBER), rows_of("group", state.NUMBER)
due_at, done_at = rows_of("due", state.NUMBER), rows_of("done", state.NUMBER)
hop_at, listed_at = rows_of("hops", state.SHORT), rows_of("lists", state.SHORT)


# --- Whole columns, for kernels that take arrays ------------------------------------------------------------


@intrinsic
def _pointer(typing, address):
    def build(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


@inline
def numbers(address, n):
    """n whole numbers from an address on."""
    return carray(_pointer(address), n, np.int64)


@inline
def shorts(address, n):
    return carray(_pointer(address), n, np.uint32)


@inline
def link_rows(s):
    return carray(_pointer(s.at_links), s.room_links, LINK)


@inline
def bundle_rows(s):
    return carray(_pointer(s.at_bundles), s.room_bundles, BUNDLE)
