"""Conversion of bundles: several models, and each signature of a model, to files in one folder."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from tflite2onnx.errors import BundleError, ConversionError, OptionError, OutputError, PictureError
from tflite2onnx.options import ConversionOptions
from tflite2onnx.reader.containers.bundle import Bundle, find_name, is_bundle, read_bundle
from tflite2onnx.reader.model import list_entry_points, read_entry_point, read_model
from tflite2onnx.reader.source import AnySource, open_source
from tflite2onnx.replaced_files import (
    MANIFEST,
    digest_models,
    list_manifests,
    place_manifest,
)
from tflite2onnx.result import Result
from tflite2onnx.stages import convert_read_model
from tflite2onnx.targets.table import find_options, has_part, import_part
from tflite2onnx.utils.atomic_files import explain_failure, replace_all_atomically, resolve_path
from tflite2onnx.utils.mapped_files import release_memory, write_pieces
from tflite2onnx.utils.unique_names import Names
from tflite2onnx.writer import write_folder

__all__ = [
    "ALL_SIGNATURES",
    "MANIFEST",
    "Bundle",
    "Part",
    "convert_bundle",
    "convert_models",
    "is_bundle",
    "joins_lengths",
    "keep_possible_names",
    "list_parts",
    "make_bundle",
    "read_bundle",
    "write_models",
]

if TYPE_CHECKING:
    from tflite2onnx.bundle.lengths import JoinedGraph
    from tflite2onnx.targets.prepared import PreparedModel

_logger = logging.getLogger(__name__)

ALL_SIGNATURES = "all"
_FIRST_OPSET = 13  # the first opset that has all nodes for dynamic sizes


class BundlePart(NamedTuple):
    """A model, or a signature of a model, that becomes one file."""

    model: str
    signature: str | None
    file: str
    prepared: PreparedModel | None = None  # The form that the target's runtime loads.
    # Several signatures in one graph; `signature` is the first of them.
    joined: JoinedGraph | None = None

    @property
    def label(self) -> str:
        name = self.signature if self.joined is None else self.joined.name
        return f"{self.model} ({name})" if self.model and name else self.model or name or ""


def make_bundle(source: AnySource) -> Bundle:
    """Return a bundle of one model, which has signatures and no name.

    Raises:
        ModelFileError: the model cannot be read.
        OptionError: the model has no signatures.
    """
    opened = open_source(source)
    if not list_entry_points(opened):
        raise OptionError("the model has no signatures")
    return Bundle({"": opened}, name=find_name(source))


def convert_bundle(
    source: str | os.PathLike[str] | bytes | Bundle,
    folder: str | os.PathLike[str],
    *,
    external_data: int | None = None,
    **options: Any,  # noqa: ANN401 - those of `convert`
) -> dict[str, Result]:
    """Convert every model of a bundle and write them to a folder, all of them or none.

    A model keeps its name, with the suffix .onnx; bundles in the bundle become folders. Each
    signature of a model with several signatures becomes a file. All large weights, and weights that
    several files have, are stored once in `weights.data`. `manifest.json` describes the inputs and
    outputs of each file. Tokenizers and metadata of language models are written as well. The
    manifest lists all other files of the bundle, which are not written.

    Args:
        source: the path of the bundle, its bytes, or the result of `read_bundle`.
        folder: the folder to write to; it is created if it does not exist.
        external_data: as in `convert`.
        options: the options of `convert` for each model, without `layouts`. With `signature`, only
            this signature of each model is converted.

    Returns:
        The result of each conversion by the path of the model in the bundle, followed by the
        signature in parentheses if the model has several.

    Raises:
        ConversionError: the bundle cannot be read, models cannot be converted (the error names all
            of them), or the folder cannot be written to.
    """
    bundle = source if isinstance(source, Bundle) else read_bundle(source)
    joins = joins_lengths(bundle, options)
    parts = list_parts(bundle, options.get("signature"), options.get("target"), joins=joins)
    results = convert_models(bundle, parts, **options)
    write_models(bundle, parts, results, folder, external_data)
    return results


def convert_models(
    bundle: Bundle,
    parts: Sequence[BundlePart],
    *,
    details: bool = True,
    **options: Any,  # noqa: ANN401 - as above
) -> dict[str, Result]:
    """Return the conversion of every part of a bundle (`list_parts`).

    Without `details`, which verification and reports read, results take less memory.

    Signatures of a single model are independent: a model that is trained on a device has signatures
    for its training beside the one that applies it. Those that cannot be converted are logged as
    errors and have no result. The models of a bundle belong together: all must be converted.

    Raises:
        BundleError: models of a bundle, or all signatures, cannot be converted (the error names all
            of them).
    """
    base = ConversionOptions(**{key: value for key, value in options.items() if value is not None})
    base = replace(base, lengths="auto")  # `list_parts` has applied the option already
    results: dict[str, Result] = {}
    problems = []
    for part in parts:
        try:
            origin = bundle.models[part.model]
            result = _convert_part(part, origin, base)
            results[part.label] = result if details else result.drop_details()
            del result  # the next conversion needs the memory of the details
            release_memory(origin.data)
        except ConversionError as error:
            problems.append(f"{part.label}: {error}")
    if problems and (any(bundle.models) or not results):
        raise BundleError("\n".join(problems))
    for problem in problems:
        _logger.error("%s", problem)
    return results


def _convert_part(part: BundlePart, origin: AnySource, options: ConversionOptions) -> Result:
    prepared = part.prepared or part.joined
    if prepared is None:
        return _convert_signature(part, origin, replace(options, signature=part.signature))
    final = replace(options, **prepared.options)
    if part.joined is not None and options.names == "signature":
        final = replace(final, rename={})
    return convert_read_model(lambda: prepared.model, origin, final)


def _convert_signature(part: BundlePart, origin: AnySource, options: ConversionOptions) -> Result:
    """Convert one of several models; `preprocess` is ignored for models that take no picture."""
    options = keep_possible_names(part.label, origin, options)
    try:
        read = partial(read_entry_point, origin, part.signature)
        return convert_read_model(read, origin, options)
    except PictureError as error:
        _logger.warning("%s is converted without `%s`; %s", part.label, error.option, error)
        first = error.option == "preprocess"
        reduced = (
            replace(options, preprocess=False) if first else replace(options, postprocess=False)
        )
        return _convert_signature(part, origin, reduced)


def keep_possible_names(
    name: str, source: AnySource, options: ConversionOptions
) -> ConversionOptions:
    """Return the options of one of several models; without signatures, tensors give the names."""
    if options.names != "signature" or options.signature is not None:
        return options
    if 0 in list_entry_points(source).values():
        return options
    _logger.warning(
        "%s has no signature: its inputs and outputs get the names of its tensors", name
    )
    return replace(options, names="tensor")


def joins_lengths(bundle: Bundle, options: Mapping[str, Any]) -> bool:
    """Return whether the options join signatures that differ in a length only."""
    chosen = {"lengths": "auto", **{key: choice for key, choice in options.items() if choice}}
    if chosen["lengths"] != "auto":
        return bool(chosen["lengths"] == "joined")
    target = find_options(chosen.get("target", ConversionOptions.target))
    is_fixed = chosen.get("static") or target.get("static")
    is_old = chosen.get("opset", _FIRST_OPSET) < _FIRST_OPSET
    return any(bundle.models) and not (is_fixed or is_old or chosen.get("batch"))


def list_parts(
    bundle: Bundle, signature: str | None = None, target: str | None = None, *, joins: bool = False
) -> list[BundlePart]:
    """Return the parts of a bundle: each signature of a model, or its main graph.

    `signature` chooses one signature of each model; None and "all" mean all of them. If the runtime
    of the target loads a folder, one part may stand for several models. If `joins` is set,
    signatures that differ in a length only become one part.

    Raises:
        BundleError: two parts would become one file, or the target needs another bundle.
    """
    parts: list[BundlePart] = []
    taken: Collection[str] = ()
    if target is not None and has_part(target, "bundles"):
        prepared: PreparedModel = import_part(target, "bundles").prepare_model(bundle)
        parts.append(BundlePart(prepared.name, prepared.signature, prepared.file, prepared))
        taken = prepared.replaced
    for name, source in bundle.models.items():
        if name in taken:
            continue
        if signature not in (None, ALL_SIGNATURES):
            parts.append(BundlePart(name, signature, _make_file_path(name)))
            continue
        keys = _list_signatures(source, of_different_graphs=bool(name))
        if name and len(keys) < 2:
            parts.append(BundlePart(name, None, _make_file_path(name)))
            continue
        joined: Sequence[JoinedGraph] = ()
        if joins:
            from tflite2onnx.bundle.lengths import join_lengths  # noqa: PLC0415 - slow to import

            joined = join_lengths(read_model(source))
        parts += _list_files(name, keys, joined)
    files = [part.file for part in parts]
    repeated = next((file for file in files if files.count(file) > 1), None)
    if repeated is not None:
        raise BundleError(
            f"the models of the bundle must have different output files, got {repeated} twice"
        )
    return parts


def _list_files(
    model: str, keys: Sequence[str], joined: Sequence[JoinedGraph]
) -> Iterator[BundlePart]:
    """Yield the parts of signatures; several signatures may be joined to one part."""
    make_unique, known = Names().make_unique, {key: joint for joint in joined for key in joint.keys}
    for key in keys:
        joint = known.get(key)
        if joint is None or key == joint.keys[0]:
            name = _clean_key(key if joint is None else joint.name)
            yield BundlePart(model, key, _make_file_path(model, make_unique(name)), joined=joint)


def _list_signatures(source: AnySource, *, of_different_graphs: bool) -> list[str]:
    """Return the signatures of a model: all, or the first signature of each graph."""
    try:
        found = list_entry_points(source)
    except ConversionError:  # the conversion of the model reports the error
        return []
    graphs = {graph: key for key, graph in reversed(found.items())}
    return [key for key in found if not of_different_graphs or key in graphs.values()]


def _make_file_path(name: str, signature: str = "") -> str:
    *folders, last = PurePosixPath(name).parts or ("",)
    folders = [folder.removesuffix(".task") for folder in folders]
    stem = "_".join(filter(None, (last.removesuffix(".tflite"), signature)))
    return "/".join([*folders, f"{stem}.onnx"])


def _clean_key(key: str) -> str:
    """Return a signature's key as a file name, in lower case, as some file systems ignore case."""
    return re.sub(r"[^\w.-]", "_", key).lstrip(".").lower() or "signature"


