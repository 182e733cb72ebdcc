"""Compilers by name: each is an object with its requirements, tolerance, settings, and the devices for which it compiles.

A compiler of your own is `package.module:name` wherever a compiler is named: a `Compiler`, or a function that takes a `Job` and
returns the compiled module as a function of tensors:

    def doubled_threads(job):
        torch.set_num_threads(2 * job.settings.threads)
        return torch.compile(job.module)
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from syno.base.errors import MissingPackageError, SpecError
from syno.base.files import check_name
from syno.base.record import versions
from syno.base.registry import Registry, is_path
from syno.base.release import pip_install
from syno.lower.tvm import installed
from syno.measure.devices import RemoteDevice, SshSettings
from syno.measure.fastest import FastestSettings
from syno.measure.job import Int8Settings, Job
from syno.measure.tvm.targets import DeviceSettings, TvmSettings

if TYPE_CHECKING:
    from torch import nn

    from syno.measure.latency import Latency

CPP = "c++"  # name of the C++ compiler among the versions in records
PACKAGES = ("torch", "torchao", "triton", "numpy")  # all records have their versions
Compiled: TypeAlias = Callable[..., Any]  # takes and returns tensors


@dataclass(frozen=True)
class Compiler:
    """A compiler, which turns a module into a function that is timed. Calling it compiles a `Job`.

    Attributes:
        compile: compiles a job.
        name: its name in experiments and records, which `compiler_named` fills in.
        requires: packages that must be installed, and the extra of Syno that brings each.
        may_be_missing: if a required package is not installed: whether the measurement gives a record with this reason (true),
            or an error.
        installed: function that raises MissingPackageError unless the packages are installed in versions that work together.
        builds_cpp: whether it runs a C++ compiler.
        recorded: packages (or `CPP`) whose versions are in records, besides `PACKAGES`.
        devices: the kinds of devices of this machine for which it compiles.
        first_gpu_only: whether it cannot use a GPU other than the first, such as "cuda:1".
        channels_last: whether it takes tensors in channels-last format.
        tolerance: for compilers that compute in lower precision than the module: the least tolerance of the output check, which
            replaces the bound by rounding. A larger tolerance in the settings overrides it. None for exact compilers.
        settings: the pydantic model of the compiler's own settings.
        group: the name of these settings in an experiment's group `tune`, and as an argument of `tune`.
        tunes: whether it measures schedules on the device. Such compilers take long, and share files for each device.
        check: function of a device, number of CPU threads, own settings and remote device (or None), which raises an error if
            the compiler does not support them; called before a process is started.
        remote: function that compiles a job and measures it on a remote device, given the FLOPs of one call; None: the compiler
            works on this machine only.
    """

    compile: Callable[[Job], Compiled]
    name: str = ""
    requires: Mapping[str, str] = field(default_factory=dict)
    may_be_missing: bool = False
    installed: Callable[[], None] | None = None
    builds_cpp: bool = False
    recorded: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    first_gpu_only: bool = False
    channels_last: bool = True
    tolerance: float | None = None
    settings: type[BaseModel] | None = None
    group: str = ""
    tunes: bool = False
    check: Callable[[str, int, Any, DeviceSettings | None], None] | None = None
    remote: Callable[[Job, DeviceSettings, int], Latency] | None = None

    def __call__(self, job: Job) -> Compiled:
        """Return the compiled module of a job. Raises MissingPackageError if it needs a C++ compiler, and there is none."""
        if self.builds_cpp and job.device == "cpu":
            from syno.measure.native.build import compiler

            compiler()
        return self.compile(job)

    def versions(self) -> dict[str, str]:
        """Return the versions, on this machine, of the packages on which a measurement with this compiler depends."""
        return versions((*PACKAGES, *self.recorded)) | (cpp_version() if CPP in self.recorded else {})

    def require(self) -> None:
        """Raise MissingPackageError if a package that the compiler needs is not installed."""
        for package, extra in self.requires.items():
            if find_spec(package) is None:
                raise MissingPackageError(
                    f"the compiler {self.name} needs {package}, which is not installed: {pip_install(extra)}"
                )
        if self.installed is not None:
            self.installed()

    def check_gpu(self, device: str) -> None:
        """Raise SpecError if the device is a GPU with a number, such as "cuda:1", and the compiler uses only the first GPU."""
        if self.first_gpu_only and ":" in device:
            raise SpecError(
                f'the compiler "{self.name}" tunes on the first GPU that it sees, not on "{device}": take the device cuda, and '
                "choose the GPU with the environment variable CUDA_VISIBLE_DEVICES"
            )

    def compiles_for(self, device: str) -> bool:
        """Return whether the compiler makes code for this kind of device of this machine."""
        return device.partition(":")[0] in self.devices

    def check_kind(self, device: str) -> None:
        """Raise SpecError if the compiler makes no code for this kind of device of this machine."""
        if not self.compiles_for(device):
            kinds = " and ".join(f'"{kind}"' for kind in self.devices)
            raise SpecError(f'the compiler {self.name} has kernels for the device {kinds} only; it was given "{device}"')


LOW_PRECISION_TOLERANCE = 0.1  # of the largest value: int8 or bfloat16 changes outputs by much more than rounding
COMPILERS: Registry[Compiler] = Registry("compiler", accepts=callable, needed="a Compiler, or a function that takes a Job")
_IMPORTED: dict[str, Compiler] = {}  # users' own, by their paths


def compiler_named(name: str) -> Compiler:
    """Return a compiler by its name in `COMPILERS`, or the user's own by its path `package.module:name`.

    Raises UnknownNameError if there is none of that name, SpecError if it cannot be imported or is no compiler.
    """
    found = COMPILERS.find(name)
    named = replace(found, name=name) if isinstance(found, Compiler) else Compiler(found, name)
    if is_path(name):
        _IMPORTED[name] = named
    return named


def compiler_facts(name: str) -> Compiler:
    """Return a compiler's properties, such as its devices, without importing a user's own compiler.

    A user's compiler that this process has not imported yet has the default properties, and cannot compile.

    Raises UnknownNameError if there is none of that name, SpecError for a path of another form than `package.module:name`.
    """
    if not is_path(name):
        return compiler_named(name)
    COMPILERS.check(name)
    return _IMPORTED.get(name) or Compiler(_cannot_compile, name)


def _cannot_compile(job: Job) -> Compiled:
    raise SpecError("the compiler has not been imported: compiler_facts does not import it, compiler_named does")


def name_in_files(name: str) -> str:
    """Return a compiler's name for use in file names: in an import path, "." replaces ":".

    Raises SpecError if it cannot be part of a file name.
    """
    return check_name(name.replace(":", "."), "a compiler's name") if is_path(name) else name


def reaches(compiler: str, device: RemoteDevice | None) -> bool:
    """Return whether the compiler can be measured on a remote device; always true for None, which is this machine."""
    if isinstance(device, SshSettings):
        return device.compilers is None or compiler in device.compilers
    return device is None or compiler_facts(compiler).remote is not None


def as_reached(compiler: str, device: RemoteDevice | None) -> RemoteDevice | None:
    """Return the connection by which a compiler reaches a device: for TVM, an ssh machine's RPC if it has that."""
    if isinstance(device, SshSettings) and device.tvm is not None and compiler_facts(compiler).remote is not None:
        return device.tvm
    return device


