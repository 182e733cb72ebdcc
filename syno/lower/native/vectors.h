// Vectors of floats, in the types of GCC and clang. SYNO_LANES says how many a vector has: 4, 8 or 16.
#pragma once
#include <cstring>

#ifndef SYNO_LANES
#define SYNO_LANES 4
#endif

// f(0), f(1) and so on, for each lane.
#if SYNO_LANES == 16
#define EACH_LANE(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#elif SYNO_LANES == 8
#define EACH_LANE(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#else
#define EACH_LANE(f) f(0), f(1), f(2), f(3)
#endif

// What is read once for several products stays in a register: compilers would read it again for each of them.
#if defined(__AVX512F__)
#define HOLD(value) __asm__("" : "+v"(value))
#elif defined(__x86_64__)
#define HOLD(value) __asm__("" : "+x"(value))
#elif defined(__aarch64__)
#define HOLD(value) __asm__("" : "+w"(value))
#else
#define HOLD(value)
#endif

// What the step before has read is read again: compilers would keep it in registers that the results need.
#define READ_AGAIN __asm__ volatile("" ::: "memory")

namespace {

constexpr long LANES = SYNO_LANES;
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));
typedef int Mask __attribute__((vector_size(4 * LANES), may_alias));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vector load(const float* at) { return *(const Vector*)at; }
inline Vector load_unaligned(const float* at) { return *(const Unaligned*)at; }
inline void store(float* at, Vector value) { *(Vector*)at = value; }
inline void store_unaligned(float* at, Vector value) { *(Unaligned*)at = value; }

#define ITSELF(lane) value
inline Vector broadcast(float value) { return Vector{EACH_LANE(ITSELF)}; }
#undef ITSELF

// All bits of the first lanes.
#define ALL_BITS(lane) -1
template <long COUNT>
inline Mask all_bits() {
  constexpr int each[2 * LANES] = {EACH_LANE(ALL_BITS)};
  Mask bits;
  std::memcpy(&bits, each + LANES - COUNT, sizeof bits);
  return bits;
}
#undef ALL_BITS

// The first lanes; nothing behind them is read or written.
template <long COUNT>
inline Vector load_first(const float* at) {
  if constexpr (COUNT == LANES) return load_unaligned(at);
#if defined(__AVX512F__) && SYNO_LANES == 16 && defined(__clang__)
  return __builtin_ia32_loadups512_mask((const Vector*)at, Vector{}, (1 << COUNT) - 1);
#elif defined(__AVX512F__) && SYNO_LANES == 16
  return __builtin_ia32_loadups512_mask(at, Vector{}, (1 << COUNT) - 1);
#elif defined(__AVX2__) && SYNO_LANES == 8
  return __builtin_ia32_maskloadps256((const Vector*)at, all_bits<COUNT>());
#else
  Vector value = {};  // a copy of a few bytes, which then have to be put together in memory
  std::memcpy(&value, at, 4 * COUNT);
  return value;
#endif
}
template <long COUNT>
inline Vector first_lanes(Vector value) { return (Vector)((Mask)value & all_bits<COUNT>()); }
template <long COUNT>
inline void store_first(float* at, Vector value) { std::memcpy(at, &value, 4 * COUNT); }

// Every second element from the first, of two vectors that follow each other and share one element.
#define SECOND(lane) 2 * lane + (2 * lane >= LANES)
inline Vector every_second(Vector a, Vector b) { return __builtin_shufflevector(a, b, EACH_LANE(SECOND)); }
#undef SECOND

// Rows become columns: halves of rows that are DISTANCE apart are exchanged, for each power of two.
#define LOW(lane) (lane & DISTANCE ? lane - DISTANCE + LANES : lane)
#define HIGH(lane) (lane & DISTANCE ? lane + LANES : lane + DISTANCE)
template <long DISTANCE, long ROW>
inline void exchange_halves(Vector* rows) {
  if constexpr (!(ROW & DISTANCE)) {
    const Vector a = rows[ROW], b = rows[ROW + DISTANCE];
    rows[ROW] = __builtin_shufflevector(a, b, EACH_LANE(LOW));
    rows[ROW + DISTANCE] = __builtin_shufflevector(a, b, EACH_LANE(HIGH));
  }
}
#undef LOW
#undef HIGH
#define EXCHANGE(row) exchange_halves<DISTANCE, row>(rows)
template <long DISTANCE = LANES / 2>
inline void transpose(Vector* rows) {
  EACH_LANE(EXCHANGE);
  if constexpr (DISTANCE > 1) transpose<DISTANCE / 2>(rows);
}
#undef EXCHANGE

}  // namespace
