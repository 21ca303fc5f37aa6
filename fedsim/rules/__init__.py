"""Every rule of virtual time, once, as plain functions of scalars. Policies and both clocks call the same functions.

    visits         when a message arrives, when a visit ends, how many bits had left when it was cut
    closing        the order of events at one instant, when a round closes, when edges merge, why a run stops
    availability   when a device is online: always, Markov, diurnal, intervals
    selection      codes of the ways in which policies select clients
    draws          keyed random numbers, one at a time, with the addresses and bits of `fedsim.rng`

The SimPy clock calls a rule as Python, the compiled clock as machine code (`kernels/clock/compiled_rules`); both must
return the same bits. So a rule uses float64 and int64 scalars, NamedTuples of them, + - * / and comparisons. It never
divides by a value that may be 0, never divides integers, and never compares an integer with a float: Python is exact
there and machine code rounds, so `float()` comes first. It returns the same type on every path. No rule imports Numba.
"""
