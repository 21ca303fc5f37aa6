# mypy: allow-untyped-defs
"""What is drawn for a visit, one number at a time: the names and the bits of `fedsim.rng`."""

from __future__ import annotations

from fedsim.kernels.elementary import direction64, exp64, log64, radius64, u32, unit64
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.lanes import philox
from fedsim.kernels.old_clock.parts import LOGNORMAL, NO_SLOWDOWN, PARETO
from fedsim.kernels.old_clock.state import BEFORE, COMPUTE, NOT, UPLOAD
from fedsim.rng import Stream

SELECTING, COMPUTING, DROPPING, TYING, PRESENT = (
    int(stream) for stream in (Stream.SELECT, Stream.COMPUTE, Stream.DROPOUT, Stream.TIE, Stream.AVAILABILITY)
)


@inline
def key_of(s, stream, client, round, visit):
    """The Philox key of an address, four words."""
    return philox(u32(client), u32(round), u32(s.replica), u32(visit << 8 | stream), s.low, s.high)


@inline
def uniform(key, step):
    """The first uniform number of a step."""
    w0, w1, _, _ = philox(u32(0), u32(step), key[2], key[3], key[0], key[1])
    return unit64(w0, w1)


@jit
def compute_s(s, c, client, round, visit):
    """How long a visit computes."""
    if not s.timed:
        return 0.0
    seconds = c.work_s
    if s.slowdown != NO_SLOWDOWN:
        key = key_of(s, COMPUTING, client, round, visit)
        if s.slowdown == LOGNORMAL:
            w0, w1, w2, w3 = philox(u32(0), u32(0), key[2], key[3], key[0], key[1])
            cosine, _ = direction64(w2, w3)
            seconds = seconds * exp64(s.slow_a * (radius64(w0, w1) * cosine))
        elif s.slowdown == PARETO:
            seconds = seconds * exp64(-log64(uniform(key, 0)) / s.slow_a)
        else:
            seconds = seconds * (s.slow_b if uniform(key, 0) < s.slow_a else 1.0)
    return seconds + c.wake_s


@jit
def drop(s, c, client, round, visit):
    """The phase in which a visit ends early, and how far into it."""
    if not s.drops:
        return NOT, 0.0
    key = key_of(s, DROPPING, client, round, visit)
    u, fraction = uniform(key, 0), uniform(key, 1)
    phase = NOT
    reached = 0.0 + c.before
    if u < reached:
        phase = BEFORE
    until = reached + c.compute
    if reached <= u and u < until:
        phase = COMPUTE
    reached = until
    until = reached + c.upload
    if reached <= u and u < until:
        phase = UPLOAD
    return phase, fraction


@inline
def tie(s, client, round, visit):
    return uniform(key_of(s, TYING, client, round, visit), 0)
