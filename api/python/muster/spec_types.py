"""A job spec.

Written by `make openapi` from api/openapi.yaml.
"""
from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union



class Spec(TypedDict, total=False):
    name: str
    project: str
    priority: int
    labels: Dict[str, str]
    devices: SpecDevices
    train: SpecTrain
    command: Union[str, SpecCommand2]
    parallel: Union[Literal['auto'], SpecParallel2]
    compress: SpecCompress
    sequence: SpecSequence
    resources: SpecResources
    memory: SpecMemory
    checkpoint: SpecCheckpoint
    retry: SpecRetry
    logs: SpecLogs
    array: SpecArray
    after: List[SpecAfterItem]
    on_broken: Literal['cancel', 'hold']
    singleton: bool
    notify: SpecNotify
    reservation: str
    limits: SpecLimits


class SpecDevices(TypedDict, total=False):
    min: int
    max: int
    classes: List[str]
    exclude: List[str]
    prefer: List[str]
    within: Literal['any', 'rack']
    hetero_ok: bool
    class_change: Literal['auto', 'never', 'at_checkpoint']


class SpecTrain(TypedDict, total=False):
    model: Union[Literal['gpt2-tiny', 'gpt2-124m', 'gpt2-350m', 'gpt2-774m', 'gpt2-1.5b', 'llama-tiny', 'llama-1b',
            'llama-3b', 'llama-8b', 'qwen2.5-0.5b', 'qwen2.5-1.5b', 'qwen3-0.6b', 'qwen3-1.7b', 'qwen3-4b',
            'qwen3-8b', 'mistral-7b', 'phi-3-mini'], SpecTrainModel2]
    init: SpecTrainInit
    data: SpecTrainData
    batch: SpecTrainBatch
    steps: int
    precision: Literal['f32', 'bf16']
    optimizer: SpecTrainOptimizer
    eval: SpecTrainEval
    on_nonfinite: Literal['fail', 'skip', 'roll-back']
    nonfinite_limit: int


class SpecTrainModel2(TypedDict, total=False):
    preset: Literal['gpt2-tiny', 'gpt2-124m', 'gpt2-350m', 'gpt2-774m', 'gpt2-1.5b', 'llama-tiny', 'llama-1b',
            'llama-3b', 'llama-8b', 'qwen2.5-0.5b', 'qwen2.5-1.5b', 'qwen3-0.6b', 'qwen3-1.7b', 'qwen3-4b',
            'qwen3-8b', 'mistral-7b', 'phi-3-mini']
    family: Literal['gpt2', 'llama']
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    context: int
    vocab: int
    dropout: float
    tie_embeddings: bool
    norm_eps: float
    qkv_bias: bool
    qk_norm: bool
    fused: bool
    head_dim: int
    window: int
    rope_theta: float
    rope_scaling: Literal['auto', 'none', 'linear', 'llama3']
    rope_factor: float
    rope_original: int


SpecTrainInit = TypedDict('SpecTrainInit', {
    'seed': 'Union[int, str]',
    'from': 'str',
    'resume': 'Union[bool, str]',
}, total=False)


class SpecTrainData(TypedDict, total=False):
    path: str
    format: Union[Literal['text', 'jsonl', 'tokens'], str]
    separator: Union[Literal['none', 'blank', 'percent'], str]
    tokenizer: Union[Literal['bytes', 'gpt2', 'file'], str]
    tokenizer_path: str
    samples: Union[Literal['stream', 'documents'], str]
    overlong: Union[Literal['fail', 'cut', 'drop'], str]
    index: str
    order: Union[Literal['shuffle', 'sequential'], str]
    holdout: Union[float, str]


class SpecTrainBatch(TypedDict, total=False):
    sequences: int
    micro: Union[int, Literal['auto']]
    length: int
    capacity: int


