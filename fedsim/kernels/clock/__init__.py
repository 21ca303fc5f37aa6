"""The compiled clock: `fedsim.rules` and the loops over them as machine code.

    compiled_rules   the rules under their own names
    decorators       how inner functions and units are compiled
    state            records and tables; no Numba
    references       pointers to tables and states, as arguments of inner functions
    heap             events by (time, rank), a sort
    selection        a site's cohort; which clients are online
    devices          when many clients are online, slow-downs of many visits, for the SimPy clock
    visits           draws of a visit; visits on private links
    messages         visits on shared links, models between edges and the cloud, unselected broadcasts
    flows            flows on shared links; flow_groups: those that have one rate; maxmin: their rates
    rounds           rounds of sites, star and tiers
    asynchronous     asynchronous clients: places, the buffer, visits in flight
    loops            the event loop, a compile unit for each kind of links and devices
    uncontended      the short path: private links, devices always online; a unit of its own
    gossip           sites without a server; gossip_state, gossip_loop, and the short path uncontended_gossip

What differs between kinds of links, devices and selections is chosen by the types of `State.links`, `Tables.law` and
`Tables.selection`.
"""
