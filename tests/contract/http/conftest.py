"""A certificate for `localhost`, made once per session."""

from pathlib import Path

import pytest

from tests.contract.http.hostile import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The server's and the client's side of one self-made certificate."""
    folder: Path = tmp_path_factory.mktemp("tls")
    return make_certificates(folder)
