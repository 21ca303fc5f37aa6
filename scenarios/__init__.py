"""Scenarios that ship with fedsim: `fedsim run quickstart`."""