class SpecTrainOptimizer(TypedDict, total=False):
    name: Union[Literal['adamw'], str]
    lr: Union[float, str]
    betas: Union[List[float], str]
    eps: Union[float, str]
    weight_decay: Union[float, str]
    clip: Union[float, str]
    schedule: Union[Literal['cosine', 'linear', 'constant'], str]
    warmup: Union[int, str]
    min_lr_ratio: Union[float, str]


class SpecTrainEval(TypedDict, total=False):
    every_steps: int
    sequences: int


class SpecCommand2(TypedDict, total=False):
    argv: List[str]
    env: Dict[str, Union[str, SpecCommand2EnvValue2]]
    workdir: str
    bundle: str
    git: SpecCommand2Git
    image: str
    grace_s: int
    ranks: int
    launcher: Literal['none', 'torchrun']
    elastic: bool
    stop_s: int
    ports: List[str]


class SpecCommand2EnvValue2(TypedDict, total=False):
    secret: str


class SpecCommand2Git(TypedDict, total=False):
    url: str
    ref: str
    commit: str


class SpecParallel2(TypedDict, total=False):
    tp: Union[int, Literal['auto']]
    pp: Union[int, Literal['auto']]
    cp: Union[int, Literal['auto']]
    cp_mode: Literal['zigzag', 'ulysses']
    virtual_workers: Union[int, Literal['auto']]
    sequence_parallel: Union[bool, Literal['auto']]
    zero: Union[int, Literal['auto']]
    exact: Literal['relaxed', 'strict']
    schedule: Literal['1f1b', 'interleaved', 'zb-h1', 'auto']
    chunks: Union[int, Literal['auto']]
    layers: List[int]
    recompute: Literal['none', 'selective', 'full', 'auto']
    recompute_layers: List[int]


class SpecCompress(TypedDict, total=False):
    tp: Literal['none', 't8', 'r8', 'r6', 'auto']
    pp: Literal['none', 'r8', 'r4', 'auto']
    dp: Literal['none', 'sdp4bit', 'g8', 'auto']
    checkpoint: Literal['none', 'plane', 'zstd', 'lz4', 'auto']


class SpecSequence(TypedDict, total=False):
    policy: Literal['pad', 'static', 'sorted', 'pack', 'pack-lpt', 'round-robin', 'dynamic', 'skrull', 'sweep', 'chunk']
    chunk_tokens: int
    keep_chunks: int


class SpecResources(TypedDict, total=False):
    memory_mib: int
    cpus: float
    pids: int


class SpecMemory(TypedDict, total=False):
    activation_budget_mib: int
    optimizer: Literal['device', 'files']
    policy: Literal['none', 'all', 'sqrt', 'mimose']


class SpecCheckpoint(TypedDict, total=False):
    dir: str
    every_steps: Union[int, Literal['auto']]
    keep: int
    keep_every: int
    archive: Literal['none', 'plane', 'zstd', 'lz4', 'optq']
    memory_every_steps: Union[int, Literal['auto']]
    mtbf_hours: float


class SpecRetry(TypedDict, total=False):
    max: int
    user: int


class SpecLogs(TypedDict, total=False):
    max_mib: int


class SpecArray(TypedDict, total=False):
    index: str
    count: int
    max_running: int
    on_fail: Literal['continue', 'stop']
    fail_limit: int
    matrix: Dict[str, Any]
    ranges: Dict[str, Any]
    search: SpecArraySearch


class SpecArraySearch(TypedDict, total=False):
    method: Literal['grid', 'random', 'asha']
    seed: int
    metric: str
    goal: Literal['min', 'max']
    first_steps: int
    reduction: int
    rungs: int


class SpecAfterItem(TypedDict, total=False):
    job: str
    when: Literal['ok', 'ended', 'failed', 'started']


class SpecNotify(TypedDict, total=False):
    webhook: str
    on: List[str]


class SpecLimits(TypedDict, total=False):
    time_s: int
    queue_s: int
    finish_by: str
    warn_s: int
    warn_signal: Literal['none', 'SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGINT']
