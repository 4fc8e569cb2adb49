"""The heart: one function per event, each a guarded write with its audit and outbox rows.

Grouped by who calls: `admission` (gateway), `submission` (submitter), `evidence` (webhook,
reconciler), `checks` (reconciler), `capture` (archiver). Every function returns `Landed` or
`FenceLost`, never a bool. The statements that write to `jobs` stand in `shared.store.statements`.
"""
