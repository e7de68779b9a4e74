"""Several ranks of a command on each device (`command.ranks`): their numbers, ends and answers to orders."""
import pytest

from tests import specs
from tests.cluster import ApiError, Cluster, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("shared")), slots=2) as c:
        yield c
    assert not c.leftovers()


def submit(cluster, text, ranks, devices=2, **more):
    spec = specs.command(text, devices=devices, **more)
    spec["command"]["ranks"] = ranks
    return cluster.submit(spec)["id"]


def test_ranks_are_numbered_through_all_devices_and_share_their_logs(cluster):
    job = submit(cluster, 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_PORT"', 3)
    cluster.wait(job, "succeeded")
    said = [sorted(cluster.log_text(job, device).split("\n")[:-1]) for device in range(2)]
    port = said[0][0].split()[2]
    assert said == [[f"{r}/6 {r}/6 {port}" for r in range(3)], [f"{r}/6 {r}/6 {port}" for r in range(3, 6)]]


def test_the_first_rank_that_fails_ends_the_others_and_gives_its_status(cluster):
    job = submit(cluster, '[ "$RANK" = 3 ] && exit 9; exec sleep 100000', 2, retry={"max": 0})
    outcome = cluster.wait(job, "failed")["outcome"]
    assert (outcome["class"], outcome["exit_code"]) == ("user", 9)
    assert cluster.rank_pids(job) == []


def test_a_signal_that_ends_one_of_them_is_told_as_it_was(cluster):
    job = submit(cluster, '[ "$RANK" = 1 ] && kill -SEGV $$; exec sleep 100000', 2, devices=1, retry={"max": 0})
    outcome = cluster.wait(job, "failed")["outcome"]
    assert outcome["signal"] == 11, outcome


def test_the_result_of_each_is_heard_by_its_own_number(cluster):
    write = 'printf %s \'{"outcome":"failed","class":"user","message":"the data are bad"}\' > '
    job = submit(cluster, f'[ "$RANK" = 3 ] || exec sleep 100000; {write}"$MUSTER_RUN_DIR/rank-00003.result"; exit 1',
                 2, retry={"max": 0})
    outcome = cluster.wait(job, "failed")["outcome"]
    assert "the data are bad" in outcome["message"], outcome


def test_an_order_reaches_all_of_them_and_the_answer_of_one_counts(cluster):
    job = submit(cluster, r"""
        result=$MUSTER_RUN_DIR/rank-0000$RANK.result
        trap 'echo "{\"outcome\":\"stopped\",\"step\":7}" > $result; echo $RANK; exit 76' TERM
        echo up
        while :; do
            if [ "$RANK" = 3 ] && grep -q '"order":"save"' $MUSTER_RUN_DIR/order.json 2>/dev/null; then
                seq=$(sed 's/.*"seq":\([0-9]*\).*/\1/' $MUSTER_RUN_DIR/order.json)
                echo "{\"seq\":$seq,\"step\":7,\"did\":\"saved\"}" > $MUSTER_RUN_DIR/rank-00003.ack
            fi
            sleep 0.1
        done""", 2)
    cluster.wait(job, "running")
    wait_for("all four ranks", lambda: (cluster.log_text(job, 0) + cluster.log_text(job, 1)).count("up") == 4)
    cluster.action(job, "checkpoint")
    wait_for("the answer", lambda: "saved" in [(e.get("data") or {}).get("type") for e in cluster.events(job)])
    cluster.action(job, "suspend")
    cluster.wait(job, "suspended")
    said = (cluster.log_text(job, 0) + cluster.log_text(job, 1)).split()
    assert sorted(word for word in said if word.isdigit()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("more, words", [({"ranks": 65}, "from 1 to 64"),
                                         ({"ranks": 2, "launcher": "torchrun"}, "torchrun")])
def test_what_cannot_share_a_device_is_refused(cluster, more, words):
    spec = specs.command("true")
    spec["command"].update(more)
    with pytest.raises(ApiError, match=words):
        cluster.submit(spec)
    spec = specs.command("true", devices=1024)
    spec["command"]["ranks"] = 2
    with pytest.raises(ApiError, match="more than the 1024 ranks"):
        cluster.submit(spec)
