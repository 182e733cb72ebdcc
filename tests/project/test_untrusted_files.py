"""Files from elsewhere cannot run code when they are read: operators, records, journals, checkpoints, prepared data.

Configs are no such files: they may name code (`evaluate: package.module:function`).
"""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from product_sources import trees

import syno
from syno.base.errors import StorageError, SynoError
from syno.base.record import Record
from syno.ir.library import OPERATORS
from syno.ir.text import parse
from syno.lower.pytorch.source import to_source
from syno.lower.tvm import to_te_source
from syno.measure.tuning_record import TuningRecord
from syno.paper.artifact.imported import ImportRecord
from syno.run.measurement import Measurements
from syno.run.parquet import read_parquet
from syno.search.storage.opening import open_storage
from syno.search.storage.store import TrialStore, read_trials
from syno.stages.data import DataRecord
from syno.stages.search import WorkerRecord
from syno.stages.selection import read_selected
from syno.stages.store import OperatorStore
from syno.train.checkpoint import Checkpoint
from syno.train.training_record import TrainingRecord

ROOT = Path(syno.__file__).parent
# Modules that run code which they read, and what of them each file may have.
RUNS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle"}
ALLOWED = {
    "data/cifar100.py": {"pickle"},  # reads bytes with the MD5 that their authors published, and no others
    "notebook/speed_up.py": {"cloudpickle"},  # it writes; what reads is own code of the experiment, which a user must trust
}
FORBIDDEN_CALLS = {"read_pickle", "to_pickle", "unsafe_load", "full_load"}
# Libraries are machine code. Each of these was made by the same process before, and none is of a folder of results.
LOADS_LIBRARIES = {
    "base/fork_server.py": ["ctypes.CDLL"] * 2,  # no file: functions of the C library that this process has
    "export/formats.py": ["module.runtime.load_module"],  # out of a temporary folder, to compare what it computes
    # It is copied into a folder, and loads what that folder's own source was compiled to, and the network beside it.
    "export/native_at_home.py": ["spec_from_file_location", "torch.ops.load_library"],
    "export/network_formats.py": ["module.runtime.load_module"],  # what it has just written
    "measure/native/build.py": ["ctypes.CDLL"],  # this user's own store of kernels, below ~/.cache, as that of TorchInductor
    "measure/native/kernels.py": ["ctypes.CDLL"],  # what it has just compiled
    "measure/native/peaks.py": ["ctypes.CDLL"],  # the same
    "measure/native/torch_operator.py": ["torch.ops.load_library"],  # this user's own store
    "measure/tvm/sessions.py": ["session.load_module"],  # on a device, to which it was sent
}
EXECUTES = {
    "lower/pytorch/source.py", "lower/tvm/source.py", "export/formats.py",  # source that was generated, never read
    "export/network_source.py",  # what PyTorch prints for its own modules
    "model/saved.py",  # `syno.load`: code in a folder that the user names, as for an import
}  # fmt: skip


class Evil:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def imports(tree: ast.AST) -> Iterator[str]:
    """What is imported, with its module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def faults(name: str, tree: ast.AST) -> Iterator[str]:
    """Calls that can run what a file says."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        options = {word.arg: ast.unparse(word.value) for word in node.keywords}
        where = f"{name}:{node.lineno}: {called}"
        if called == "torch.load" and options.get("weights_only") != "True":
            yield f"{where} without weights_only=True"
        if called in ("torch.jit.load", "torch.package.PackageImporter", "yaml.load"):
            yield where
        if options.get("allow_pickle", "False") != "False":
            yield f"{where} with pickles"
        if called in ("np.load", "numpy.load", "np.savez", "np.save") and "allow_pickle" not in options:
            yield f"{where} without allow_pickle=False"
        if called in ("exec", "eval") and name not in EXECUTES:
            yield where
        if any(called.endswith(f".{method}") for method in FORBIDDEN_CALLS):
            yield where


class TestSource:
    def test_nothing_that_runs_what_it_reads_is_imported(self) -> None:
        found = {name: {one for one in imports(tree) if one.partition(".")[0] in RUNS_CODE} for name, tree in trees().items()}
        assert {name: some for name, some in found.items() if some} == ALLOWED

    def test_no_call_runs_what_a_file_says(self) -> None:
        assert [fault for name, tree in trees().items() for fault in faults(name, tree)] == []

    def test_no_library_of_a_folder_of_results_is_loaded(self) -> None:
        names = ("load_module", "CDLL", "LoadLibrary", "load_library", "load_file", "spec_from_file_location")
        found = {
            name: [
                called for node in ast.walk(tree) if isinstance(node, ast.Call)
                if (called := ast.unparse(node.func)).rpartition(".")[2] in names
            ]
            for name, tree in trees().items()
        }  # fmt: skip
        assert {name: calls for name, calls in found.items() if calls} == LOADS_LIBRARIES

    @pytest.mark.parametrize(
        "line",
        [
            "torch.load(file)",
            "torch.load(file, weights_only=False)",
            "np.load(file)",
            "np.load(file, allow_pickle=True)",
            "yaml.load(text, Loader)",
            "yaml.unsafe_load(text)",
            "pandas.read_pickle(file)",
            "eval(text)",
            "torch.jit.load(file)",
        ],
    )
    def test_such_a_call_would_be_found(self, line: str) -> None:
        assert len(list(faults("x.py", ast.parse(line)))) == 1


