"""Names of variables in generated code.

A variable may have a name that generated code uses itself, such as `forward` in a PyTorch module or `int` in C. Then its name
in the code gets an ending: `forward_size`, `int_size`. All generators share the reserved names, so a variable has the same name
in all generated code.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

ENDING = "_size"


def words(text: str) -> frozenset[str]:
    """Split a text at white space into a set of words."""
    return frozenset(text.split())


# Public attributes of torch.nn.Module and of its instances. Module.__getattr__ and state_dict depend on them.
MODULE = words(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
    extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
    named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
    state_dict to to_empty train training type xpu zero_grad
    """
)
# Attributes that `build` adds to a module, and methods of generated modules.
OWN_ATTRIBUTES = words(
    """
    composed composed_weight freeze graph is_channels_first_on_gpus is_channels_last keep_prepared_weights mode prepared_weights
    reset_parameters sizes source
    """
)
BUILTINS = words("ValueError int len list range self sum super tuple")
PYTORCH = words(
    """
    device drawn dtype fan_in functional generator init layout math name nn one seed shape shear shear_sum sheared_slices
    stored stored_windows torch w weight window_sum windows x
    """
)
TENSOR_EXPRESSIONS = words("build dtype element inside padded placeholders product rotated te tirx topi tvm x y")
# Keywords up to C23 and of GNU C, macros that compilers predefine, and macros of <stdlib.h>.
C = words(
    """
    alignas alignof asm auto bool break case char const constexpr continue default do double else enum extern false float
    for goto if inline int long nullptr register restrict return short signed sizeof static static_assert struct switch
    thread_local true typedef typeof typeof_unqual union unsigned void volatile while BIG_ENDIAN BYTE_ORDER FD_SETSIZE
    LITTLE_ENDIAN NFDBITS PDP_ENDIAN linux unix i386 EXIT_FAILURE EXIT_SUCCESS MB_CUR_MAX NULL RAND_MAX WCONTINUED WEXITED
    WNOHANG WNOWAIT WSTOPPED WUNTRACED floor_div floor_mod free malloc sum x y
    """
)
RESERVED = frozenset(keyword.kwlist) | MODULE | OWN_ATTRIBUTES | BUILTINS | PYTORCH | TENSOR_EXPRESSIONS | C
_NUMBERED = re.compile(r"[wtird]\d+|stage_\d+")  # tensors, intermediate results, loops, stages


def code_name(name: str) -> str:
    """Return a variable's name in generated code: its own name, with an ending if generated code reserves that name.

    Different variables always have different names.
    """
    is_reserved = stem(name) in RESERVED or _NUMBERED.fullmatch(stem(name))
    return name + ENDING if is_reserved else name


def stem(name: str) -> str:
    """Return a variable's name without the endings that `code_name` adds."""
    while name.endswith(ENDING):
        name = name.removesuffix(ENDING)
    return name


def renamed_in_code(names: Iterable[str]) -> dict[str, str]:
    """Return the variables that generated code renames, each with its new name."""
    return {name: code_name(name) for name in names if code_name(name) != name}


def renaming_note(names: Iterable[str]) -> str:
    """Return a comment for generated code that lists the renamed variables; empty if there are none."""
    changed = [f"{name} is {other}" for name, other in renamed_in_code(names).items()]
    return f"# Variables that have other names in this code: {', '.join(changed)}\n" if changed else ""
