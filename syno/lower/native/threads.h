// The blocks of a program, which one thread or several compute, and the times of the parts of a block.
#pragma once
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#define THREADS omp_get_num_threads()
#define BARRIER if (parts > 1) { _Pragma("omp barrier") }
#else
#define THREAD 0
#define THREADS 1
#define BARRIER
#endif

// For the choice of schedules: the least time of bringing the input in, of each nest, and of bringing the output out.
#ifdef SYNO_LAPS
#include <time.h>
static inline long long nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // the clock of this thread alone takes 30 times as long to read
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
#define LAPS(name, count) extern "C" { long long name##_laps[count]; }
#define START long long lap = nanoseconds();
#define LAP(name, number) { const long long now = nanoseconds(), took = now - lap; \
  if (took < name##_laps[number] || !name##_laps[number]) name##_laps[number] = took; lap = now; }
#else
#define LAPS(name, count)
#define START
#define LAP(name, number)
#endif

namespace {

// Calls block(scratch, number, part, parts) for each block. Where there are fewer blocks than threads, each thread computes a
// part of every block.
template <class Block>
inline void run_blocks(long blocks, float* scratch, long size, int threads, Block block) {
  std::memset(scratch, 0, 4 * size * threads);  // halos stay zero
  if (threads == 1) {
    for (long number = 0; number < blocks; ++number) block(scratch, number, 0, 1);
  } else if (blocks >= threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long number = 0; number < blocks; ++number) block(scratch + size * THREAD, number, 0, 1);
  } else {
#pragma omp parallel num_threads(threads)
    for (long number = 0; number < blocks; ++number) {
      block(scratch, number, THREAD, THREADS);
#pragma omp barrier
    }
  }
}

}  // namespace
