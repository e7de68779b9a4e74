"""PyTorch's DistributedDataParallel on as many devices as there are (docs/programs.md), by a spec such as

    devices: {min: 1, max: 8}
    command: {argv: [python3, elastic.py], elastic: true}
"""
import os
import sys
import time

import torch

import muster
import muster.torch

SAMPLES, BATCH, STEPS = 500, 8, int(sys.argv[1]) if len(sys.argv) > 1 else 200

run = muster.init()
torch.manual_seed(1)
inputs = torch.randn(SAMPLES, 16)
targets = inputs @ torch.randn(16, 1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
parallel = model
if run.world > 1:
    torch.distributed.init_process_group("gloo")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sampler = muster.torch.ElasticSampler(SAMPLES, BATCH, seed=1)
checkpointer = muster.torch.Checkpointer()


def save(step):
    """All ranks call it; each writes its share."""
    checkpointer.save(step, model, optimizer, sampler=sampler, wait=True)


def load():
    loaded = checkpointer.load(model, optimizer, sampler=sampler)
    return loaded and loaded.step


for step in muster.torch.elastic(STEPS, save=save, load=load, sampler=sampler, every=50):
    part = sampler.part()
    loss = torch.nn.functional.mse_loss(parallel(inputs[part]), targets[part]) * sampler.weight()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.log({"loss": loss.item()}, step=step + 1)
    if "IDS" in os.environ:  # which samples each step took, for who wants to check
        with open(f"{os.environ['IDS']}/g{run.attempt}-r{run.rank}", "a", encoding="ascii") as f:
            print(step, *(part if sampler.weight() > 0 else []), file=f)
        time.sleep(0 if os.path.exists(f"{os.environ['IDS']}/go") else 0.02)
run.finish()
