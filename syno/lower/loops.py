"""The generator of C loops: a plan becomes one C function with a loop nest for each stage.

The text is C99 and compiles as it is; sizes are arguments, tensors are dense arrays of float.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from syno.algebra import Expression, iterator
from syno.algebra.code_names import C, code_name, words
from syno.ir.dim import Dim
from syno.lower.cut import Structure
from syno.lower.plan import Plan
from syno.lower.stages import Stage, accesses

HELPERS = {  # C rounds towards zero
    "floor_div": "static inline int floor_div(int a, int b) { return a / b - (a % b < 0); }\n",
    "floor_mod": "static inline int floor_mod(int a, int b) { return (a % b + b) % b; }\n",
}
# Functions that <stdlib.h> declares: an operator with one of these names gets another one.
LIBRARY = words(
    """
    a64l abort abs aligned_alloc alloca arc4random arc4random_buf arc4random_uniform at_quick_exit atexit atof atoi atol
    atoll bsearch calloc canonicalize_file_name clearenv div drand48 drand48_r ecvt ecvt_r erand48 erand48_r exit fcvt
    fcvt_r free gcvt getenv getloadavg getpt getsubopt grantpt initstate initstate_r jrand48 jrand48_r l64a labs lcong48
    lcong48_r ldiv llabs lldiv lrand48 lrand48_r malloc mblen mbstowcs mbtowc mkdtemp mkostemp mkostemp64 mkostemps
    mkostemps64 mkstemp mkstemp64 mkstemps mkstemps64 mktemp mrand48 mrand48_r nrand48 nrand48_r on_exit posix_memalign
    posix_openpt pselect ptsname ptsname_r putenv qecvt qecvt_r qfcvt qfcvt_r qgcvt qsort qsort_r quick_exit rand rand_r
    random random_r realloc reallocarray realpath rpmatch secure_getenv seed48 seed48_r select setenv setstate setstate_r
    srand srand48 srand48_r srandom srandom_r strfromd strfromf strfromf128 strfromf32 strfromf32x strfromf64 strfromf64x
    strfroml strtod strtod_l strtof strtof128 strtof128_l strtof32 strtof32_l strtof32x strtof32x_l strtof64 strtof64_l
    strtof64x strtof64x_l strtof_l strtol strtol_l strtold strtold_l strtoll strtoll_l strtoq strtoul strtoul_l strtoull
    strtoull_l strtouq system unlockpt unsetenv valloc wcstombs wctomb
    """
)


def to_c(plan: Plan) -> str:
    """Return the plan as a C function `void name(int sizes ..., const float x[...], const float w1[...], ..., float y[...])`.

    Sizes are in the order of the operator's variables. Intermediate results are allocated and freed inside. If the plan
    composes two weights, the composed weight is an argument in place of the two.

    >>> import syno
    >>> code = syno.to_c(syno.plan(syno.OPERATORS["matmul"](), {"M": 2, "K": 3, "N": 4}))
    >>> print(code.splitlines()[2])
    void matmul(int K, int M, int N, const float x[M][K], const float w1[K][N], float y[M][N]) {
    """
    graph = plan.staged
    structure = Structure(graph)
    name = re.sub(r"\W", "_", graph.name, flags=re.ASCII)
    if name in C | LIBRARY or name == "main" or not re.match("[A-Za-z_]", name):
        name = f"operator_{name}"
    parameters = [f"int {code_name(variable)}" for variable in graph.variables]
    parameters.append(f"const float x{_extents(graph.input)}")
    parameters += [f"const float w{number}{_extents(weight)}" for number, weight in enumerate(graph.weights, 1)]
    parameters.append(f"float y{_extents(graph.output)}")
    body: list[str] = []
    source: tuple[str, tuple[Dim, ...]] = ("x", graph.input)
    held: list[str] = []
    for number, stage in enumerate(plan.stages, 1):
        last = number == len(plan.stages)
        target = ("y", graph.output) if last else (f"t{number}", stage.output)
        sums = f" and sum over {', '.join(graph.labels[dim] for dim in stage.reduces)}" if stage.reduces else ""
        work = f"multiply with {', '.join(f'w{weight}' for weight in stage.weights)}" if stage.weights else "views"
        body.append(f"  // stage {number}: {work}{sums}")
        if not last and not target[1]:
            body.append(f"  float {target[0]}[1];")
        elif not last:
            body.append(f"  float (*{target[0]}){_sizes(target[1][1:])} = malloc(sizeof(float{_sizes(target[1])}));")
            held.append(target[0])
        body += _stage(structure, stage, source, target)
        source = target
    body += [f"  free({tensor});" for tensor in held]
    text = f"void {name}({', '.join(parameters)}) {{\n" + "\n".join(body) + "\n}\n"
    helpers = "".join(f"{definition}\n" for helper, definition in HELPERS.items() if f"{helper}(" in text)
    return f"#include <stdlib.h>\n\n{helpers}{text}"


def _stage(
    structure: Structure, stage: Stage, source: tuple[str, tuple[Dim, ...]], target: tuple[str, tuple[Dim, ...]]
) -> list[str]:
    graph = structure.graph
    found = accesses(structure, stage, source[1], target[1])
    reads = [_access(source[0], found.data)]
    reads += [_access(f"w{number}", indices) for number, indices in zip(stage.weights, found.weights, strict=True)]
    conditions = [f"0 <= {_text(index)} && {_text(index)} < {extent.integer_text('/')}" for index, extent in found.conditions]
    lines, depth = [], 1

    def loop(dims: Sequence[Dim]) -> None:
        nonlocal depth
        for dim in dims:
            label, extent = graph.labels[dim], dim.size.integer_text("/")
            lines.append(f"{'  ' * depth}for (int {label} = 0; {label} < {extent}; ++{label}) {{")
            depth += 1

    loop(target[1])
    if not target[1]:
        lines.append("  {")
        depth += 1
    lines.append(f"{'  ' * depth}float sum = 0;")
    outside = depth
    loop(stage.reduces)
    guard = f"if ({' && '.join(dict.fromkeys(conditions))}) " if conditions else ""
    lines.append(f"{'  ' * depth}{guard}sum += {' * '.join(reads)};")
    lines += [f"{'  ' * level}}}" for level in range(depth - 1, outside - 1, -1)]
    lines.append(f"{'  ' * outside}{_access(target[0], [iterator(graph.labels[dim], dim.size) for dim in target[1]])} = sum;")
    return lines + [f"{'  ' * level}}}" for level in range(outside - 1, 0, -1)]


def _text(expression: Expression) -> str:
    return expression.text(lambda size: size.integer_text("/"), "/")


def _access(tensor: str, indices: Sequence[Expression]) -> str:
    return tensor + "".join(f"[{_text(index)}]" for index in indices) if indices else f"{tensor}[0]"


def _sizes(dims: Sequence[Dim]) -> str:
    return "".join(f"[{dim.size.integer_text('/')}]" for dim in dims)


def _extents(dims: Sequence[Dim]) -> str:
    return _sizes(dims) or "[1]"  # a tensor without axes is one number
