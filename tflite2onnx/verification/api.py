"""Compare a converted model with its original: ONNX Runtime and LiteRT run on the same inputs.

docs/verification.md says what is run and compared. LiteRT runs its plain kernels, which define the
semantics of the operators. LiteRT's kernels differ from each other. Its plain kernels round a
product of integers twice, its reference kernels and XNNPACK once. Each kind rounds the activations
of a "dynamic range" network at run time in another way; the ONNX model rounds like XNNPACK. A
tensor of the network that exceeds its limit is accepted if its difference is comparable to the
differences between these kernels on the same inputs (`Difference.allow_kernel_noise`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from numbers import Integral
from typing import Any

from tflite2onnx.builder.builder import Port
from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.graph import Graph
from tflite2onnx.passes.batch.resize_batch import Batch
from tflite2onnx.passes.dynamic_shapes import infer_shapes
from tflite2onnx.passes.inline_subgraphs import runs_graphs
from tflite2onnx.passes.patterns.repair_attention import has_wrong_attention
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource
from tflite2onnx.signatures import find_signature
from tflite2onnx.storage_table import describe_operator
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.suggestions import join_alternatives
from tflite2onnx.verification.entry_point import (
    cut_entry_point,
    embed_external_weights,
    move_signature_first,
    replace_misread_constants,
    resize_entry_point,
)
from tflite2onnx.verification.given_inputs import GivenArray, GivenInputs, open_inputs
from tflite2onnx.verification.images import find_image_input
from tflite2onnx.verification.inner_tensors import InnerTensors, TensorPlace, match_places
from tflite2onnx.verification.inputs import Detail, RandomKind, Samples, draw_inputs
from tflite2onnx.verification.kernels.isolated import IsolatedRuntime
from tflite2onnx.verification.kernels.other_kernels import OperatorKernels
from tflite2onnx.verification.latency import measure_latency
from tflite2onnx.verification.onnx_model import (
    ConvertedModel,
    OpenedModel,
    list_other_sizes,
    list_sample_shapes,
    locate_tensors,
    open_model,
    resize_endpoints,
)
from tflite2onnx.verification.results import Report, SizeComparison
from tflite2onnx.verification.runner import Found, NothingShownError, Progress, Run
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    PLAIN_KERNELS,
    BatchInterpreter,
    LiteRTError,
    ModelFile,
    make_session,
    open_interpreter,
)
from tflite2onnx.verification.tolerance import Difference
from tflite2onnx.writer import Skeleton

SAMPLES = 2
OTHER_SIZES = 2  # the number of further sizes of dynamic axes


def verify(  # noqa: PLR0913 - options
    model: AnySource,
    converted: ConvertedModel | None = None,
    *,
    signature: str | None = None,
    inputs: Mapping[str, GivenArray] | None = None,
    images: Sequence[str | os.PathLike[str]] = (),
    seed: int = 0,
    samples: int | None = None,
    tolerance: float | None = None,
    tensors: bool = True,
    per_operator: bool = False,
    latency: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run both models on the same inputs; compare their outputs and the tensors between operators.

    Args:
        model: the TFLite model, as a path or as the bytes of its file.
        converted: the result of `convert`, or the ONNX model (a path, the bytes of the file, a
            ModelProto), whose metadata contain the layouts of its inputs and outputs. If None, the
            model is converted first.
        signature: the signature to convert if `converted` is None; otherwise a signature that the
            converted model must have. None means any.
        inputs: arrays for inputs of the TFLite model, by name, in TFLite's layout and element
            type; all other inputs are random. An array is one sample or a batch of samples. The
            path of a .npy file, of a .npz file with one array or an array of the input's name, or
            of a folder of these files stands for its arrays.
        images: pictures (PNG, JPEG) or folders of pictures; each picture is a sample of the image
            input. Pictures are resized, and normalised according to the model's metadata. The
            package Pillow is needed.
        seed: the seed of the random numbers, 0 or more.
        samples: the number of runs, 1 or more; None means one run per sample of `inputs` and
            `images`, or two runs if there are none.
        tolerance: the allowed difference of floats, as a fraction of the range of their tensor,
            above 0. None means 1e-4; for a model of half precision 1e-2, or 30 dB of signal to
            noise.
        tensors: compare the tensors between the operators as well.
        per_operator: run each operator on LiteRT's own inputs even if no element exceeds its limit.
        latency: measure the time of an inference in both runtimes, too.
        progress: a callback that gets the number of tensors compared so far, and the total.

    Raises:
        VerifyError: a runtime is not installed or cannot run its model, or inputs do not match the
            model.
        ConversionError: the model cannot be converted.
    """
    _check_numbers(SAMPLES if samples is None else samples, seed, tolerance)
    _check_data(inputs, images)
    converted = convert(model, signature=signature) if converted is None else converted
    opened = open_model(converted)
    _check_signature(signature, opened, model)
    model = embed_external_weights(model)
    models = _split_signatures(opened, model) if not inputs and not images else [opened]

    def make_report(opened: OpenedModel, isolated: IsolatedRuntime) -> Report:
        comparison = _ModelPair(
            model, converted, opened, tolerance, progress or (lambda *_: None), isolated
        )
        comparison.check_endpoints()
        given_inputs = comparison.open_inputs(inputs or {}, images)
        count = given_inputs.count or SAMPLES if samples is None else samples
        # The tensors between the operators have the names of the first signature.
        modes = ([False] * tensors + [True] * per_operator) if opened is models[0] else []
        arrays, report, kind = comparison.report_varying_outputs(seed, count, given_inputs, modes)
        random = f" ({kind.value})" if kind.value else ""
        names = tuple(
            given_inputs.describe_origin(i) or f"seed {seed + i}{random}" for i in range(count)
        )
        sizes = None if given_inputs.count else _compare_other_sizes(comparison, opened, seed, kind)
        report = replace(report, sample_names=names, other_sizes=sizes)
        if report.ok:
            return report
        return replace(report, right_unoptimized=comparison.is_right_unoptimized(arrays, report))

    with closing(IsolatedRuntime()) as isolated:
        measured = measure_latency(model, converted, isolated, seed) if latency else None
        reports = [make_report(opened, isolated) for opened in models]
    worst = next((report for report in reports if not report.ok), reports[0])
    return replace(worst, latency=measured)


