"""Model folders as Hugging Face writes them, made and read without its libraries."""
import json
import os
import struct
import subprocess

import numpy as np

from tests.integration import ranks

MUSTER = os.path.join(ranks.BUILD, "bin", "muster")


def llama_config(**changes):
    c = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 48, "intermediate_size": 80,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
         "vocab_size": 101, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "hidden_act": "silu",
         "tie_word_embeddings": True, "torch_dtype": "float32"}
    return dict(c, **changes)


def gpt2_config(**changes):
    c = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 48, "n_layer": 3, "n_head": 4,
         "n_positions": 32, "vocab_size": 101, "n_inner": None, "layer_norm_epsilon": 1e-5,
         "activation_function": "gelu_new", "tie_word_embeddings": True}
    return dict(c, **changes)


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def window(c):
    uses = c.get("use_sliding_window", c["model_type"] in ("mistral", "phi3"))
    return (c.get("sliding_window") or 0) if uses else 0


def shapes(c):
    """Every tensor of a model by its Hugging Face name."""
    v = c["vocab_size"]
    if c["model_type"] == "gpt2":
        h = c["n_embd"]
        s = {"transformer.wte.weight": (v, h), "transformer.wpe.weight": (c["n_positions"], h),
             "transformer.ln_f.weight": (h,), "transformer.ln_f.bias": (h,)}
        parts = {"ln_1.weight": (h,), "ln_1.bias": (h,), "attn.c_attn.weight": (h, 3 * h), "attn.c_attn.bias": (3 * h,),
                 "attn.c_proj.weight": (h, h), "attn.c_proj.bias": (h,), "ln_2.weight": (h,), "ln_2.bias": (h,),
                 "mlp.c_fc.weight": (h, 4 * h), "mlp.c_fc.bias": (4 * h,), "mlp.c_proj.weight": (4 * h, h),
                 "mlp.c_proj.bias": (h,)}
        for i in range(c["n_layer"]):
            s.update({"transformer.h.%d.%s" % (i, k): x for k, x in parts.items()})
        return s
    h, f, dim = c["hidden_size"], c["intermediate_size"], head_dim(c)
    q, kv = dim * c["num_attention_heads"], dim * c["num_key_value_heads"]
    s = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,)}
    parts = {"input_layernorm.weight": (h,), "self_attn.q_proj.weight": (q, h), "self_attn.k_proj.weight": (kv, h),
             "self_attn.v_proj.weight": (kv, h), "self_attn.o_proj.weight": (h, q),
             "post_attention_layernorm.weight": (h,), "mlp.gate_proj.weight": (f, h), "mlp.up_proj.weight": (f, h),
             "mlp.down_proj.weight": (h, f)}
    if c["model_type"] == "phi3":
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
            del parts[name + ".weight"]
        parts.update({"self_attn.qkv_proj.weight": (q + 2 * kv, h), "mlp.gate_up_proj.weight": (2 * f, h)})
    if c["model_type"] == "qwen3":
        parts.update({"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)})
    if c["model_type"] == "qwen2":
        parts.update({"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)})
    for i in range(c["num_hidden_layers"]):
        s.update({"model.layers.%d.%s" % (i, k): x for k, x in parts.items()})
    if not c["tie_word_embeddings"]:
        s["lm_head.weight"] = (v, h)
    return s


def fresh_weights(c, seed, std=0.08):
    """Tensors by name; biases and norms off their usual start so that they matter."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes(c).items():
        x = (rng.standard_normal(shape) * std).astype(np.float32)
        out[name] = 1 + x if ("norm" in name or "ln_" in name) and name.endswith("weight") else x
    return out


def spec_model(c):
    """The sizes of a model as a spec has them; what is open there comes from config.json."""
    if c["model_type"] == "gpt2":
        return {"family": "gpt2", "layers": c["n_layer"], "hidden": c["n_embd"], "heads": c["n_head"],
                "context": c["n_positions"], "vocab": c["vocab_size"]}
    return {"family": "llama", "layers": c["num_hidden_layers"], "hidden": c["hidden_size"],
            "heads": c["num_attention_heads"], "kv_heads": c["num_key_value_heads"], "ffn": c["intermediate_size"],
            "context": c["max_position_embeddings"], "vocab": c["vocab_size"],
            "tie_embeddings": c["tie_word_embeddings"], "qkv_bias": c["model_type"] == "qwen2",
            "qk_norm": c["model_type"] == "qwen3", "fused": c["model_type"] == "phi3", "window": window(c)}


def to_bf16(x):
    """The upper halves of floats, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def to_type(x, dtype):
    return to_bf16(x) if dtype == "BF16" else x.astype({"F32": np.float32, "F16": np.float16}[dtype])


def write_raw(path, tensors, order=None, padding=0):
    """{name: (dtype, shape, bytes)} as a safetensors file: its bytes in some order, spaces behind its header."""
    at, places = 0, {}
    for name in order or tensors:
        places[name] = [at, at + len(tensors[name][2])]
        at = places[name][1]
    header = {n: {"dtype": d, "shape": list(s), "data_offsets": places[n]} for n, (d, s, _) in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    text += b" " * (padding or -len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors[n][2] for n in places))


def write_file(path, tensors, dtype="F32"):
    write_raw(path, {n: (dtype, t.shape, to_type(t, dtype).tobytes()) for n, t in tensors.items()})


def write_folder(folder, c, tensors, dtype="F32", shards=1):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f)
    if shards == 1:
        write_file(os.path.join(folder, "model.safetensors"), tensors, dtype)
        return folder
    names, where = sorted(tensors), {}
    for i in range(shards):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, shards)
        mine = names[i::shards]
        write_file(os.path.join(folder, file), {n: tensors[n] for n in mine}, dtype)
        where.update({n: file for n in mine})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}, f)
    return folder


def read_raw(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], tuple(v["shape"]), data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items()}


def read_all(folder):
    """As read_raw of a folder's one file, or of the files that its index names."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_raw(os.path.join(folder, "model.safetensors"))
    with open(index) as f:
        index = json.load(f)
    out = {}
    for file in sorted(set(index["weight_map"].values())):
        got = read_raw(os.path.join(folder, file))
        assert set(got) == {n for n, f in index["weight_map"].items() if f == file}
        out |= got
    assert index["metadata"]["total_size"] == sum(len(raw) for _, _, raw in out.values())
    return out


def read_folder(folder):
    out = {}
    for name, (dtype, shape, raw) in read_raw(os.path.join(folder, "model.safetensors")).items():
        x = from_bf16(np.frombuffer(raw, np.uint16)) if dtype == "BF16" else np.frombuffer(raw, np.float32)
        out[name] = x.reshape(shape)
    return out


def export(run, folder, dtype="f32"):
    """The newest checkpoint of a run as a folder."""
    step = os.path.join(run.job, "checkpoints", "step-%08d" % run.checkpoints()[-1])
    subprocess.run([MUSTER, "checkpoint", "export", step, folder, "--dtype", dtype], check=True,
                   stdout=subprocess.DEVNULL)
    return folder
