"""Training whose messages are coded: fewer bytes, nearly the same losses, the same bits again, also across a resume."""
import os
import shutil

import pytest

from tests import specs
from tests.integration import ranks

LOSS_RELATIVE = 5e-3  # of every step's loss, after at most 20 steps

# layout, nodes, codecs, and the most bytes of what is sent uncoded
CASES = [
    ({"tp": 2}, 1, {"tp": "r8"}, {"tp": 0.27}),
    ({"tp": 2}, 2, {"tp": "r6"}, {"tp": 0.21}),
    ({"tp": 2}, 1, {"tp": "t8"}, {"tp": 0.28}),
    ({"dp": 2}, 1, {"dp": "sdp4bit"}, {"dp": 0.25}),  # inside a node gradients take 8 bits
    ({"dp": 4}, 2, {"dp": "sdp4bit"}, {"dp": 0.25}),
    ({"dp": 3}, 1, {"dp": "g8"}, {"dp": 0.35}),
    ({"pp": 2}, 2, {"pp": "r4"}, {"pp": 0.6}),        # the tied embedding's sum goes uncoded
    ({"tp": 2, "pp": 2, "dp": 2}, 2, {"tp": "r8", "pp": "r8", "dp": "sdp4bit"}, {"tp": 0.27, "pp": 0.8, "dp": 0.25}),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return specs.train(specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "text")), steps=20)


@pytest.fixture(scope="module")
def uncoded(job, tmp_path_factory):
    """The same run without codecs, by layout."""
    done = {}

    def run(layout, nodes):
        key = (tuple(sorted(layout.items())), nodes)
        if key not in done:
            done[key] = ranks.train(job, str(tmp_path_factory.mktemp("uncoded")), nodes=nodes, **layout)
        return done[key]
    return run


@pytest.mark.parametrize("layout,nodes,compress,most", CASES)
def test_a_coded_run_sends_less_and_learns_the_same(job, uncoded, layout, nodes, compress, most, tmp_path):
    plain = uncoded(layout, nodes)
    run = ranks.train(dict(job, compress=compress), str(tmp_path), nodes=nodes, **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(plain)) < LOSS_RELATIVE
    assert ranks.losses(run)[1:] != ranks.losses(plain)[1:]
    for group, part in most.items():
        sent, before = run.metrics()[5]["bytes_" + group], plain.metrics()[5]["bytes_" + group]
        assert 0 < sent < part * before, (group, sent / before)


def test_the_same_layout_gives_the_same_bits_again_also_from_a_checkpoint(job, tmp_path):
    spec = dict(job, compress={"tp": "r8", "pp": "r8", "dp": "sdp4bit"})
    layout = {"tp": 2, "pp": 1, "dp": 2, "nodes": 2}
    first = ranks.train(spec, str(tmp_path / "1"), **layout)
    again = ranks.train(spec, str(tmp_path / "2"), **layout)
    assert ranks.losses(again) == ranks.losses(first)
    shutil.copytree(first.job, tmp_path / "3" / "job")
    shutil.rmtree(tmp_path / "3" / "job" / "checkpoints" / "step-00000020")
    resumed = ranks.train(spec, str(tmp_path / "3"), generation=2, **layout)
    assert [e["step"] for e in resumed.events("resumed")] == [10]
    assert ranks.losses(resumed) == ranks.losses(first)


def test_another_number_of_replicas_goes_on_from_a_coded_checkpoint(job, tmp_path):
    spec = dict(job, compress={"dp": "sdp4bit"})
    first = ranks.train(spec, str(tmp_path), dp=3)
    shutil.rmtree(os.path.join(first.job, "checkpoints", "step-00000020"))
    resumed = ranks.train(spec, str(tmp_path), generation=2, dp=2)
    assert [e["step"] for e in resumed.events("resumed")] == [10]
    assert ranks.relative(ranks.losses(resumed), ranks.losses(ranks.train(job, str(tmp_path / "plain")))) < 5e-3


def test_numbers_that_are_not_finite_are_not_hidden_by_a_codec(job, tmp_path):
    diverges = {"lr": 1000, "weight_decay": 1000, "warmup": 0}
    spec = dict(job, compress={"tp": "r8"}, train=dict(job["train"], optimizer=diverges))
    with ranks.Run(str(tmp_path), spec, tp=2) as run:
        codes = run.wait()
    assert ranks.USER in codes
    assert "step " in run.log(codes.index(ranks.USER)) and "learning rate" in run.log(codes.index(ranks.USER))