def _check_signature(signature: str | None, opened: OpenedModel, model: AnySource) -> None:
    """Raise OptionError if the converted model is that of other signatures."""
    if signature is None or signature in opened.signatures:
        return
    find_signature(read_model(model), signature)
    known = join_alternatives([*opened.signatures]) if opened.signatures else "None"
    raise OptionError(
        f"`signature` must be {known}, which the converted model has, got {signature}"
    )


def _split_signatures(opened: OpenedModel, model: ModelFile) -> list[OpenedModel]:
    """Return the model once for each sub-graph of the file that it computes.

    Several signatures that differ in a length may be one ONNX model (`--lengths joined`).
    """
    if len(opened.signatures) <= 1:
        return [opened]
    source, indices, parts = read_model(model), set[int](), []
    for key, names in opened.signatures.items():
        index, _ = find_signature(source, key)
        if index not in indices:
            indices.add(index)
            tensors = source.graphs[index].inputs
            inputs = [
                replace(e, tflite_shape=tensor.shape)
                for e, tensor in zip(opened.inputs, tensors, strict=True)
            ]
            parts.append(opened._replace(signatures={key: names}, inputs=inputs, joined=True))
    return parts if len(parts) > 1 else [opened]


def _check_numbers(samples: object, seed: object, tolerance: float | None) -> None:
    for option, least, number in (("samples", 1, samples), ("seed", 0, seed)):
        if not isinstance(number, Integral) or number < least:
            raise OptionError(
                f"`{option}` must be a whole number of at least {least}, got {number!r}"
            )
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise OptionError(f"`tolerance` must be a finite number above 0, got {tolerance:g}")
    if tolerance is not None and tolerance > 1:
        raise OptionError(f"`tolerance` must be at most 1, the whole range, got {tolerance:g}")


