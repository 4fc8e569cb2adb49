"""Stand-ins for the paid providers, and for nothing else.

Owns: one folder per provider, each runnable as a process of its own.
Promises: the provider's public behaviour, scriptable faults, and a journal that audits trust.
Never: imports anything from services, shared or deploy; what judges the product must not
share its code.
"""
