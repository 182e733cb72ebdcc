"""Small functions that generated modules carry along, each only where it is used."""

FUNCTIONS = {
    "stored_windows": '''
def stored_windows(x, axis, window):
    """y[..., j, i, ...] = x[..., i + j - window//2, ...], zero outside: every window, stored before its axis."""
    before, shape = window // 2, x.shape
    first = shape[0] if axis else 1  # of all axes, unfold lets the first alone be empty
    x = x.reshape(first, math.prod(shape[1:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    x = functional.unfold(functional.pad(x, [0, 0, before, window - 1 - before]), (window, 1))
    return x.reshape(*shape[:axis], window, *shape[axis:])
''',
    "windows": '''
def windows(x, axis, window):
    """y[..., i, ..., j] = x[..., i + j - window//2, ...], zero outside: every window, as a view of the padded tensor."""
    before = window // 2
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, window - 1 - before])
    return padded.unfold(axis, window, 1)
''',
    "shear": '''
def shear(x, axis, window, dilation=1):
    """y[..., i, ..., j, ...] = x[..., i + dilation*j - dilation*K//2, ..., j, ...], zero outside; K = x.shape[window]."""
    return torch.stack(sheared_slices(x, axis, window, dilation), window)
''',
    "shear_sum": '''
def shear_sum(x, axis, window, dilation=1):
    """y[..., i, ...] = sum over j of x[..., i + dilation*j - dilation*K//2, ..., j, ...], zero outside; K = x.shape[window]."""
    return sum(sheared_slices(x, axis, window, dilation))
''',
    "sheared_slices": '''
def sheared_slices(x, axis, window, dilation):
    """For each j along the axis `window`: that slice of x, moved along `axis` by dilation*j - dilation*K//2."""
    length, count = x.shape[axis], x.shape[window]
    before, reach = dilation * count // 2, dilation * (count - 1)
    after = reach - before if reach > before else 0
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after])
    moved = axis - (window < axis)
    return [padded.select(window, j).narrow(moved, dilation * j, length) for j in range(count)]
''',
    "window_sum": '''
def window_sum(x, axis, window, dilation=1):
    """y[..., i, ...] = sum over j of x[..., i + dilation*j - dilation*window//2, ...], zero outside."""
    length, before, reach = x.shape[axis], dilation * window // 2, dilation * (window - 1)
    after = reach - before if reach > before else 0
    padded = functional.pad(x, [0, 0] * (x.dim() - 1 - axis) + [before, after])
    return sum(padded.narrow(axis, dilation * j, length) for j in range(window))
''',
}
NEEDS = {"shear": ("sheared_slices",), "shear_sum": ("sheared_slices",)}


def definitions(used: set[str]) -> str:
    """Return the source of the functions used and of those they need, in the table's order, two empty lines around each."""
    needed = used | {other for name in used for other in NEEDS.get(name, ())}
    return "\n" + "".join(f"{text}\n" for name, text in FUNCTIONS.items() if name in needed)
