"""What the tests of this folder are given by name, unless a file has its own of that name."""
import pytest

from tests.cluster import Cluster


@pytest.fixture(name="cluster")
def one_server(tmp_path):
    """A musterd of its own, without an agent, that soon misses one."""
    with Cluster(str(tmp_path), slots=0, server_args=["--unknown-after", "2", "--lost-after", "4"]) as c:
        yield c
    assert not c.leftovers()
