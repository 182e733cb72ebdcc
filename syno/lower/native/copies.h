// Copies of tensors between the caller's formats and scratch: planes, and blocks of samples.
#pragma once
#include "activations.h"

namespace {

// Planes. `outside` and `inside` are the floats between neighbouring rows in the caller's memory and in scratch.

// The last vector of a row reaches beyond it. It may where a following row is copied over it; in scratch, it brings the zeros
// between rows. `whole` rows of `rows` are such.
template <long LENGTH>
inline void copy_rows(const float* x, float* to, long rows, long whole, long outside, long inside) {
  constexpr long LAST = LENGTH / LANES * LANES, REST = LENGTH - LAST;
  for (long row = 0; row < rows; ++row, x += outside, to += inside) {
    for (long first = 0; first < LAST; first += LANES) store_unaligned(to + first, load_unaligned(x + first));
    if (!REST) continue;
    if (row < whole) store_unaligned(to + LAST, first_lanes<REST>(load_unaligned(x + LAST)));
    else store_first<REST>(to + LAST, load_first<REST>(x + LAST));
  }
}

// Neighbours outside are rows in scratch: blocks of vectors are transposed. The last block overlaps the one before.
template <long ROWS, long LENGTH>
inline void copy_exchanged(const float* x, float* to, long rows, long outside, long inside) {
  constexpr long HEIGHT = ROWS < LANES ? ROWS : LANES, WIDTH = LENGTH < LANES ? LENGTH : LANES;
  if (rows < HEIGHT) {
    for (long row = 0; row < rows; ++row)
      for (long at = 0; at < LENGTH; ++at) to[row * inside + at] = x[at * outside + row];
    return;
  }
  for (long place = 0; place < rows; place += HEIGHT)
    for (long at = 0; at < LENGTH; at += WIDTH) {
      const long row = place < rows - HEIGHT ? place : rows - HEIGHT, first = at < LENGTH - WIDTH ? at : LENGTH - WIDTH;
      Vector block[LANES];
      for (long lane = 0; lane < LANES; ++lane)
        block[lane] = lane < WIDTH ? load_first<HEIGHT>(x + (first + lane) * outside + row) : Vector{};
      transpose(block);
      for (long lane = 0; lane < HEIGHT; ++lane) store_first<WIDTH>(to + (row + lane) * inside + first, block[lane]);
    }
}

// Neighbours in scratch are every so many-th outside.
template <long STEP, long LENGTH>
inline void copy_every(const float* __restrict x, float* __restrict to, long rows, long outside, long inside) {
  for (long row = 0; row < rows; ++row, x += outside, to += inside) {
    if constexpr (STEP == 2 && LENGTH >= LANES) {
      for (long place = 0; place < LENGTH; place += LANES) {  // the last vector overlaps the one before
        const long first = place < LENGTH - LANES ? place : LENGTH - LANES;
        const float* from = x + 2 * first;  // behind the last element, nothing is read
        store_unaligned(to + first, every_second(load_unaligned(from), load_unaligned(from + LANES - 1)));
      }
    } else {
      for (long at = 0; at < LENGTH; ++at) to[at] = x[STEP * at];
    }
  }
}

// The same back, with the end of the epilogue. `END` is an `Epilogue`.
template <class END, long WIDTH>
inline void finish_part(const float* from, float* y, const float* residual) {
  END::template store_result<WIDTH>(y, load_first<WIDTH>(from), residual);
}
template <class END, long LENGTH>
inline void finish_rows(
    const float* from, float* y, const float* residual, long rows, long whole, long outside, long inside) {
  constexpr long LAST = LENGTH / LANES * LANES, REST = LENGTH - LAST;
  for (long row = 0; row < rows; ++row, from += inside, y += outside, residual += outside) {
    for (long first = 0; first < LAST; first += LANES) finish_part<END, LANES>(from + first, y + first, residual + first);
    if (!REST) continue;
    if (row < whole) finish_part<END, LANES>(from + LAST, y + LAST, residual + LAST);
    else finish_part<END, REST>(from + LAST, y + LAST, residual + LAST);
  }
}
template <class END, long ROWS, long LENGTH>
inline void finish_exchanged(const float* from, float* y, const float* residual, long rows, long outside, long inside) {
  constexpr long HEIGHT = ROWS < LANES ? ROWS : LANES, WIDTH = LENGTH < LANES ? LENGTH : LANES;
  for (long place = 0; place < rows; place += HEIGHT)
    for (long at = 0; at < LENGTH; at += WIDTH) {
      const long row = place < rows - HEIGHT ? place : rows - HEIGHT, first = at < LENGTH - WIDTH ? at : LENGTH - WIDTH;
      Vector block[LANES];
      for (long lane = 0; lane < LANES; ++lane)
        block[lane] = lane < HEIGHT ? load_first<WIDTH>(from + (row + lane) * inside + first) : Vector{};
      transpose(block);
      for (long lane = 0; lane < WIDTH; ++lane) {
        const long here = (first + lane) * outside + row;
        END::template store_result<HEIGHT>(y + here, block[lane], residual + here);
      }
    }
}

// Positions ahead of the first one and behind the last one become those of the other border.
template <long EXTENT, long BEFORE, long AFTER, long PITCH>
inline void copy_borders(float* first) {
  for (long at = 1; at <= BEFORE; ++at) std::memcpy(first - PITCH * at, first + PITCH * (EXTENT - at), 4 * PITCH);
  for (long at = 0; at < AFTER; ++at) std::memcpy(first + PITCH * (EXTENT + at), first + PITCH * at, 4 * PITCH);
}

// A band of rows of a plane: ROWS from `row` on, with more before and after that are read with them.
template <long EXTENT, long ROWS, long BEFORE, long AFTER, long PITCH>
struct Band {
  // Rows that are outside of the plane become zero; the band begins at `first`.
  static inline void clear_outside(float* first, long row) {
    const long early = BEFORE - row, late = row + ROWS + AFTER - EXTENT;
    if (early > 0) std::memset(first, 0, 4 * PITCH * early);
    if (late > 0) std::memset(first + PITCH * (BEFORE + ROWS + AFTER - late), 0, 4 * PITCH * late);
  }

