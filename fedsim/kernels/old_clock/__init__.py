"""The virtual clock, compiled: one replica's events, from the opening of a round to its close, in plain arrays.

It does what `fedsim.old_engine` does on SimPy, in the same order and with the same operations: the same bits.

    state.py      the columns: what is known of the replica, of every client, visit, event and flow
    heap.py       events by (time, priority, number)
    draws.py      compute times, dropouts, ties, coins: the numbers that `fedsim.rng` names
    presence.py   who is on, and until when
    select.py     who takes part
    flows.py      messages that share links max-min fairly; bundles.py says which of them travel together, marks.py when
                  each is over, serving.py at what rate, finishes.py where flows end next
    visits.py     a client's way through a round
    rounds.py     synchronous rounds;  folds.py  continuously working clients
    loop.py       events one after another: the one function that is called from outside

Several sites have columns of their own and a function of their own to call, so that nobody else compiles them:

    gossip.py     a site's round among its neighbours (gossip_state.py, gossip_rows.py, gossip_loop.py)
    tiers.py      an edge's round, and the cloud (tiers_state.py, tiers_select.py, tiers_loop.py)
"""
