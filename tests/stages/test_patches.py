"""Patches of other packages: at most two, each with the issue that it waits for."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version

import pytest
from packaging.version import Version
from product_sources import trees

from syno.stages.workflow.patches import PATCHES, Patch, apply

THIS = "stages/workflow/patches.py"


def replaced(tree: ast.Module) -> Iterator[str]:
    """The attributes of other packages that a module assigns, as it names them."""
    others = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            others |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names if is_other(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and is_other(node.module or ""):
            others |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            targets = [ast.Attribute(node.args[0], "", ast.Store())]
        for target in targets:
            root: ast.AST = target
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(target, ast.Attribute) and isinstance(root, ast.Name) and root.id in others:
                yield ast.unparse(target)


def is_other(module: str) -> bool:
    top = module.partition(".")[0]
    return top != "syno" and top not in sys.stdlib_module_names


# Settings that these packages give by assignment.
SETTINGS = re.compile(r"torch\.backends\.|datasets\.config\.")


def test_no_other_module_patches_a_package() -> None:
    found = {
        (file, name) for file, tree in trees().items() for name in replaced(tree) if file != THIS and not SETTINGS.match(name)
    }
    assert found == set()


def test_a_patch_is_found() -> None:
    text = "from snakemake.jobs import Job\nimport optuna\nJob.restart_times = 1\nsetattr(optuna.study, 'a', 1)\nself.b = 2\n"
    assert list(replaced(ast.parse(text))) == ["Job.restart_times", "optuna.study."]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.package)
def test_a_patch_names_its_issue_and_is_still_needed(patch: Patch) -> None:
    assert len(PATCHES) <= 2
    assert re.fullmatch(rf"https://github\.com/snakemake/{patch.package}/issues/\d+", patch.issue)
    assert not patch.until or Version(version(patch.package)) < Version(patch.until), "the patch is superfluous"
    module = pytest.importorskip(patch.module) if patch.package != "snakemake" else import_module(patch.module)
    for path in patch.attributes:
        owner, _, name = path.rpartition(".")
        assert name in vars(getattr(module, owner) if owner else module)


def test_a_version_without_the_attribute_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ast.__class__("patched")
    monkeypatch.setitem(sys.modules, "patched", module)
    apply(Patch("patched", "patched", ("there", "Missing.there"), "issue"), lambda value: [value])
    assert not hasattr(module, "there")
    module.there = 1  # type: ignore[attr-defined]
    apply(Patch("patched", "patched", ("there",), "issue"), lambda value: [value])
    assert module.there == [1]