def unreached(devices: Iterable[str], compilers: Iterable[str], remote: Mapping[str, RemoteDevice]) -> list[str]:
    """Return the devices on which none of the compilers can be measured."""
    return [name for name in devices if not any(reaches(compiler, remote.get(name)) for compiler in compilers)]


def groups_of_settings() -> list[str]:
    """Return the names of the groups of settings of Syno's compilers, such as "tvm"."""
    return sorted({compiler_named(name).group for name in COMPILERS} - {""})


def own_settings(tune: object) -> dict[str, BaseModel]:
    """Return the settings of each compiler in an experiment's group `tune`, by the name of the compiler's group.

    Settings of a single network, such as the layers that stay in floats, are not in it.
    """
    return {group: getattr(tune, group) for group in groups_of_settings() if hasattr(tune, group)}


def cpp_version() -> dict[str, str]:
    """Return {"c++": version} for this machine's C++ compiler; {} if there is none."""
    from syno.measure.native.build import compiler, compiler_version

    try:
        return {CPP: compiler_version(compiler())}
    except MissingPackageError:
        return {}


@COMPILERS.register("eager")
@Compiler
def eager(job: Job) -> Compiled:
    """Return the job's module, prepared for inference. It runs PyTorch's own kernels, one after another."""
    from syno.model.prepared_weights import prepare_for_inference

    return prepare_for_inference(job.module)  # type: ignore[no-any-return]


