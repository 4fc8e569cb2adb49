"""A fake Runpod: the queue-endpoint API, real video bytes, an fsynced journal, scripted faults.

Owns: everything between the socket and the journal; see README.md beside this file.
Promises: no call is answered before the journal holds it, so a killed fake forgets no paid job.
Never: shares code with the product, and never reaches out except to the webhook URLs it is given.
"""
