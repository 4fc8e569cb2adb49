"""Results on their way into our bucket: where they stand in an output, what they are, the store.

`artifacts` finds declared results in a provider's output, `sniffing` tells what bytes are,
`capture` copies them, `layout` says what a stored object must look like, `objects` talks S3.
"""
