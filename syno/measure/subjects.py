"""Subjects of measurements: an operator at given sizes, or a whole model, as data from which another process makes modules."""

from __future__ import annotations

import base64
import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from syno.base.errors import SpecError, ValuationError
from syno.base.identity import Identity, version_of_code
from syno.base.registry import imported
from syno.ir.graph import PGraph
from syno.model.networks import read_replacement
from syno.model.replacements import AnyOperator, ModuleBaseline, code_in

if TYPE_CHECKING:
    import torch

    from syno.measure.reference import Material

INTERPRETED_STEPS = 2_000_000  # largest iteration space for which the interpreter is the reference; it takes about a second
SEED = 0


class GivenTensor(BaseModel):
    """A tensor among the inputs of a network, as data.

    Attributes:
        shape: shape of the tensor, with the batch.
        dtype: PyTorch's name of its dtype.
        numbers: the flat elements if they are integers or booleans: an index, a length or a mask cannot be random.
        values: the elements as base64 of compressed bytes, if they are real numbers whose values matter; else None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    shape: tuple[int, ...]
    dtype: str
    numbers: tuple[int, ...] | None = None
    values: str | None = None

    @model_serializer(mode="wrap")
    def _without_values(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the fields without `values` if it is None, since names of records are hashes of them."""
        return {name: value for name, value in write(self).items() if name != "values" or value is not None}

    @classmethod
    def of(cls, tensor: torch.Tensor, *, with_values: bool) -> GivenTensor:
        """Return the description of a tensor; `with_values` includes the values of real numbers."""
        is_real = tensor.is_floating_point() or tensor.is_complex()
        return cls(
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            numbers=None if is_real else tuple(map(int, tensor.flatten().tolist())),
            values=_written(tensor) if is_real and with_values else None,
        )

    def make(self) -> torch.Tensor:
        """Return the tensor on the CPU; real numbers whose values are not stored are zeros."""
        import torch

        dtype = getattr(torch, self.dtype)
        if self.values is not None:
            return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(self.values))), dtype=dtype).view(self.shape)
        if self.numbers is None:
            return torch.zeros(self.shape, dtype=dtype)
        return torch.tensor(self.numbers, dtype=dtype).view(self.shape)


def _written(tensor: torch.Tensor) -> str:
    import torch

    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return base64.b64encode(zlib.compress(content.numpy().tobytes())).decode()


class GivenInputs(BaseModel):
    """The inputs of a network with several inputs, as data from which another process makes them.

    Attributes:
        structure: the nesting of tuples, lists and dicts, as a serialized PyTorch pytree structure.
        leaves: the leaves of this structure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    structure: str
    leaves: tuple[GivenTensor | bool | int | float | str | None, ...]

    @classmethod
    def of(cls, inputs: Any, *, with_values: bool = False) -> GivenInputs:
        """Return the description of inputs; `with_values` includes the values of real numbers.

        Raises SpecError if a leaf is neither a tensor nor a number or a string.
        """
        import torch
        from torch.utils import _pytree as pytree

        from syno.model.inputs import mapped

        found, structure = pytree.tree_flatten(mapped(torch.Tensor.detach, inputs))
        leaves: list[Any] = []
        for leaf in found:
            if isinstance(leaf, torch.Tensor):
                leaf = GivenTensor.of(leaf, with_values=with_values)
            elif not isinstance(leaf, bool | int | float | str | None):
                raise SpecError(
                    f"the inputs hold a {type(leaf).__name__}; give tensors, numbers and texts, in tuples and dicts"
                )
            leaves.append(leaf)
        return cls(structure=pytree.treespec_dumps(structure), leaves=tuple(leaves))

    def make(self, batch: int) -> Any:
        """Return the inputs for this batch size on the CPU; real numbers whose values are not stored are zeros."""
        from torch.utils import _pytree as pytree

        from syno.model.inputs import of_batch

        leaves = [leaf.make() if isinstance(leaf, GivenTensor) else leaf for leaf in self.leaves]
        return of_batch(pytree.tree_unflatten(leaves, pytree.treespec_loads(self.structure)), batch)


class Subject(BaseModel, ABC):
    """Base class of subjects: descriptions from which a module is made to be measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    @abstractmethod
    def title(self) -> str:
        """The subject's name in records and messages."""

    @property
    def graph(self) -> PGraph | None:
        """The operator of the subject; None if it has none."""
        replacement = self.replacement
        return replacement if isinstance(replacement, PGraph) else None

    @property
    def replacement(self) -> AnyOperator | None:
        """The operator or other replacement of the subject; None if it has none."""
        return None

    @abstractmethod
    def make(self, device: str, batch: int) -> Material:
        """Return the subject's module with reproducible float32 weights, for a batch size on a device."""

    def version_of_code(self, compiler: str = "") -> dict[str, str]:
        """Return a checksum of the user's code that the module and the compiler run, as a version; {} if there is none.

        For a network that such code makes, its shapes and constants are part of the checksum, but not its weights.
        """
        named = [self.model_dump(mode="json", exclude={"operator"}), compiler, code_in(self.replacement)]
        return version_of_code(named, *self._made())

    def _made(self) -> tuple[Identity, ...]:
        """Return the identity of the network that the user's code makes; () if there is none."""
        return ()


