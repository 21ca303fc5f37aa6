# mypy: allow-untyped-defs
"""Rows of a replica's columns. A clock knows where its columns are by their addresses, which its state holds.

Numba counts who holds an array at every call, and a clock has thirty of them. A row of an array is a mere pointer.
"""

from __future__ import annotations

import numpy as np
from numba import carray, from_dtype
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedsim.kernels.cache import inline
from fedsim.kernels.clock import state
from fedsim.kernels.sharing_columns import BUNDLE, LINK


def _rows(dtype):
    record = from_dtype(dtype)

    @intrinsic
    def row(typing, base, index):
        """Row `index` of the column that begins at the address `base`."""

        def build(context, builder, signature, args):
            offset = builder.mul(args[1], args[1].type(dtype.itemsize))
            return builder.inttoptr(builder.add(args[0], offset), context.get_value_type(record))

        return record(types.int64, types.int64), build

    return row


@intrinsic
def _pointer(typing, address):
    def build(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


_event, _visit, _client, _place = map(_rows, (state.EVENT, state.VISIT, state.CLIENT, state.PLACE))
_ended, _round, _note, _interval = map(_rows, (state.ENDED, state.ROUND, state.NOTE, state.INTERVAL))
_flow, _node, _finish, _route = map(_rows, (state.FLOW, state.NODE, state.FINISH, state.ROUTE))
_link, _bundle, _user, _more = map(_rows, (LINK, BUNDLE, state.USER, state.MORE))
_number, _short = map(_rows, (state.NUMBER, state.SHORT))


@inline
def event_at(s, i):
    return _event(s.at_events, i)


@inline
def visit_at(s, i):
    return _visit(s.at_visits, i)


@inline
def client_at(s, i):
    return _client(s.at_clients, i)


@inline
def place_at(s, i):
    return _place(s.at_places, i)


@inline
def ended_at(s, i):
    return _ended(s.at_ended, i)


@inline
def round_at(s, i):
    return _round(s.at_rounds, i)


@inline
def note_at(s, i):
    return _note(s.at_notes, i)


@inline
def interval_at(s, i):
    return _interval(s.at_intervals, i)


@inline
def flow_at(s, i):
    return _flow(s.at_flows, i)


@inline
def node_at(s, i):
    return _node(s.at_nodes, i)


@inline
def finish_at(s, i):
    return _finish(s.at_finishes, i)


@inline
def route_at(s, i):
    return _route(s.at_routes, i)


@inline
def link_at(s, i):
    return _link(s.at_links, i)


@inline
def bundle_at(s, i):
    return _bundle(s.at_bundles, i)


@inline
def user_at(s, i):
    return _user(s.at_users, i)


@inline
def more_at(s, i):
    return _more(s.at_more, i)


@inline
def chosen_at(s, i):
    return _number(s.at_chosen, i)


@inline
def times_at(s, i):
    return _number(s.at_times, i)


@inline
def waiting_at(s, i):
    return _number(s.at_waiting, i)


@inline
def route_link_at(s, i):
    return _number(s.at_route_links, i)


@inline
def private_at(s, i):
    return _number(s.at_privates, i)


@inline
def bucket_at(s, i):
    return _number(s.at_table, i)


@inline
def starting_at(s, i):
    return _number(s.at_starting, i)


@inline
def dirty_at(s, i):
    return _number(s.at_dirty, i)


@inline
def group_at(s, i):
    return _number(s.at_group, i)


@inline
def due_at(s, i):
    return _number(s.at_due, i)


@inline
def done_at(s, i):
    return _number(s.at_done, i)


@inline
def hop_at(s, i):
    return _short(s.at_hops, i)


@inline
def listed_at(s, i):
    return _short(s.at_lists, i)


# --- Whole columns, for kernels that take arrays ------------------------------------------------------------


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
