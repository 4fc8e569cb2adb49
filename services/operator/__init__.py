"""The operator's command line, `coatcheck`.

Owns every command: the local stack, migrations, keys, sessions, and looks at jobs. Promises
`--json` on each of them and three exit codes: 0 done, 1 refused, 2 wrong usage. Must never
write to `jobs` by itself: that is the store's work.
"""
