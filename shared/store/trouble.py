"""Which of the driver's errors mean "not now".

The server is away, full, read-only, or gave way to another: nothing was decided, and the same
work may be tried later. All other errors are ours and pass through unchanged.
"""

import asyncpg

CONNECT_TIMEOUT_SECONDS = 5.0

UNAVAILABLE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a connection that dies under a statement may end in
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.LockNotAvailableError,
    asyncpg.exceptions.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
)
"""What means "not now": the server is away, full, read-only, or gave way to another."""
