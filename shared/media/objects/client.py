"""Opens the private bucket with settings that hold for every S3 store.

Owns the client's configuration. It promises that no proxy variable, no configured endpoint of
the machine and no checksum default of the client's version has a say.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aioboto3
from aiobotocore.config import AioConfig
from botocore import UNSIGNED

from shared.kit.settings import StorageSettings
from shared.media.objects.store import ObjectStore


@asynccontextmanager
async def open_object_store(settings: StorageSettings) -> AsyncIterator[ObjectStore]:
    """The bucket of `settings`, until the context ends. Opening makes no call to the store."""
    session = aioboto3.Session(
        aws_access_key_id=settings.s3_access_key_id,
        aws_secret_access_key=settings.s3_secret_access_key.get_secret_value(),
        region_name=settings.s3_region,
    )
    endpoint = settings.s3_endpoint_url
    async with (
        session.client("s3", endpoint_url=endpoint, config=_config(endpoint, "s3v4")) as signed,
        session.client("s3", endpoint_url=endpoint, config=_config(endpoint, UNSIGNED)) as bare,
    ):
        yield ObjectStore(signed, bare, settings.s3_bucket)


def _config(endpoint: str | None, signature: Any) -> AioConfig:
    return AioConfig(
        signature_version=signature,
        s3={"addressing_style": "path" if endpoint else "virtual"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,
        proxies={},  # an empty table keeps proxy variables out
        retries={"total_max_attempts": 3, "mode": "standard"},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=64,
    )
