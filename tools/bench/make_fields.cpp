// SPDX-License-Identifier: BSD-3-Clause
// usage: make_fields burgers|columns DIR [TRAINING [TEST]]
//
// Writes made-up fields for the recipes pde-fno.ini, pde-unet.ini and columns.ini, the same ones on every run:
//   burgers   DIR/train/burgers.h5 and DIR/test/burgers.h5 in the layout of PDEBench, 200 and 40 trajectories
//   columns   DIR/train/train_input.h5, train_target.h5 and the same in DIR/test as ClimSim has them, 100000 and 20000
//             rows
#include <ATen/core/Tensor.h>
#include <hdf5.h>
#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numbers>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

at::Tensor normal(std::mt19937_64& random, at::IntArrayRef shape) {
  std::normal_distribution<double> distribution;
  const at::Tensor numbers = torch::empty(shape, at::kDouble);
  double* const data = numbers.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) data[i] = distribution(random);
  return numbers;
}

// ---- Burgers' equation u_t + u u_x = viscosity u_xx on [0, 1), periodic.

constexpr double kViscosity = 0.004;
constexpr std::int64_t kFrames = 21;
constexpr double kBetween = 0.05;
constexpr std::int64_t kPoints = 256;
constexpr std::int64_t kFinePoints = 1024;
constexpr double kTimeStep = 1e-3;
constexpr std::int64_t kWaves = 4;

/// States of trajectories [count, frames, points] that begin as sines and cosines of the wave numbers 1 to 4 with
/// normal amplitudes and a root mean square of 1. Fourier modes in double, the upper third of them zero in products,
/// exact diffusion, and the Runge-Kutta method of order 4 for the rest.
at::Tensor burgers(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const at::Tensor amplitude = normal(random, {count, kWaves, 2});
  const at::Tensor phase = 2 * std::numbers::pi * torch::arange(1, kWaves + 1, at::kDouble).unsqueeze(1) *
                           torch::arange(kFinePoints, at::kDouble) / kFinePoints;
  at::Tensor u = at::matmul(amplitude.select(2, 0), phase.cos()) + at::matmul(amplitude.select(2, 1), phase.sin());
  u = u / u.square().mean({1}, /*keepdim=*/true).sqrt();
  at::Tensor v = at::fft_rfft(u);
  const at::Tensor k = torch::arange(kFinePoints / 2 + 1, at::kDouble);
  const at::Tensor kept = k.le(kFinePoints / 3).to(at::kDouble);
  const at::Tensor slope = at::complex(torch::zeros_like(k), -std::numbers::pi * k * kept);
  const at::Tensor half = at::exp(-kViscosity * (2 * std::numbers::pi * k).square() * kTimeStep / 2);
  const auto advect = [&](const at::Tensor& modes) {
    return slope * at::fft_rfft(at::fft_irfft(modes, kFinePoints).square());
  };
  std::vector<at::Tensor> frames;
  for (std::int64_t frame = 0; frame < kFrames; ++frame) {
    const std::int64_t steps = frame == 0 ? 0 : std::llround(kBetween / kTimeStep);
    for (std::int64_t i = 0; i < steps; ++i) {
      const at::Tensor a = advect(v);
      const at::Tensor b = advect(half * (v + kTimeStep / 2 * a));
      const at::Tensor c = advect(half * v + kTimeStep / 2 * b);
      const at::Tensor d = advect(half * (half * v + kTimeStep * c));
      v = half * (half * (v + kTimeStep / 6 * a) + kTimeStep / 3 * (b + c)) + kTimeStep / 6 * d;
    }
    frames.push_back(at::fft_irfft(v, kFinePoints).slice(1, 0, kFinePoints, kFinePoints / kPoints));
  }
  return at::stack(frames, 1);
}

// ---- Columns of an atmosphere.

constexpr std::int64_t kLevels = 30;

/// Smooth profiles of two correlated quantities on 30 levels, and four numbers: [count, 64].
at::Tensor column_inputs(std::mt19937_64& random, std::int64_t count) {
  const at::Tensor k = torch::arange(6, at::kDouble).unsqueeze(1);
  at::Tensor waves = at::cos(std::numbers::pi * k * torch::arange(kLevels, at::kDouble) / (kLevels - 1)) / (1 + k);
  waves = waves / waves.square().sum(0).mean().sqrt();
  const at::Tensor t = at::matmul(normal(random, {count, 6}), waves);
  const at::Tensor q = at::matmul(normal(random, {count, 6}), waves);
  return at::cat({t, 0.5 * t + q, normal(random, {count, 4})}, 1);
}