def write_models(
    bundle: Bundle, parts: Sequence[BundlePart], results: Mapping[str, Result],
    folder: str | os.PathLike[str], external_data: int | None = None,
) -> str:  # fmt: skip
    """Write the converted parts of a bundle and a manifest to a folder, all files or none.

    If the folder has the manifest of another bundle, the name of the bundle is put in front of the
    manifest's name, which is returned.

    Raises:
        OutputError: the folder cannot be written to.
    """
    files = dict(bundle.files)
    for part in parts:
        if part.prepared is not None:
            files |= part.prepared.list_files(bundle)
    manifest = {
        **bundle.description,
        "source": digest_models(bundle.models),
        "models": [_describe_part(part, results[part.label]) for part in parts],
        "files": list(files),
        "other_files": bundle.others,
    }
    placed = {part.file: results[part.label] for part in parts}
    return _write_files(Path(folder), placed, manifest, files, external_data, bundle.name)


def _describe_part(part: BundlePart, result: Result) -> dict[str, Any]:
    """Return the entry of a part in the manifest: its path, and its metadata in ONNX."""
    properties = result.skeleton.properties
    metadata = {key.partition(".")[2]: json.loads(value) for key, value in properties.items()}
    entry = {"signature": part.signature} if part.signature else {}
    return {"name": part.model, **entry, "file": part.file, "opset": result.opset, **metadata}


