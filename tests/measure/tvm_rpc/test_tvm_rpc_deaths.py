"""Servers that die, sessions that take too long, and a whole tuning on a device."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tvm_servers import KEY, LONG, SIDE, TARGET, Here, free_port, measuring, outcomes, sessions, wait_for

from syno.base.errors import DeviceError
from syno.ir.library import OPERATORS
from syno.measure.latency import LatencySettings
from syno.measure.output_check import OutputCheck
from syno.measure.subjects import OperatorSubject
from syno.measure.tuning import tune
from syno.measure.tvm.sessions import NOT_MEASURED, callbacks, measure_remote, rpc_runner
from syno.measure.tvm.targets import TvmSettings
from syno.measure.tvm.tracker import reach, reached

tvm = pytest.importorskip("tvm", reason="TVM is not installed: pip install 'syno-operators[tvm]'")
psutil = pytest.importorskip("psutil", reason="psutil is not installed: pip install 'syno-operators[tvm]'")
ms = pytest.importorskip("tvm.s_tir.meta_schedule", reason="packages for tuning are missing: pip install 'syno-operators[tvm]'")


@pytest.mark.slow
def test_when_one_of_two_servers_dies_the_other_does_the_rest(here: Here, kernel: str) -> None:
    dying, before = here.servers[0], sessions(here.servers[0])
    work = measuring(here, 300)
    try:
        begun = outcomes(work, kernel, 6)
        wait_for(lambda: sessions(dying) > before)
        dying.kill()
        found = [one.result(LONG) for one in begun]
    finally:
        work.close()
    assert [error for _, error in found] == [None] * 6
    assert work.health.lost is None


@pytest.mark.slow
def test_when_both_die_what_was_not_measured_is_not_blamed(here: Here, kernel: str) -> None:
    work = measuring(here, 300, wait_seconds=1)
    try:
        begun = outcomes(work, kernel, 6)
        begun[0].result(LONG)
        for one in here.servers:
            one.kill()
        found = [one.result(LONG) for one in begun]
    finally:
        work.close()
    assert found[0][1] is None
    failed = [error for _, error in found if error is not None]
    assert failed and all(error.startswith(NOT_MEASURED) for error in failed)
    assert work.health.lost is not None and 'device "jetson"' in str(work.health.lost) and "is gone" in str(work.health.lost)


@pytest.mark.slow
def test_a_session_that_takes_too_long_or_dies_is_an_error(here: Here, network: Path) -> None:
    import threading

    left = torch.ones(SIDE, SIDE)
    expected = OutputCheck(torch.matmul, [(left, left)]).expected
    device, endless = reach("jetson", here.tracker, KEY), LatencySettings(least_ms=1e9, most_repeats=10**9)
    with pytest.raises(DeviceError, match="session has expired"):
        measure_remote(network, expected, device, endless, seconds=2)
    here.ready()
    before = [sessions(one) for one in here.servers]

    def kill() -> None:
        wait_for(lambda: [sessions(one) for one in here.servers] != before)
        for one in here.servers:
            one.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(DeviceError, match="failed while it measured network.tar"):
        measure_remote(network, expected, device, endless, seconds=LONG)
    killer.join()


@pytest.mark.slow
def test_tuning_keeps_what_was_measured_when_servers_die(here: Here, product: Any, tmp_path: Path) -> None:
    """After each of three batches a server dies: the second is measured by one server, the third by none."""
    from tvm.ir.utils import derived_object

    def build(module: Any, target: Any, parameters: Any) -> Any:
        """Without the layout rewriting of TVM's own, which takes half a minute to load in each worker."""
        import tvm
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

        return tvm.tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)

    class Kill(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
        def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
            here.servers[len(batches)].kill()
            batches.append([one.error_msg for one in ran])

    batches: list[list[str | None]] = []
    settings = here.settings(wait_seconds=1)
    context = ms.TuneContext(
        product,
        target=tvm.target.Target(TARGET),
        space_generator="post-order-apply",
        search_strategy=ms.search_strategy.EvolutionarySearch(population_size=16, genetic_num_iters=1),
        task_name="product",
        rand_state=1,
        num_threads=1,
        logger=logging.getLogger("syno.test"),
    ).clone()
    with (
        pytest.raises(DeviceError, match=r'device "jetson".*is gone.*What was measured is kept'),
        reached("jetson", settings) as found,
        rpc_runner(found, settings, threads=1) as runner,
    ):
        ms.tune_tasks(
            tasks=[context],
            task_weights=[1.0],
            work_dir=str(tmp_path),
            max_trials_global=12,
            num_trials_per_iter=4,
            builder=ms.builder.LocalBuilder(max_workers=1, f_build=build),
            runner=runner,
            database=ms.database.JSONDatabase(work_dir=str(tmp_path)),
            cost_model=ms.cost_model.RandomModel(),
            measure_callbacks=[*callbacks(runner), derived_object(Kill)()],
            task_scheduler="round-robin",
        )
    assert batches == [[None] * 4] * 2  # the third ended it, in a callback before this one
    assert len((tmp_path / "database_tuning_record.json").read_text().splitlines()) == 8
    assert len(ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()) == 8


@pytest.mark.slow
def test_an_operator_is_tuned_and_measured_on_a_device(here: Here, tmp_path: Path) -> None:
    subject = OperatorSubject.of(OPERATORS["conv2d"](), {"C_in": 4, "C_out": 4, "H": 6})
    few = TvmSettings(trials_per_task=4, trials_per_iteration=4, cost_model="random")
    quick = LatencySettings(warm_up_ms=1, least_ms=1, least_repeats=6)
    before = [sessions(one) for one in here.servers]
    remote = here.settings(target=TARGET)
    record = tune(subject, "tvm", "jetson", quick, tvm=few, folder=tmp_path, remote=remote)
    assert record.status == "ok" and record.checked and record.latency_ms is not None, record.reason
    assert (record.device.kind, record.device.name) == ("cpu", "jetson")
    assert record.tuning is not None and record.tuning.trials == 4
    assert sum(sessions(one) for one in here.servers) - sum(before) >= 5  # four candidates and the operator
    absent = remote.model_copy(update={"tracker": f"127.0.0.1:{free_port()}"})
    record = tune(subject, "tvm", "jetson", quick, tvm=few, folder=tmp_path, remote=absent)
    assert record.latency_ms is None and 'device "jetson"' in record.reason and "does not answer" in record.reason