/// Heating and moistening of the columns, each on seven levels and as a mean: [count, 16].
at::Tensor column_targets(const at::Tensor& x) {
  const at::Tensor t = x.narrow(1, 0, kLevels), q = x.narrow(1, kLevels, kLevels);
  const auto number = [&x](std::int64_t i) { return x.narrow(1, 2 * kLevels + i, 1); };
  const at::Tensor sun = number(0), flux = number(1), wind = number(2), lid = number(3);
  const at::Tensor rain = at::relu(q - t.tanh());                                // water above saturation rains out
  const at::Tensor above = at::softplus(q).flip(1).cumsum(1).flip(1) / kLevels;  // water above dims the sun
  const at::Tensor light = at::relu(sun) * at::exp(-2 * above);
  const at::Tensor height = torch::arange(kLevels, at::kDouble) / (kLevels - 1);
  const at::Tensor mixing = at::tanh(flux + wind * t.narrow(1, 0, 1)) * at::exp(-3 * height / (1 + at::exp(-lid)));
  const at::Tensor heating = rain + 2 * light + mixing - 0.3 * t.tanh();
  const at::Tensor moistening = mixing * wind.tanh() - rain / (1 + at::exp(-2 * lid));
  const auto outputs = [](const at::Tensor& y) {
    return at::cat({y.slice(1, 2, kLevels, 4), y.mean({1}, /*keepdim=*/true)}, 1);
  };
  return at::cat({outputs(heating), outputs(moistening)}, 1);
}

struct Columns {
  at::Tensor inputs;
  at::Tensor targets;
};

/// The targets have noise of a tenth of their deviation, whose measure is the same for every seed.
Columns columns(std::int64_t count, std::uint64_t seed) {
  constexpr double kNoise = 0.1;
  std::mt19937_64 fixed(0), random(seed);
  const at::Tensor reference = column_targets(column_inputs(fixed, 10000));
  const at::Tensor x = column_inputs(random, count);
  const at::Tensor y = (column_targets(x) - reference.mean(0)) / reference.std(0, /*unbiased=*/false);
  return {.inputs = x, .targets = y + kNoise * normal(random, y.sizes())};
}

// ---- Files.

struct NamedArray {
  const char* name;
  at::Tensor values;
};

void require(bool is_done, const std::string& path) {
  if (!is_done) throw std::runtime_error(path + " cannot be written");
}

void write(const fs::path& path, const std::vector<NamedArray>& arrays) {
  fs::create_directories(path.parent_path());
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  require(file >= 0, path);
  for (const NamedArray& array : arrays) {
    const at::Tensor values = array.values.to(at::kFloat).contiguous();
    const std::vector<hsize_t> shape(values.sizes().begin(), values.sizes().end());
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t data = H5Dcreate2(file, array.name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    require(data >= 0 &&
                H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.const_data_ptr<float>()) >= 0,
            path);
    H5Dclose(data);
    H5Sclose(space);
  }
  require(H5Fclose(file) >= 0, path);
  std::printf("%s\n", path.c_str());
}

void write_burgers(const fs::path& folder, std::int64_t count, std::uint64_t seed) {
  write(folder / "burgers.h5", {{"tensor", burgers(count, seed)},
                                {"x-coordinate", torch::arange(kPoints, at::kDouble) / kPoints},
                                {"t-coordinate", kBetween * torch::arange(kFrames, at::kDouble)}});
}

void write_columns(const fs::path& folder, std::int64_t count, std::uint64_t seed) {
  const Columns made = columns(count, seed);
  write(folder / "train_input.h5", {{"data", made.inputs}});
  write(folder / "train_target.h5", {{"data", made.targets}});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 2 ? argv[1] : "";
  if (argc > 5 || (kind != "burgers" && kind != "columns")) {
    std::fprintf(stderr, "usage: make_fields burgers|columns DIR [TRAINING [TEST]]\n");
    return 2;
  }
  const bool is_burgers = kind == "burgers";
  const fs::path folder = argv[2];
  const std::int64_t training = argc > 3 ? std::atoll(argv[3]) : is_burgers ? 200 : 100000;
  const std::int64_t test = argc > 4 ? std::atoll(argv[4]) : is_burgers ? 40 : 20000;
  try {
    const auto write_part = is_burgers ? write_burgers : write_columns;
    write_part(folder / "train", training, 1);
    write_part(folder / "test", test, 2);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_fields: %s\n", error.what());
    return 1;
  }
  return 0;
}
