"""Tokens: how long they are good, and what whoever has none may try."""
import datetime
import os
import subprocess

import pytest

from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("tokens")), slots=0) as c:
        yield c
    assert not c.leftovers()


def test_an_expired_token_is_refused_with_words(cluster):
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
    made = cluster.api("POST", "/v1/tokens", {"user": "ann", "expires_at": soon.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
    assert made["expires_at"] == soon.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" and made["last_used_at"] is None
    refused = wait_for("the token to expire", lambda: (
        got := cluster.request("GET", "/v1/jobs", token=made["token"]))[0] == 401 and got[1])
    assert refused["type"].endswith(":token-expired") and "expired" in refused["detail"]
    listed = {t["id"]: t for t in cluster.api("GET", "/v1/tokens")["tokens"]}
    assert listed[made["id"]]["last_used_at"] is not None  # it was good before


def test_the_command_line_makes_tokens_that_expire(cluster):
    run = subprocess.run([f"{BIN}/muster", "token", "create", "bob", "--expires", "30d", "-o", "json"],
                         capture_output=True, text=True, check=True, timeout=PATIENCE_S,
                         env=dict(os.environ, MUSTER_STATE=cluster.state, MUSTER_TOKEN="", MUSTER_SERVER=""))
    assert '"expires_at": "20' in run.stdout
    table = subprocess.run([f"{BIN}/muster", "token", "list"], capture_output=True, text=True, check=True,
                           timeout=PATIENCE_S, env=dict(os.environ, MUSTER_STATE=cluster.state)).stdout
    assert "LAST USED" in table and "EXPIRES" in table


def test_300_wrong_tokens_meet_a_bucket_and_a_right_one_does_not(cluster):
    got = [cluster.request("GET", "/v1/jobs", token=f"mst_{i:048x}")[0] for i in range(300)]
    assert set(got) == {401, 429} and got.count(401) < 150
    assert cluster.request("GET", "/v1/jobs")[0] == 200
