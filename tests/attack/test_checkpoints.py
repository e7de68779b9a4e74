"""Checkpoints are their user's: others neither go on from them nor let them be removed."""
import os

import pytest

from tests import specs
from tests.cluster import Cluster


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("data") / "corpus.txt"))


def test_another_users_checkpoints_are_neither_read_nor_removed_but_may_be_begun_from(tmp_path, corpus):
    def submit(user, steps, **more):
        spec = dict(specs.train(corpus, steps=steps, every_steps=2, retry={"max": 0}), name=user)
        for field, value in more.items():
            spec[field] = {**spec[field], **value}
        return cluster.request("POST", "/v1/jobs", spec, token=tokens[user])

    def token(user):
        return cluster.api("POST", "/v1/tokens", {"user": user, "role": "user"})["token"]

    with Cluster(str(tmp_path), slots=1) as cluster:
        tokens = {user: token(user) for user in ("ann", "bob")}
        hers = submit("ann", 6)[1]["id"]
        cluster.wait(hers, "succeeded")
        folder = f"{cluster.jobs_dir}/{hers}/checkpoints"
        kept = sorted(os.listdir(folder))
        assert len([name for name in kept if name.startswith("step-")]) == 3

        for climbing in (f"../{hers}/checkpoints", f"checkpoints/../../{hers}/checkpoints", "..", "/jobs/../x"):
            status, answer = submit("bob", 20, checkpoint={"dir": climbing, "keep": 2})
            assert status == 422, answer
            assert [e["pointer"] for e in answer["errors"]] == ["/checkpoint/dir"]
            assert "'..'" in answer["errors"][0]["message"]

        his = submit("bob", 20, checkpoint={"dir": folder, "keep": 2})[1]["id"]
        failed = cluster.wait(his, "failed")
        assert failed["outcome"]["class"] == "user"
        assert "are those of 'ann', not of 'bob'" in failed["outcome"]["message"]
        assert sorted(os.listdir(folder)) == kept

        begun = submit("bob", 6, train={"init": {"seed": 1, "from": folder}})[1]["id"]
        cluster.wait(begun, "succeeded")
        assert sorted(os.listdir(folder)) == kept
        again = submit("ann", 8, checkpoint={"dir": folder})[1]["id"]  # her own she goes on from
        cluster.wait(again, "succeeded")
        assert "step-00000008" in os.listdir(folder)
    assert not cluster.leftovers()
