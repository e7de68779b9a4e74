"""Text by a tokenizer of one's own: trained on, sampled from, and refused where it does not go with the model."""
import json
import os
import subprocess

from tests.integration import ranks
from tests.patience import PATIENCE_S

FOLDER = os.path.join(ranks.ROOT, "tests", "unit", "worker", "tokenizer")
SENTENCE = "It's what they've done; some of those were better than the others."


def spec_of(corpus, tokenizer=FOLDER, vocab=600, steps=150):
    return {"name": "t", "devices": {"min": 1, "max": 1}, "train": {
        "model": {"family": "gpt2", "layers": 1, "hidden": 32, "heads": 2, "ffn": 64, "context": 32, "vocab": vocab},
        "data": {"path": str(corpus), "format": "jsonl", "tokenizer": "gpt2", "tokenizer_path": str(tokenizer)},
        "batch": {"sequences": 4, "micro": 4, "length": 32}, "steps": steps,
        "optimizer": {"lr": 1e-2, "warmup": 5}}, "parallel": {"virtual_workers": 1}}


def write_corpus(path, text=SENTENCE, lines=40):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(lines)))
    return path


def sample(folder, *args):
    return subprocess.run([ranks.TRAIN, "--sample", "--checkpoint", folder, *args], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE_S)


def test_a_model_learns_and_says_the_text_of_its_tokenizer(tmp_path):
    run = ranks.train(spec_of(write_corpus(tmp_path / "c.jsonl")), str(tmp_path))
    assert ranks.losses(run)[-1] < 0.2
    said = sample(os.path.join(run.job, "checkpoints"), "--prompt", "It's what", "--tokens", "60", "--temperature", "0")
    assert said.returncode == 0, said.stderr
    assert "they've done; some of those were better than the others.\n" in said.stdout.decode()
    bad = sample(os.path.join(run.job, "checkpoints"), "--prompt", b"ab\xff", "--tokens", "1")
    assert bad.returncode != 0 and b"byte 2" in bad.stderr


def test_a_tokenizer_too_large_for_the_model_is_refused_with_both_sizes(tmp_path):
    run = ranks.train(spec_of(write_corpus(tmp_path / "c.jsonl"), vocab=300), str(tmp_path), want=ranks.USER)
    size = len(json.load(open(os.path.join(FOLDER, "vocab.json"))))
    assert "has %d tokens and the model a vocabulary of 300" % size in run.log()


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')
    run = ranks.train(spec_of(write_corpus(tmp_path / "c.jsonl"), tokenizer=tmp_path / "tokenizer.json"),
                      str(tmp_path), want=ranks.USER)
    assert "Unigram" in run.log()