class TestOperators:
    TEXT = str(OPERATORS["conv2d"]())

    @pytest.mark.parametrize("name", ['a"""; print(1); """b', 'a\\"""b', '""" + str(open("x", "w")) + """'])
    def test_a_name_that_would_end_a_docstring_is_refused(self, name: str) -> None:
        text = self.TEXT.replace("operator conv2d", f"operator {name}", 1)
        assert text != self.TEXT
        with pytest.raises(SynoError, match=r"line 1 .*an operator's name is"):
            parse(text)

    @pytest.mark.parametrize("name", ["'; x = 1 #'", "{graph}", '"quoted"', "%s {0} \N{BOMB}", 'ends with "', '""'])
    def test_whatever_a_name_is_source_does_the_same(self, name: str) -> None:
        graph = OPERATORS["conv2d"]()
        try:
            named = graph.renamed(name)
        except SynoError:
            return
        for write in (to_source, to_te_source):
            plain, other = (_statements(write(one)) for one in (graph, named))
            assert plain == other

    @pytest.mark.parametrize("variable", ["__import__('os')", "H)", "lambda", "H\nimport os"])
    def test_a_variable_is_a_name(self, variable: str) -> None:
        with pytest.raises(SynoError):
            parse(self.TEXT.replace("H", variable))


def _statements(source: str) -> str:
    """What source does: without its docstrings and the class's name."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.name = "Operator"
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            del body[0]
    return ast.dump(tree)


class TestRecords:
    """All that stages exchange: JSON that is checked against a model, and operators as text."""

    @pytest.mark.parametrize("kind", [DataRecord, ImportRecord, TrainingRecord, TuningRecord, WorkerRecord, Measurements])
    def test_a_pickle_is_no_record(self, kind: type[Record], tmp_path: Path) -> None:
        trace, file = tmp_path / "trace", tmp_path / "record.json"
        for written in (pickle.dumps(Evil(trace)), json.dumps({"py/reduce": ["builtins.open", str(trace), "w"]}).encode()):
            file.write_bytes(written)
            with pytest.raises(SynoError):
                kind.read(file)
        assert not trace.exists()

    @pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL], ids=["text", "bytes"])
    @pytest.mark.parametrize("read", [read_selected, lambda file: OperatorStore(file.parent.parent).get(file.stem)])
    def test_a_pickle_is_no_selection_and_no_operator(
        self, read: Callable[[Path], object], protocol: int, tmp_path: Path
    ) -> None:
        trace, file = tmp_path / "trace", tmp_path / "operators" / "0123456789ab.txt"
        file.parent.mkdir()
        file.write_bytes(pickle.dumps(Evil(trace), protocol=protocol))
        with pytest.raises(SynoError):
            read(file)
        assert not trace.exists()

    def test_a_table_that_is_a_pickle_is_refused(self, tmp_path: Path) -> None:
        trace, file = tmp_path / "trace", tmp_path / "scores.parquet"
        file.write_bytes(pickle.dumps(Evil(trace)))
        with pytest.raises(SynoError):
            read_parquet(file, "syno tables")
        assert not trace.exists()

    def test_a_checkpoint_is_weights_only(self, tmp_path: Path) -> None:
        trace, file = tmp_path / "trace", tmp_path / "seed0.checkpoint"
        torch.save({"identity": "mine", "state": {"weights": Evil(trace)}}, file)
        with pytest.raises(SynoError, match="holds no checkpoint"):
            Checkpoint(file, "mine").read(torch.device("cpu"))
        assert not trace.exists()


class TestStudies:
    @pytest.mark.parametrize("url", ["journal:{}/trials.log", "sqlite:///{}/trials.db"])
    def test_stored_attributes_come_back_as_plain_values(self, url: str, tmp_path: Path) -> None:
        storage = url.format(tmp_path)
        store = TrialStore(*open_storage(storage), "study")
        store.create({"path": [["Share", "x"]], "attempt": 0})
        (trial,) = read_trials(storage, "study")
        assert json.loads(json.dumps(trial.user_attrs)) == {"path": [["Share", "x"]], "attempt": 0}

    def test_a_line_of_a_journal_that_is_a_pickle_runs_nothing(self, tmp_path: Path) -> None:
        trace, journal = tmp_path / "trace", tmp_path / "trials.log"
        TrialStore(*open_storage(f"journal:{journal}"), "study").create({})
        with journal.open("ab") as opened:
            opened.write(pickle.dumps(Evil(trace), protocol=0).replace(b"\n", b" ") + b"\n{}\n")  # the last may be cut off
        with pytest.raises(StorageError, match="is damaged: line 3 is not as it was written"):
            read_trials(f"journal:{journal}", "study")
        assert not trace.exists()
