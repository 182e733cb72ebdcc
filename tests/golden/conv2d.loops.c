#include <stdlib.h>

void conv2d(int C_in, int C_out, int H, int N, int k, const float x[N][C_in][H][H], const float w1[C_out][C_in][k][k], float y[N][C_out][H][H]) {
  // stage 1: multiply with w1 and sum over r0, r1, r2
  for (int i0 = 0; i0 < N; ++i0) {
    for (int i1 = 0; i1 < C_out; ++i1) {
      for (int i2 = 0; i2 < H; ++i2) {
        for (int i3 = 0; i3 < H; ++i3) {
          float sum = 0;
          for (int r0 = 0; r0 < C_in; ++r0) {
            for (int r1 = 0; r1 < k; ++r1) {
              for (int r2 = 0; r2 < k; ++r2) {
                if (0 <= i2 + r1 - k/2 && i2 + r1 - k/2 < H && 0 <= i3 + r2 - k/2 && i3 + r2 - k/2 < H) sum += x[i0][r0][i2 + r1 - k/2][i3 + r2 - k/2] * w1[i1][r0][r1][r2];
              }
            }
          }
          y[i0][i1][i2][i3] = sum;
        }
      }
    }
  }
}
