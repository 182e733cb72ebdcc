"""The kinds of experiments: files of earlier versions have the options of all of them, and Syno works without the paper's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from syno.base.errors import SpecError
from syno.config import AnyExperiment, Experiment, load_any, load_experiment, make_experiment
from syno.config.kept_file import HEAD
from syno.paper.experiments import AblatedExperiment, JoinedResults, PublishedData, ablations_of
from syno.stages.workflow_stages import STAGES, jobs

NO_ABLATIONS = {"canonical": None, "distance": None, "patterns": None, "requirements": None}
OF_A_SEARCH = {name: to_jsonable_python(field.default) for name, field in Experiment.model_fields.items() if name != "name"}
OF_A_SEARCH["study"]["pruner"] = None  # an option that is no longer there
ALL_DEFAULTS = {**OF_A_SEARCH, "name": "a", "artifact": None, "join": None, "ablations": NO_ABLATIONS}
WITHOUT_PAPER = """
import sys
from importlib.metadata import entry_points
from syno.base import extensions
sys.modules["syno.paper"] = None  # importing it raises ImportError
extensions._installed = lambda: ()
from pathlib import Path
from syno.cli import app
from syno.config import load_experiments
from syno.stages.plan import plans
from syno.stages.workflow_stages import STAGES
assert app and not {"artifact", "join", "ablate", "headlines"} & set(STAGES)
(experiment,) = load_experiments(Path(sys.argv[1])).values()
print(sum(stage.jobs for stage in plans([experiment])[0].stages) > 20)
try:
    load_experiments(Path(sys.argv[2]))
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (AblatedExperiment, {"spec": {"preset": "resnet18"}, "reward": {"name": "accuracy"}, "select": {"by": "reward"}}),
        (PublishedData, {"artifact": "data"}),
        (JoinedResults, {"join": {"of": ["results/one"]}}),
    ],
)
def test_a_file_beside_results_of_an_earlier_version_has_the_options_of_all_kinds(
    tmp_path: Path, kind: type[AnyExperiment], option: dict[str, Any]
) -> None:
    import yaml

    file = tmp_path / "experiment.yaml"
    file.write_text(HEAD + yaml.safe_dump({**ALL_DEFAULTS, **option}), encoding="utf-8")
    found = load_any(tmp_path)
    assert type(found) is kind and found.folder == tmp_path
    assert not ablations_of(found).names and list(jobs(found))


def test_each_kind_has_what_it_has() -> None:
    found = make_experiment({"name": "published", "artifact": "data", "ablations": ["patterns"]})
    assert set(type(found).model_fields) == {"name", "output", "code", "artifact", "ablations"}
    assert list(jobs(found)) == ["artifact", "ablate", "headlines", "figure", "report"]
    search = make_experiment({"name": "a", "spec": {"preset": "resnet18"}, "reward": {"name": "accuracy"}, "artifact": None})
    assert type(search) is Experiment and not STAGES["ablate"].paths(search)


def test_what_takes_a_search_refuses_other_kinds_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "published.yaml"
    file.write_text("artifact: data\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r'experiment "published" is of published data \(artifact\), so it has no search, and'):
        load_experiment(file)


def test_syno_works_without_the_paper() -> None:
    config = Path(__file__).parents[2] / "config"
    files = [str(config / name) for name in ("quickstart.yaml", "published.yaml")]
    done = subprocess.run([sys.executable, "-c", WITHOUT_PAPER, *files], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "True"
    assert second.startswith('experiment "published": artifact: there is no such option; there are: name, output, code, spec,')
