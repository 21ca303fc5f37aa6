"""Independent arithmetic for the tests: it shares no code with fedsim's engine, algorithms, policies or exchanges.

`client_steps` and `server_steps` hold one function per algorithm, `weights` one per policy and exchange, `timeline`
reads from `result.events` whose replies were aggregated and from which version, and `learning` puts them together.
Random numbers are those of `fedsim.rng`, by address.
"""
