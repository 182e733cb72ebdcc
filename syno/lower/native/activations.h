// Activations of vectors, and the epilogue of an operator.
//
// The errors of "gelu" and "gelu_tanh" are below 4e-7 of the argument, as PyTorch's are; the others' are below 1e-6 of the
// result. NaN stays NaN: a comparison with it is false, and the argument is what remains then. Infinities become what they do in
// PyTorch.
#pragma once
#include "vectors.h"

namespace {

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

// A name of `Epilogue.activation` in Python is the name of a function here.
namespace activation {

inline Vector identity(Vector value) { return value; }
inline Vector relu(Vector value) { return value < 0 ? Vector{} : value; }
inline Vector relu6(Vector value) { return within(value, 0.0f, 6.0f); }
inline Vector leaky_relu(Vector value) { return value > 0 ? value : value * 0.01f; }
inline Vector hardsigmoid(Vector value) { return within(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f); }
inline Vector hardswish(Vector value) { return value * within(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f); }
inline Vector sigmoid(Vector value) { return 1.0f / (1.0f + exponential(-value)); }
inline Vector silu(Vector value) { return value / (1.0f + exponential(-value)); }
inline Vector tanh(Vector value) {
  const Vector square = value * value;
  Vector sum = square * -5.70498872745e-3f + 2.06390887954e-2f;
  sum = sum * square - 5.37397155531e-2f;
  sum = sum * square + 1.33314422036e-1f;
  sum = sum * square - 3.33332819422e-1f;
  return square < 0.390625f ? value + value * square * sum : 1.0f - 2.0f / (exponential(2.0f * value) + 1.0f);
}
inline Vector gelu(Vector value) { return value * normal_distribution(value); }
inline Vector gelu_tanh(Vector value) {
  return value / (1.0f + exponential(-1.5957691216f * (value + 0.044715f * value * value * value)));
}

}  // namespace activation

// What follows an operator: scale and shift of its channel, a residual, and an activation. A residual in a format of the
// caller's is added, and the activation computed, when the result is brought into that format.
enum Residual { NO_RESIDUAL, RESIDUAL_IN_PLACE, RESIDUAL_ON_THE_WAY_OUT };

template <bool SCALES, bool SHIFTS, Residual RESIDUAL, Vector (*ACTIVATION)(Vector)>
struct Epilogue {
  static constexpr bool ends_on_the_way_out = RESIDUAL == RESIDUAL_ON_THE_WAY_OUT;

  // At the end of the last nest.
  static inline Vector finish(
      Vector value, [[maybe_unused]] long channel, [[maybe_unused]] long where, [[maybe_unused]] const float* scale,
      [[maybe_unused]] const float* shift, [[maybe_unused]] const float* residual) {
    if constexpr (SCALES) value = value * scale[channel];
    if constexpr (SHIFTS) value = value + shift[channel];
    if constexpr (RESIDUAL == RESIDUAL_IN_PLACE) value += load_unaligned(residual + where);
    if constexpr (!ends_on_the_way_out) value = ACTIVATION(value);
    return value;
  }

  // On the way out.
  static inline Vector with_residual(Vector value, Vector residual) { return ACTIVATION(value + residual); }
  template <long WIDTH>
  static inline void store_result(float* y, Vector value, [[maybe_unused]] const float* residual) {
    if constexpr (ends_on_the_way_out) value = with_residual(value, load_first<WIDTH>(residual));
    store_first<WIDTH>(y, value);
  }
};

}  // namespace
