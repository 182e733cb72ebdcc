"""A module that is compiled and checked, and ready to be timed in turns with others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from syno.measure.compilers import compiler_named
from syno.measure.job import Job, Phase
from syno.measure.latency import pool_of
from syno.measure.measuring import Request, compiled_and_called
from syno.measure.network_subject import BackboneSubject
from syno.measure.output_check import Deviation, Inputs, OutputCheck, check_of
from syno.measure.reference import Material
from syno.measure.subjects import Subject


@dataclass
class Prepared:
    """A compiled module whose output is right, with inputs to time it on. It may have a shortcoming, such as untuned parts."""

    material: Material
    check: OutputCheck
    compiled: Callable[..., Any]
    compile_seconds: float
    deviation: Deviation
    inputs: Iterator[Inputs]  # without an end
    shortcoming: str = ""
    last: tuple[Any, Any] = (None, None)  # the input and the output of the last call

    def __call__(self) -> None:
        """Call it on the next input."""
        given = next(self.inputs)
        self.last = given, self.compiled(*given)

    def check_last(self) -> Deviation:
        """Return the deviation of the output of the last call. Raises WrongOutputError if it is too large."""
        given, output = self.last
        return self.check.require(self.check.of_output(output, given), "the output of a timed call")


def prepared(request: Request, subject: Subject, begin: Callable[[Phase], None]) -> Prepared:
    """Return a subject, compiled as the request says on this machine, with its outputs checked.

    Raises what the compiler raises, and WrongOutputError as `syno.measure.output_check.OutputCheck.require`.
    """
    begin("building")
    compiler = compiler_named(request.compiler)
    compiler.check_kind(request.device)
    material = subject.make(request.device, request.settings.batch)
    check = check_of(material, request.settings, request.device)
    lacking: list[str] = []
    job = job_of(request.model_copy(update={"subject": subject}), material, check, begin, lacking.append)
    begin("compiling")
    compiled, seconds = compiled_and_called(compiler, job)
    deviation = check.require(check.of(compiled))
    is_layer = isinstance(subject, BackboneSubject) and subject.layer is not None
    # In the network, the input of a layer was just written, and is in the cache.
    inputs = cycle([material.make_inputs()] if is_layer else pool_of(material.make_inputs)[0])
    return Prepared(material, check, compiled, seconds, deviation, inputs, " ".join(lacking))


def job_of(
    request: Request,
    material: Material,
    check: OutputCheck,
    begin: Callable[[Phase], None],
    lacks: Callable[[str], None] = lambda _: None,
) -> Job:
    """Return the job of a compiler for a request's subject. `lacks` gets a sentence if the result is not what was asked for."""
    settings = compiler_named(request.compiler).settings
    return Job(
        module=material.module,
        example=material.make_inputs(),
        make_inputs=material.make_inputs,
        device=request.device,
        settings=request.settings,
        check=check,
        name=request.name,
        folder=request.folder,
        options=None if settings is None else settings.model_validate(request.options),
        began=time.monotonic(),
        time_limit_s=request.time_limit_s,
        begin=begin,
        found=lambda **_: None,
        count=lambda _: None,
        lacks=lacks,
    )
