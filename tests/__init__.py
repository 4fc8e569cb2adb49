"""The proofs: unit, store, contract, system, and the fake provider they play against."""
