"""The compiled clock: `fedsim.rules` and the loops over them as machine code. `compiled_rules` is where they meet."""