def _check_data(inputs: object, images: object) -> None:
    if not isinstance(inputs, Mapping | None):
        raise OptionError(
            f'`inputs` must be a mapping such as {{"input": array}}, got {type(inputs).__name__}'
        )
    if isinstance(images, str) or not isinstance(images, Sequence):
        raise OptionError(f"`images` must be a list of paths, got {images!r}")


def _compare_other_sizes(
    pair: _ModelPair, opened: OpenedModel, seed: int, kind: RandomKind
) -> tuple[SizeComparison, ...] | None:
    """Compare the outputs at the first two sizes of the dynamic axes that LiteRT runs."""
    compared: list[SizeComparison] = []
    sizes = None
    for sizes in list_other_sizes(
        opened if opened.options.batch is None else opened.with_samples()
    ):
        try:
            outputs = pair.resize(resize_endpoints(opened, sizes)).compare_outputs(seed, kind)
        except LiteRTError:
            continue
        except VerifyError as error:
            raise VerifyError(f"with the sizes {SizeComparison(sizes, ())}: {error}") from error
        compared.append(SizeComparison(sizes, outputs))
        if len(compared) == OTHER_SIZES:
            break
    return None if sizes is None else tuple(compared)


class _ModelPair:
    """The two models, and the options of their comparison."""

    def __init__(
        self,
        model: ModelFile,
        converted: ConvertedModel,
        opened: OpenedModel,
        tolerance: float | None,
        progress: Progress,
        isolated: IsolatedRuntime,
        *,
        optimize: bool = True,
    ) -> None:
        self._source, self._whole = model, move_signature_first(model, opened.signature)
        self._model = cut_entry_point(self._whole, opened.part)
        self._model, self._misread = replace_misread_constants(self._model)
        # LiteRT may be unable to allocate tensors of the sizes in the file.
        source = read_model(self._model)
        declared_shapes = [tensor.shape for tensor in source.graphs[0].inputs]
        shapes = [e.tflite_shape for e in opened.inputs]
        if opened.options.batch is not None:
            shapes = list_sample_shapes(opened.inputs, [*map(len, declared_shapes)])
            opened = opened.with_samples()
        self._is_resized = declared_shapes != shapes
        if self._is_resized:
            self._model = resize_entry_point(self._model, shapes)
        self._converted, self._opened, self._isolated = converted, opened, isolated
        # The default delegate alone computes attention as it is meant (`repair_attention`).
        is_wrong = has_wrong_attention(source)
        self._kernels = FASTEST_KERNELS if is_wrong else PLAIN_KERNELS
        # This interpreter describes the inputs and outputs. It never runs.
        try:
            self._interpreter = self._open()
        except LiteRTError as error:  # Some operators and types have kernels in the delegate only.
            self._kernels = FASTEST_KERNELS
            try:
                self._interpreter = self._open()
            except LiteRTError:
                raise error from None
        self._tolerance, self._progress = tolerance, progress
        self._optimize = optimize

    def _open(self, kernels: str = "", *, inner: bool = False) -> Any:
        """Return a LiteRT interpreter, for the batch if the model is converted for a batch.

        Kernels other than those that define the comparison run in a process of their own.
        """
        kernels, inner = kernels or self._kernels, inner and self._kernels == PLAIN_KERNELS
        run = open_interpreter if kernels == self._kernels else self._isolated.open
        batch = self._opened.options.batch
        if batch is None:
            return run(self._model, kernels, inner=inner)
        endpoints, loops = (self._opened.inputs, self._opened.outputs), Batch.from_text(batch).loops
        interpreters = [run(self._model, kernels, inner=inner) for _ in range(self._opened.samples)]
        return BatchInterpreter(interpreters, *endpoints, loops=loops)

    def resize(self, opened: OpenedModel) -> _ModelPair:
        """Return the same models with inputs of other sizes."""
        return _ModelPair(
            self._source, self._converted, opened, self._tolerance, lambda *_: None, self._isolated
        )

    def compare_outputs(self, seed: int, kind: RandomKind) -> tuple[Difference, ...]:
        arrays = self.make_samples(seed, 1, GivenInputs({}), kind)
        run, (outputs, _) = self._compare_samples(arrays, ())
        run.select_nearest_kernels(arrays, outputs)
        run.allow_kernel_differences(arrays, (), outputs, {})
        return tuple(outputs.values())

    def check_endpoints(self) -> None:
        """Raise VerifyError if the inputs or outputs of the two models do not match."""
        details = self._interpreter.get_input_details()
        shapes = [tuple(map(int, detail["shape"])) for detail in details]
        count, opened = len(self._interpreter.get_output_details()), self._opened
        if shapes != [e.tflite_shape for e in opened.inputs] or count != len(opened.outputs):
            raise VerifyError(
                "the ONNX model must be converted from this TFLite model, but its inputs or outputs"
                " differ"
            )

    def open_inputs(
        self, inputs: Mapping[str, GivenArray], images: Sequence[str | os.PathLike[str]]
    ) -> GivenInputs:
        """Return the samples of the user's arrays and pictures."""
        details = self._interpreter.get_input_details()
        named = self._rename_inputs(inputs, details)
        return open_inputs(named, images, details, lambda: find_image_input(self._whole, details))

    def _rename_inputs(
        self, inputs: Mapping[str, GivenArray], details: Sequence[Detail]
    ) -> dict[str, GivenArray]:
        """Return arrays by the names of tensors; signatures and the ONNX model have other names."""
        names = [detail["name"] for detail in details]
        of_onnx = {e.name: name for e, name in zip(self._opened.inputs, names, strict=True)}
        aliases = {
            name: of_onnx.get(in_onnx, name)
            for called in self._opened.signatures.values()
            for name, in_onnx in called.get("inputs", {}).items()
        }
        known = aliases | of_onnx | {name: name for name in names}
        named: dict[str, GivenArray] = {}
        for name, array in inputs.items():
            if known.get(name, name) in named:
                raise OptionError(
                    f"the input {known[name]} must be given once, got the name {name} for it, too"
                )
            named[known.get(name, name)] = array
        return named

    def make_samples(
        self, seed: int, count: int, given: GivenInputs, kind: RandomKind = RandomKind.NORMAL
    ) -> Samples:
        """Return the inputs of `count` runs; see `draw_inputs`."""
        return Samples(
            lambda i: draw_inputs(self._interpreter, seed + i, given.read_arrays(i), kind), count
        )

    def report_varying_outputs(
        self, seed: int, count: int, given: GivenInputs, modes: Sequence[bool]
    ) -> tuple[Samples, Report, RandomKind]:
        """Compare both models on random numbers for which all outputs of LiteRT vary.

        If no kind of random numbers has this property, the first kind that LiteRT accepts is used.
        """
        refused: dict[RandomKind, VerifyError] = {}
        is_random = len(given.names) < len(self._opened.inputs)
        for must_show in (True, False):
            for kind in (kind for kind in RandomKind if kind not in refused):
                arrays = self.make_samples(seed, count, given, kind)
                show = must_show and is_random
                try:
                    return arrays, self.report(arrays, seed, modes, must_show=show), kind
                except NothingShownError:
                    continue
                except VerifyError as error:
                    if given.count:
                        raise
                    refused[kind] = error
        raise refused[RandomKind.UNIT]

    def report(
        self, arrays: Samples, seed: int, modes: Sequence[bool], *, must_show: bool = False
    ) -> Report:
        """Compare both models; if an element exceeds its limit, also run each operator alone.

        `modes` are the modes in which tensors between operators are compared: True runs each
        operator alone, on LiteRT's own inputs; False runs the whole network. With `must_show`, see
        `Run.compare_samples`.
        """
        run, (outputs, inner) = self._compare_samples(arrays, modes, must_show=must_show)
        differences = [c.difference for comparison in inner.values() for c in comparison.values()]
        if True not in modes and not all(
            comparison.is_within for comparison in (*outputs.values(), *differences)
        ):
            inner |= self._compare_samples(arrays, [True])[1][1]
        chain = inner.get(False, {})
        run.select_nearest_kernels(arrays, outputs)
        run.allow_kernel_differences(arrays, self._places if chain else (), outputs, chain)
        graph = self._graph
        compared = [c for comparison in inner.values() for c in comparison.values()]
        names = {c.name for c in compared if not c.difference.ok}
        storage = {name: describe_operator(self._skeleton.plan, name) for name in names}
        return Report(
            tuple(outputs.values()),
            len(arrays),
            seed,
            tuple(chain.values()),
            tuple(inner.get(True, {}).values()),
            tuple(op.code for op in graph.ops if runs_graphs(op)),
            tuple(tensor.name for tensor in graph.outputs),
            storage=storage,
            kernels=self._kernels,
            misread=self._misread,
        )

    def is_right_unoptimized(self, arrays: Samples, report: Report) -> bool:
        """Return whether the verification succeeds with ONNX Runtime's optimizations disabled."""
        try:
            other = _ModelPair(
                self._source,
                self._converted,
                open_model(self._converted, partial(make_session, optimize=False)),
                self._tolerance,
                lambda *_: None,
                self._isolated,
                optimize=False,
            )
            return other.report(arrays, report.seed, [True] if report.operators else []).ok
        except VerifyError:  # ONNX Runtime has no kernel for a node
            return False

    def _compare_samples(
        self, arrays: Samples, modes: Sequence[bool], *, must_show: bool = False
    ) -> tuple[Run, Found]:
        interpreter = self._open(inner=bool(modes))
        operators = OperatorKernels(self._model, self._isolated)
        run = Run(self._open, interpreter, self._opened, self._tolerance, self._progress, operators)
        walks = [
            InnerTensors(self._skeleton, self._places, alone=mode, optimize=self._optimize)
            for mode in modes
            if self._places
        ]
        return run, run.compare_samples(arrays, walks, must_show=must_show)

    @cached_property
    def _sample_graph(self) -> Graph:
        graph = read_model(self._model).graphs[0]
        return infer_shapes(graph) if self._is_resized else graph

    @cached_property
    def _graph(self) -> Graph:
        opened, graph = self._opened, self._sample_graph
        return _put_batch_first(graph, opened.options.batch) if opened.samples else graph

    @cached_property
    def _skeleton(self) -> Skeleton:
        return locate_tensors(self._source, self._converted, self._opened)

    @cached_property
    def _places(self) -> list[TensorPlace]:
        if self._kernels != PLAIN_KERNELS:  # The delegate keeps no tensors between its operators.
            return []
        batch = self._opened.options.batch
        # LiteRT computes each sample alone. Only tensors whose first axis is the batch are
        # compared. A tensor that is the same for all samples may have a first axis of this size,
        # too.
        tensors = (t for op in self._sample_graph.ops for t in op.outputs)
        names = {t.name for t in tensors if t.shape[:1] == (1,)}

        def has_samples(tensor: Tensor, port: Port) -> bool:
            has_shape = tensor.name in names and port.tensor.shape == tensor.shape
            return batch is None or (has_shape and port.tensor.sizes[:1] == (batch,))

        graphs = read_model(self._model).graphs
        return match_places(self._graph, self._skeleton, has_samples, graphs)


def _put_batch_first(graph: Graph, batch: int | str | None) -> Graph:
    """Return a graph for one sample whose tensors have the shapes of a batch of fixed size."""
    size = batch if isinstance(batch, int) else 1
    tensors = (t for op in graph.ops for t in op.outputs if t.shape[:1] == (1,))
    return graph.replace_tensors({t: replace(t, shape=(size, *t.shape[1:])) for t in tensors})