@COMPILERS.register("inductor")
@partial(Compiler, builds_cpp=True)
def inductor(job: Job) -> Compiled:
    """Compile with `torch.compile` for inference, with constant weights (`freezing`), for the shapes of the example."""
    return _frozen(job, job.module)


def _frozen(job: Job, module: nn.Module, **options: Any) -> Compiled:
    """Return a job's module compiled by Inductor, and note the compiled code in the job."""
    from syno.measure.inductor import frozen_with_code

    compiled, code = frozen_with_code(module, job.example, **options)
    job.note(code=code.model_copy(update={"made_by": cpp_version().get(CPP, "") if job.device == "cpu" else ""}))
    return compiled


@COMPILERS.register("inductor-max-autotune")
@partial(Compiler, builds_cpp=True)
def inductor_max_autotune(job: Job) -> Compiled:
    """Compile as `inductor`, with the fastest of several kernels for each product and convolution."""
    return _frozen(job, job.module, mode="max-autotune")


def _inductor_bfloat16(job: Job) -> Compiled:
    from syno.measure.inductor import InBfloat16

    return _frozen(job, InBfloat16(job.module, job.device))


def _inductor_int8(job: Job) -> Compiled:
    from syno.measure.quantization import quantized_for

    return _frozen(job, quantized_for(job))


def _openvino(job: Job) -> Compiled:
    from syno.measure.runtimes import in_openvino, of_module

    model = of_module(job.module, job.example)
    return in_openvino(model, model.content, job.settings.threads, INFERENCE_PRECISION_HINT="f32")


def _onnxruntime(job: Job) -> Compiled:
    from syno.measure.runtimes import in_onnx_runtime, of_module

    model = of_module(job.module, job.example)
    return in_onnx_runtime(model, model.content, job.settings.threads)


def _openvino_int8(job: Job) -> Compiled:
    return _in_integers("openvino-int8", job)


def _onnxruntime_int8(job: Job) -> Compiled:
    return _in_integers("onnxruntime-int8", job)


def _in_integers(compiler: str, job: Job) -> Compiled:
    from syno.measure.onnx_quantization import in_integers
    from syno.measure.quantization import SAMPLES, calibration_inputs
    from syno.measure.runtimes import of_module

    if floats := job.options.float_layers:
        job.note(remark=f"in floats: {', '.join(floats)}")
    inputs = calibration_inputs(job, SAMPLES)
    return in_integers(compiler, of_module(job.module, job.example), inputs, job.settings.threads, floats)


def _check_x86(device: str, threads: int, options: Any, remote: DeviceSettings | None) -> None:
    if remote is None and platform.machine() not in ("x86_64", "AMD64"):
        raise SpecError(
            f"the compiler inductor-int8 has kernels for x86 only, and this is {platform.machine()}; take "
            "inductor, or measure on an x86 machine"
        )


def _tvm(job: Job) -> Compiled:
    from syno.measure.tvm.compiler import compiled

    return compiled(job)


def _check_tvm(device: str, threads: int, options: TvmSettings, remote: DeviceSettings | None) -> None:
    from syno.measure.tvm.compiler import target_for, target_on

    if remote is None:
        target_for(options, device, threads)
    else:
        target_on(remote)


