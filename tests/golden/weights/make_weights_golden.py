"""Writes the golden files of src/weights: run `python3 make_weights_golden.py` beside them.

Needs numpy and the PyPI packages gguf (0.19.0) and safetensors (0.8.0).

dequantize.safetensors  per block type: random blocks (bytes) and their values by gguf's numpy code
writer.gguf             every metadata type and a few tensors, written by gguf's own writer
writer.safetensors      a few dtypes, written by the safetensors library
"""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
# Where the half-precision scales of a block lie; everything else may be any byte.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0], "MXFP4": [],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def random_blocks(rng, name, count):
    quant = gguf.GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[quant]
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for offset in HALVES[name]:
        scales = rng.normal(0, 0.1, count).astype(np.float16)
        blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 120, 127, 131, 250][:count]  # 255 is NaN
    return blocks


def dequantize_cases():
    rng = np.random.default_rng(20)
    tensors = {}
    for name in HALVES:
        blocks = random_blocks(rng, name, 2 if name.endswith("_K") else 6)
        values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
        tensors[f"{name}.blocks"] = blocks
        tensors[f"{name}.values"] = np.ascontiguousarray(values, dtype=np.float32)
    save_file(tensors, HERE / "dequantize.safetensors")


def writer_gguf():
    writer = gguf.GGUFWriter(HERE / "writer.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4000000000)
    writer.add_int32("i32", -2000000000)
    writer.add_uint64("u64", 1 << 40)
    writer.add_int64("i64", -(1 << 40))
    writer.add_float32("f32", 0.15625)
    writer.add_float64("f64", 1e-5)
    writer.add_bool("yes", True)
    writer.add_string("text", "はやて")
    writer.add_array("strings", ["a", "", "ccc"])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_tensor("matrix", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("halves", np.array([1, 2, 4], dtype=np.float16))
    q8 = gguf.quants.quantize(np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64),
                              gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quants", q8, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def writer_safetensors():
    save_file({
        "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
        "halves": np.array([1, 2, 4], dtype=np.float16),
        "ids": np.array([1 << 40, -1], dtype=np.int64),
        "flags": np.array([True, False]),
        "scalar": np.array(2.5, dtype=np.float32),
        "empty": np.zeros(0, dtype=np.float32),
    }, HERE / "writer.safetensors", metadata={"format": "np"})


dequantize_cases()
writer_gguf()
writer_safetensors()