  // Brings the rows into scratch by pack(x, to, rows); where WRAPS, those of the other border are the ones outside of the plane.
  template <bool WRAPS, class Pack>
  static inline void bring_in(const float* plane, float* scratch, long row, long outside, Pack pack) {
    const long early = BEFORE - row, late = row + ROWS + AFTER - EXTENT;
    const long from = early > 0 ? 0 : -early, until = late > 0 ? EXTENT : EXTENT + late;
    pack(plane + outside * from, scratch + PITCH * (from - row + BEFORE), until - from);
    if (WRAPS && early > 0) pack(plane + outside * (EXTENT - early), scratch, early);
    if (WRAPS && late > 0) pack(plane, scratch + PITCH * (EXTENT + BEFORE - row), late);
  }
};

// Blocks of samples: one sample for each lane.

// Writes where the samples of a block begin, and returns how many there are. `place` says where a sample begins.
template <class Place>
inline long places_of_samples(long number, long samples, long* at, Place place) {
  const long first = number * LANES, count = samples - first < LANES ? samples - first : LANES;
  for (long lane = 0; lane < LANES; ++lane) at[lane] = place(first + (lane < count ? lane : 0));
  return count;
}

// Whether each lane's element follows that of the lane before it.
inline bool are_neighbours(const long* at) {
  long apart = 0;
  for (long lane = 1; lane < LANES; ++lane) apart |= at[lane] - at[0] - lane;
  return !apart;
}

// Where neighbours of a sample lie in scratch, if they are neighbours there, too. Else a table says it, which is used alike.
struct SideBySide {
  long first = 0;
  SideBySide operator+(long more) const { return {first + more}; }
  long operator[](long row) const { return (first + row) * LANES; }
};

// Neighbours of each sample become vectors, one for each of the neighbours; and back.
template <long WIDTH, class Places>
inline void pack_columns(const float* x, const long* at, long count, float* to, Places places) {
  Vector rows[LANES];
  for (long lane = 0; lane < LANES; ++lane) rows[lane] = lane < count ? load_first<WIDTH>(x + at[lane]) : Vector{};
  transpose(rows);
  for (long row = 0; row < WIDTH; ++row) store(to + places[row], rows[row]);
}
template <long RUN, class Places>
inline void pack_run(const float* x, const long* at, long count, float* to, Places places) {
  constexpr long LAST = RUN / LANES * LANES;
  for (long first = 0; first < LAST; first += LANES) pack_columns<LANES>(x + first, at, count, to, places + first);
  if constexpr (LAST < RUN) pack_columns<RUN - LAST>(x + LAST, at, count, to, places + LAST);
}
template <class END, long WIDTH, class Places>
inline void unpack_columns(const float* from, const long* at, long count, float* y, const float* residual, Places places) {
  Vector rows[LANES];
  for (long row = 0; row < LANES; ++row) rows[row] = row < WIDTH ? load(from + places[row]) : Vector{};
  transpose(rows);
  for (long lane = 0; lane < LANES; ++lane)
    if (lane < count) END::template store_result<WIDTH>(y + at[lane], rows[lane], residual + at[lane]);
}
template <class END, long RUN, class Places>
inline void unpack_run(const float* from, const long* at, long count, float* y, const float* residual, Places places) {
  constexpr long LAST = RUN / LANES * LANES;
  for (long first = 0; first < LAST; first += LANES)
    unpack_columns<END, LANES>(from, at, count, y + first, residual + first, places + first);
  if constexpr (LAST < RUN) unpack_columns<END, RUN - LAST>(from, at, count, y + LAST, residual + LAST, places + LAST);
}

// One element of each sample.
inline void pack_element(const float* x, const long* at, long count, float* to) {
  for (long lane = 0; lane < count; ++lane) to[lane] = x[at[lane]];
}
template <class END>
inline void unpack_element(const float* from, const long* at, long count, float* y, [[maybe_unused]] const float* residual) {
  Vector value = load(from), added = {};
  if constexpr (END::ends_on_the_way_out) {
    for (long lane = 0; lane < count; ++lane) added[lane] = residual[at[lane]];
    value = END::with_residual(value, added);
  }
  for (long lane = 0; lane < count; ++lane) y[at[lane]] = value[lane];
}

}  // namespace
