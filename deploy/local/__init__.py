"""The local stack: real PostgreSQL, Kafka and S3 from package registries, without Docker or root.

Owns how each part is started, watched and stopped on one machine. Promises that whatever it
starts dies with the process that started it, listens on loopback only and is never moved to
another port silently. It must never touch a process or a file that it did not make.
"""
