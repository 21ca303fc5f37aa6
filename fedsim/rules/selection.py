"""Codes of the ways in which a policy selects a site's online clients; `kernels/clock/selection` draws the cohorts."""

from __future__ import annotations

ALL, UNIFORM, BY_WEIGHT, BERNOULLI = 0, 1, 2, 3  # by weight: with replacement, probability p_c
