"""Codes of selection: which of a site's online clients a policy asks. `kernels/clock/selection` draws the cohorts."""

from __future__ import annotations

ALL, UNIFORM, BY_WEIGHT, BERNOULLI = 0, 1, 2, 3  # by weight: with replacement, probability p_c