def test_auto_decides_by_measurement_and_says_what_it_expects(job, uncoded, tmp_path):
    layout = {"tp": 2, "dp": 2}
    run = ranks.train(dict(job, compress={"tp": "auto", "pp": "auto", "dp": "auto"}), str(tmp_path), nodes=2, **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(uncoded(layout, 2))) < LOSS_RELATIVE
    for group in ("tp", "dp"):
        assert "compress.%s: " % group in run.log(0)
        line = run.metrics()[-1]
        assert line["wire_%s_ms" % group] > 0 and line["wire_%s_predicted_ms" % group] > 0


def test_codecs_go_with_bf16_and_sequence_parallel(job, tmp_path):
    spec = dict(job, train=dict(job["train"], precision="bf16"))
    spec["parallel"] = dict(job["parallel"], sequence_parallel=True)
    layout = {"tp": 2, "dp": 2, "nodes": 2}
    plain = ranks.train(spec, str(tmp_path / "plain"), **layout)
    run = ranks.train(dict(spec, compress={"tp": "r8", "dp": "sdp4bit"}), str(tmp_path / "coded"), **layout)
    assert ranks.relative(ranks.losses(run), ranks.losses(plain)) < LOSS_RELATIVE
    assert run.metrics()[5]["bytes_tp"] < 0.3 * plain.metrics()[5]["bytes_tp"]


def strict(job, **codecs):
    return dict(job, compress=codecs, parallel=dict(job["parallel"], exact="strict"))


# codec, layouts with their nodes, and the most bytes of what dp sends uncoded: fewer leaves a replica, fewer bytes
STRICT = [
    ("sdp4bit", [({"dp": 1}, 1, None), ({"dp": 2}, 1, 0.21), ({"dp": 4}, 2, 0.14), ({"pp": 2, "dp": 3}, 1, None)]),
    ("g8", [({"dp": 1}, 1, None), ({"dp": 4}, 1, None)]),
]


@pytest.mark.parametrize("codec,layouts", STRICT)
def test_strict_gives_the_same_bits_with_any_number_of_replicas(job, uncoded, codec, layouts, tmp_path):
    plain, first = uncoded({"dp": 1}, 1), None
    for i, (layout, nodes, most) in enumerate(layouts):
        run = ranks.train(strict(job, dp=codec), str(tmp_path / str(i)), nodes=nodes, **layout)
        first = first or run
        assert ranks.losses(run) == ranks.losses(first), layout
        assert ranks.digest(run) == ranks.digest(first), layout
        if most:
            sent, before = run.metrics()[5]["bytes_dp"], uncoded(layout, nodes).metrics()[5]["bytes_dp"]
            assert 0 < sent < most * before, (layout, sent / before)
    assert ranks.relative(ranks.losses(first), ranks.losses(plain)) < LOSS_RELATIVE
    assert ranks.losses(first)[1:] != ranks.losses(plain)[1:]
    # and when replicas come and go: the last layout's first half, the first layout's second
    shutil.rmtree(os.path.join(run.job, "checkpoints", "step-00000020"))
    resumed = ranks.train(strict(job, dp=codec), str(tmp_path / str(i)), generation=2, **layouts[0][0])
    assert [e["step"] for e in resumed.events("resumed")] == [10]
    assert ranks.losses(resumed) == ranks.losses(first)
    assert ranks.digest(resumed) == ranks.digest(first)


@pytest.mark.parametrize("cut,codecs", [({"tp": 2}, {"tp": "r8", "dp": "sdp4bit"}), ({"pp": 2}, {"pp": "r4"})])
def test_strict_holds_where_layers_are_cut_and_coded(job, cut, codecs, tmp_path):
    short = dict(job, train=dict(job["train"], steps=6), checkpoint={"every_steps": 6})
    first = None
    for dp, nodes in (1, 1), (2, 2), (4, 1):
        run = ranks.train(strict(short, **codecs), str(tmp_path / str(dp)), dp=dp, nodes=nodes, **cut)
        first = first or run
        assert ranks.losses(run) == ranks.losses(first), dp
        assert ranks.digest(run) == ranks.digest(first), dp
    assert run.metrics()[-1]["bytes_" + list(cut)[0]] > 0