def _measured_by_tvm(job: Job, device: DeviceSettings, flops: int) -> Latency:
    from syno.measure.tvm.compiler import measured_on

    return measured_on(job, device, flops)


def _native(job: Job) -> Compiled:
    from syno.measure.native.network import native_network, store_of_user

    made = native_network(job.module, job.example, store_of_user(), job.settings.threads)
    compiled, code = made.compiled_with_code(job.example)
    job.note(remark=made.summary, code=code)
    return compiled


def _check_native(device: str, threads: int, options: Any, remote: DeviceSettings | None) -> None:
    from syno.measure.native.build import compiler

    compiler()


# Kernels of Syno's own, each the fastest of several schedules on this machine, and `inductor` for the rest of the network.
COMPILERS.register("native")(
    Compiler(_native, builds_cpp=True, recorded=(CPP,), devices=("cpu",), channels_last=False, check=_check_native),
)
# The runtimes that networks are deployed with on CPUs.
for _name, _compile, _compile_int8, _quantizers in (
    ("openvino", _openvino, _openvino_int8, ("nncf",)),
    ("onnxruntime", _onnxruntime, _onnxruntime_int8, ()),
):
    _compiler = Compiler(
        _compile,
        requires=dict.fromkeys((_name, "onnx", "onnxscript"), _name),
        may_be_missing=True,
        recorded=(_name, "onnx"),
        devices=("cpu",),
        channels_last=False,
    )
    COMPILERS.register(_name)(_compiler)
    COMPILERS.register(f"{_name}-int8")(
        replace(
            _compiler,
            compile=_compile_int8,
            requires={**_compiler.requires, **dict.fromkeys(_quantizers, _name)},
            recorded=(*_compiler.recorded, *_quantizers),
            tolerance=LOW_PRECISION_TOLERANCE,
            settings=Int8Settings,
            group="int8",
        )
    )
# `inductor` after quantization to 8-bit integers, on x86 CPUs.
COMPILERS.register("inductor-int8")(
    Compiler(
        _inductor_int8,
        requires={"torchao": "int8"},
        builds_cpp=True,
        devices=("cpu",),
        tolerance=LOW_PRECISION_TOLERANCE,
        check=_check_x86,
    ),
)
# `inductor` with products and convolutions in bfloat16, as autocast chooses.
COMPILERS.register("inductor-bfloat16")(Compiler(_inductor_bfloat16, builds_cpp=True, tolerance=LOW_PRECISION_TOLERANCE))
# The fastest of several for each network: best against best.
AUTOMATIC = {"cpu": ("openvino", "onnxruntime", "native", "inductor"), "cuda": ("inductor", "inductor-max-autotune")}


def _fastest(job: Job) -> Compiled:
    from syno.measure.fastest import compile_fastest

    names = job.options.compilers
    if names == "auto":
        names = AUTOMATIC[job.device.partition(":")[0]]
    return compile_fastest(job, {name: partial(_by_default, compiler_named(name)) for name in names})


def _by_default(compiler: Compiler, job: Job) -> Compiled:
    """Compile a job with the compiler's default settings. Raises MissingPackageError or SpecError if it cannot be used."""
    compiler.require()
    compiler.check_kind(job.device)
    return compiler(replace(job, options=None if compiler.settings is None else compiler.settings()))


COMPILERS.register("fastest")(
    Compiler(
        _fastest,
        builds_cpp=True,
        recorded=("openvino", "onnxruntime", "onnx", CPP),
        channels_last=False,
        settings=FastestSettings,
        group="fastest",
    )
)
# TVM, with schedules that MetaSchedule finds by measuring on the device.
COMPILERS.register("tvm")(
    Compiler(
        _tvm,
        installed=installed.require,
        builds_cpp=True,
        recorded=tuple(installed.VERSIONS),
        first_gpu_only=True,
        channels_last=False,
        settings=TvmSettings,
        group="tvm",
        tunes=True,
        check=_check_tvm,
        remote=_measured_by_tvm,
    )
)
