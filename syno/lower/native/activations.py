"""Activations that kernels compute with their results, in the vector types of GCC and clang.

The errors of "gelu" and "gelu_tanh" are below 4e-7 of the argument, as PyTorch's are; the others' are below 1e-6 of the result.
NaN stays NaN: a comparison with it is false, and the argument is what remains then. Infinities become what they do in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import Any

import numpy as np

# By name: an expression of the vector `value`.
ACTIVATIONS = {
    "identity": "value",
    "relu": "value < 0 ? Vector{} : value",
    "relu6": "within(value, 0.0f, 6.0f)",
    "leaky_relu": "value > 0 ? value : value * 0.01f",
    "hardsigmoid": "within(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f)",
    "hardswish": "value * within(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f)",
    "sigmoid": "1.0f / (1.0f + exponential(-value))",
    "silu": "value / (1.0f + exponential(-value))",
    "tanh": "hyperbolic_tangent(value)",
    "gelu": "value * normal_distribution(value)",
    "gelu_tanh": "value / (1.0f + exponential(-1.5957691216f * (value + 0.044715f * value * value * value)))",
}

FUNCTIONS = """\
// Of numbers that are not below zero, the bits are in the order of the numbers, and those of NaN are the largest.
inline Vector larger(Vector largest, Vector value) {
  const Mask before = (Mask)largest, bits = (Mask)value & 0x7fffffff;  // -0 and NaN may have a sign
  return (Vector)(bits > before ? bits : before);
}

inline Vector within(Vector value, float least, float most) {
  value = value < least ? Vector{} + least : value;
  return value > most ? Vector{} + most : value;
}

// As 2^n * e^r, with |r| <= log(2) / 2 and a polynomial for e^r. At both ends, the bits of 2^n are those of 0 and of infinity:
// a quotient by 1 + e^value is then 0, not a share of the largest number.
inline Vector exponential(Vector value) {
  value = within(value, -88.0f, 89.0f);
  const Vector shifted = value * 1.44269504f + 12582912.0f;  // its last bits are n
  const Vector n = shifted - 12582912.0f;
  const Vector r = (value - n * 0.693359375f) + n * 2.12194440e-4f;
  Vector sum = r * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * r + 8.3334519073e-3f;
  sum = sum * r + 4.1665795894e-2f;
  sum = sum * r + 1.6666665459e-1f;
  sum = sum * r + 5.0000001201e-1f;
  sum = sum * r * r + r + 1.0f;
  return sum * (Vector)(((Mask)shifted + (127 - 0x4b400000)) << 23);
}

inline Vector hyperbolic_tangent(Vector value) {
  const Vector square = value * value;
  Vector sum = square * -5.70498872745e-3f + 2.06390887954e-2f;
  sum = sum * square - 5.37397155531e-2f;
  sum = sum * square + 1.33314422036e-1f;
  sum = sum * square - 3.33332819422e-1f;
  return square < 0.390625f ? value + value * square * sum : 1.0f - 2.0f / (exponential(2.0f * value) + 1.0f);
}

// The probability that a standard normal variable is less (Abramowitz and Stegun 7.1.26).
inline Vector normal_distribution(Vector value) {
  const Vector size = value > 0 ? value : -value;
  const Vector t = 1.0f / (1.0f + 0.231641888f * size);
  Vector sum = t * 1.061405429f - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  sum = 0.5f * sum * t * exponential(-0.5f * value * value);
  return value > 0 ? 1.0f - sum : sum;
}
"""


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


# By name: the function in double precision.
EXACT: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * _sigmoid(sqrt(8 / pi) * (x + 0.044715 * x**3)),
}
