// Loops that do nothing but products, reads or copies: no code is faster. LANES are the floats of a vector, CHAINS the
// independent chains of products, more than hide the latency of one product.
typedef float Vector __attribute__((vector_size(4 * LANES), may_alias));

constexpr long UNROLLED = 8;  // sums and copies of an iteration

extern "C" float products(const float* starts, long laps, float factor, float summand) {
  Vector chains[CHAINS], total = {};
  // From one start, compilers make one chain of them all, which then seemed to be that many times as fast.
#pragma GCC unroll 32
  for (long chain = 0; chain < CHAINS; ++chain) chains[chain] = Vector{} + starts[chain];
  const Vector f = Vector{} + factor, s = Vector{} + summand;
#pragma GCC unroll 1
  for (long lap = 0; lap < laps; ++lap) {
#pragma GCC unroll 32
    for (long chain = 0; chain < CHAINS; ++chain) chains[chain] = chains[chain] * f + s;
  }
#pragma GCC unroll 32
  for (long chain = 0; chain < CHAINS; ++chain) total += chains[chain];
  return total[0];
}

extern "C" float reads(const Vector* x, Vector*, long vectors, long laps) {
  Vector sums[UNROLLED] = {}, total = {};
  for (long lap = 0; lap < laps; ++lap) {
    for (long first = 0; first < vectors; first += UNROLLED) {
#pragma GCC unroll 8
      for (long at = 0; at < UNROLLED; ++at) sums[at] += x[first + at];
    }
    __asm__ volatile("" ::: "memory");
  }
#pragma GCC unroll 8
  for (long at = 0; at < UNROLLED; ++at) total += sums[at];
  return total[0];
}

extern "C" float copies(const Vector* x, Vector* y, long vectors, long laps) {
  for (long lap = 0; lap < laps; ++lap) {
    for (long first = 0; first < vectors; first += UNROLLED) {
#pragma GCC unroll 8
      for (long at = 0; at < UNROLLED; ++at) y[first + at] = x[first + at];
    }
    __asm__ volatile("" ::: "memory");
  }
  return 0;
}
