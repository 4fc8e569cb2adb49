"""The private bucket: a thin, typed door to any S3 store, and the only user of its client.

`open_object_store` opens it, `ObjectStore` has one method per operation, `trouble` holds the
errors. Nothing outside this package imports the client library.
"""

from shared.media.objects.client import open_object_store
from shared.media.objects.store import MultipartUpload, ObjectStore
from shared.media.objects.trouble import ObjectMissing, UploadGone

__all__ = ["MultipartUpload", "ObjectMissing", "ObjectStore", "UploadGone", "open_object_store"]