class OperatorSubject(Subject):
    """An operator at given sizes.

    Attributes:
        operator: text of the operator or of a module baseline.
        sizes: values of its variables; for a module, C_in, C_out and H. Variables that occur only in axes that pass unchanged
            from the input to the output, such as a batch size, may be left out, and get the batch size.
        mode: the mode of the generated code: "fused" or "literal".
    """

    kind: Literal["operator"] = "operator"
    operator: str
    sizes: dict[str, int] = Field(default_factory=dict)
    mode: Literal["fused", "literal"] = "fused"

    @classmethod
    def of(cls, operator: PGraph | ModuleBaseline, sizes: dict[str, int] | None = None, **rest: Any) -> OperatorSubject:
        """Return the subject of an operator, or of a baseline that is a module.

        Raises ValuationError, SizeError: a value is missing, or a size does not divide.
        """
        subject = cls(operator=str(operator), sizes=sizes or {}, **rest)
        subject.values(1)
        return subject

    @property
    def replacement(self) -> PGraph | ModuleBaseline:
        """The operator or module baseline. SpecError for a replacement of a whole network."""
        found = read_replacement(self.operator)
        if not isinstance(found, PGraph | ModuleBaseline):
            raise SpecError(f"{found.name} is of a whole network, and no operator by itself; measure it in an experiment")
        return found

    @property
    def title(self) -> str:
        """The operator's name."""
        return self.replacement.name

    def values(self, batch: int) -> dict[str, int]:
        """Return the value of each of the operator's variables for this batch size."""
        graph = self.replacement
        if isinstance(graph, ModuleBaseline):
            return _sizes_of_module(graph, {"N": batch, **self.sizes})
        missing = graph.unchanged_variables - self.sizes.keys() - graph.variables.defaults.keys()
        return dict(graph.valuation({**self.sizes, **dict.fromkeys(missing, batch)}))

    def make(self, device: str, batch: int) -> Material:
        """Return the operator's module.

        Its reference is the interpreter, or the module in its other mode if that takes too long.
        """
        import torch

        from syno.ir.support import windows_inside
        from syno.lower.choose import plan
        from syno.lower.interpreter import interpret, shapes
        from syno.measure.reference import Material, by_sample, in_double
        from syno.model import build

        graph, values = self.replacement, self.values(batch)
        if isinstance(graph, ModuleBaseline):
            return _material_of_module(graph, values, device)
        valuation = graph.valuation(values)
        chosen = plan(graph, values)
        module = build(graph, values, mode=self.mode, seed=SEED, device=device).eval()

        def interpreted(x: torch.Tensor) -> torch.Tensor:
            tensors = [tensor.detach().double().cpu().numpy() for tensor in (x, *module.parameters())]
            return torch.from_numpy(interpret(graph, values, *tensors))

        other = "fused" if self.mode == "literal" else "literal"  # the form that is not measured
        other_form = build(graph, values, mode=other, seed=SEED)
        other_form.load_state_dict(module.state_dict())
        forms = by_sample(in_double(other_form), graph)
        steps = valuation.numel(dim.size for dim in (*graph.output, *graph.reduces))
        interprets = steps <= INTERPRETED_STEPS
        return Material(
            module=module,
            shape=shapes(graph, valuation)[0],
            generator=torch.Generator(device).manual_seed(SEED),
            reference=interpreted if interprets else forms,
            reference_name="interpreter" if interprets else f"{other} module",
            flops=chosen.flops(valuation),
            parameters=chosen.parameters(valuation),
            inside=windows_inside(graph, valuation),
            simulated=forms,
        )


