"""The compiler of this package for processors: one C++ function for a whole operator at given sizes.

`nests` makes a loop nest of each stage of a plan, `sample_lanes` or `plane_lanes` gives its tensors places in memory
(`layouts`, `loop_code`), and `schedules` ranks tiles and orders of its loops for a `target`. Then three layers of text, none of
which knows the one above it: the runtime, which is the same in every file (`*.h`: vectors of an instruction set, activations,
copies, threads; `source` reads it); the function of each nest (`nest_writer`) and the loops that bring tensors in and out
(`copies`); and the entry, which calls them for each block (`program`). A file holds the runtime once, then a namespace for
each operator. Of a convolution with a bias and ReLU, in planes, this is written:

    using End = Epilogue<false, true, NO_RESIDUAL, activation::relu>;      // program, for activations.h
    static void conv_pack(const float* x, float* to, ...) {                // plane_lanes, the loop by copies
      for (long e0 = 3 * part / parts; e0 < 3 * (part + 1) / parts; ++e0)
        copy_rows<5>(x + 25 * e0, to + 48 * e0 + 8, 5, 5 - 1, 5, 6);       // a function of copies.h
    }
    static void conv_nest0(const float* __restrict x, ...) { ... }         // nest_writer, by its schedule
    extern "C" void conv(const float* x, ..., float* memory, long samples, int threads) {  // program
      const long blocks = (samples + 0) / 1 * 1;
      run_blocks(blocks, memory, 368, threads, [=](float* scratch, ...) {  // of threads.h; 368 floats of scratch
        conv_pack(x + 75 * number, scratch, 0, part, parts);               // plane_lanes
        conv_nest0(scratch, w, scratch + 160, scale, shift, added, part, parts);
        conv_unpack(scratch + 160, y + 100 * number, ...);                 // adds no residual: End says so
      });
    }
"""
