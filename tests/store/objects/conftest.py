import pytest
from shared.kit.settings import StorageSettings
from tests import parts
@pytest.fixture
def storage_settings(storage: parts.Storage) -> StorageSettings:
    return StorageSettings(s3_endpoint_url=storage.endpoint_url,s3_bucket=storage.bucket,s3_region=storage.region,s3_access_key_id=storage.access_key_id,s3_secret_access_key=storage.secret_access_key)
