"""Run a scenario on a virtual clock: two clocks, one rulebook, one way for a round to count."""
