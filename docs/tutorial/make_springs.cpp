// SPDX-License-Identifier: BSD-3-Clause
// make_springs FILE: writes simulated measurements of damped springs into an HDF5 file.
//   /signal     [4096, 64] float32: displacement at the times 0, 1, ... 63, with noise
//   /frequency  [4096] float32: the true angular frequency
#include <hdf5.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr hsize_t kSamples = 4096;
constexpr hsize_t kTimes = 64;

bool write(hid_t file, const char* name, int dimensions, const std::vector<float>& values) {
  const std::array<hsize_t, 2> shape = {kSamples, kTimes};
  const hid_t space = H5Screate_simple(dimensions, shape.data(), nullptr);
  const hid_t array = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const bool is_written = H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0;
  H5Dclose(array);
  H5Sclose(space);
  return is_written;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_springs FILE\n");
    return 2;
  }
  std::mt19937 generator(1);
  const auto uniform = [&generator](double low, double high) {
    return low + (high - low) * static_cast<double>(generator()) / 4294967296.0;
  };
  std::vector<float> signals, frequencies;
  for (hsize_t i = 0; i < kSamples; ++i) {
    const double frequency = uniform(0.2, 1.2), phase = uniform(0, 6.283185307179586);
    const double damping = uniform(0.01, 0.2), noise = uniform(0.02, 0.5);
    frequencies.push_back(static_cast<float>(frequency));
    for (hsize_t j = 0; j < kTimes; ++j) {
      const auto time = static_cast<double>(j);
      const double displacement = std::exp(-damping * time) * std::cos(frequency * time + phase);
      signals.push_back(static_cast<float>(displacement + noise * uniform(-1, 1)));
    }
  }
  const hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const bool is_written = file >= 0 && write(file, "signal", 2, signals) && write(file, "frequency", 1, frequencies);
  return is_written && H5Fclose(file) >= 0 ? 0 : 1;
}