def _write_files(
    folder: Path, results: Mapping[str, Result], manifest: Mapping[str, Any],
    files: Mapping[str, memoryview], external_data: int | None, name: str,
) -> str:  # fmt: skip
    """Write all files, or none if one of them cannot be written; return the manifest's name."""
    try:
        models = {_resolve_file(folder, file): each.skeleton for file, each in results.items()}
        others = {_resolve_file(folder, file): data for file, data in files.items()}
        known = list_manifests([*models, *others])
        first = _resolve_file(folder, MANIFEST)
        place, content = place_manifest(first, known, manifest, {*models, *others}, name)
        with replace_all_atomically(folders=True) as create:
            create(place).write(json.dumps(content, indent=2).encode() + b"\n")
            for path, data in others.items():
                write_pieces(create(path), data)
            write_folder(models, create, external_data, name)
    except (OSError, ValueError) as error:
        reason = explain_failure(folder / MANIFEST, error)
        raise OutputError(f"cannot write to {folder}: {reason}") from error
    return place.name


def _resolve_file(folder: Path, file: str) -> Path:
    """Return the path of a file in a folder, with symbolic links resolved.

    Raises:
        OSError: symbolic links form a circle.
        ValueError: a symbolic link leads out of the folder.
    """
    place = resolve_path(folder / file)
    if resolve_path(folder) not in place.parents:
        raise ValueError(
            f"the path {file} must stay in the folder, but a symbolic link leads out of it"
        )
    return place