def _sizes_of_module(baseline: ModuleBaseline, values: dict[str, int]) -> dict[str, int]:
    """Return the values N, C_in, C_out and H of a module baseline. ValuationError if one is missing or there are others."""
    needed = ("N", "C_in", "C_out", "H")
    if set(values) != set(needed):
        raise ValuationError(f"{baseline.name} is a module with the sizes C_in, C_out and H; given: {', '.join(values)}")
    return {name: values[name] for name in needed}


def _material_of_module(baseline: ModuleBaseline, values: dict[str, int], device: str) -> Material:
    """Return the module of a baseline. Its reference is the same module in double precision."""
    import torch

    from syno.measure.reference import Material, in_double
    from syno.model.counting import count

    module = baseline.build(values, SEED).eval()
    shape = (values["N"], values["C_in"], values["H"], values["H"])
    price = count(module, torch.zeros(shape))
    return Material(
        reference=in_double(module),
        module=module.to(device),
        shape=shape,
        generator=torch.Generator(device).manual_seed(SEED),
        reference_name="eager module",
        flops=price.flops,
        parameters=price.parameters,
        inside=price.inside,
    )


class ModelSubject(Subject):
    """A whole model.

    Attributes:
        factory: `package.module:function`, a function that returns an `nn.Module`.
        arguments: the factory's arguments, by name.
        input_shape: shape of one sample, without the batch.
        symbols: the vocabulary size, for models that take token ids; None for models that take real numbers.
    """

    kind: Literal["model"] = "model"
    factory: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    input_shape: tuple[int, ...]
    symbols: int | None = Field(default=None, ge=1)

    @field_validator("factory")
    @classmethod
    def _is_path(cls, path: str) -> str:
        module, _, function = path.partition(":")
        if not module or not function:
            raise ValueError(f'the factory is "{path}"; it must be a function that can be imported, "package.module:function"')
        return path

    @property
    def title(self) -> str:
        """The import path of the model's factory."""
        return self.factory

    def make(self, device: str, batch: int) -> Material:
        """Return the model. Its reference is the same model in double precision; FLOPs include products of two activations."""
        import torch

        from syno.measure.reference import Material, in_double, random_input, vary_constants
        from syno.model.calls import with_own_inputs
        from syno.model.counting import count

        torch.manual_seed(SEED)
        module = imported(self.factory, "factory")(**self.arguments)
        if not isinstance(module, torch.nn.Module):
            raise SpecError(f'the factory "{self.factory}" returned {type(module).__name__}; it must return an nn.Module')
        module = module.to(device).eval()
        shape = (batch, *self.input_shape)
        example = random_input(shape, torch.Generator(device).manual_seed(SEED), self.symbols)
        vary_constants(module, example, SEED)
        reference = in_double(module)
        counted = count(module, example)
        return Material(
            module=with_own_inputs(module, example),
            shape=shape,
            generator=torch.Generator(device).manual_seed(SEED),
            symbols=self.symbols,
            reference=reference,
            reference_name="eager module",
            flops=counted.flops + counted.attention_flops,
            inside=counted.inside,
            parameters=sum(parameter.numel() for parameter in module.parameters()),
        )
