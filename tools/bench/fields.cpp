// SPDX-License-Identifier: BSD-3-Clause
// Lockstep's side of tools/bench/fields.
//
// usage: bench_fields make FOLDER STEPS MB       writes four HDF5 files of maps with int16 numbers, MB in all, in
//                                                compressed chunks of STEPS steps; 0 = contiguous float32
//        bench_fields load FOLDER ORDER WORKERS CACHE_MB SECONDS
//                                                answers each line of the input with samples per second and the
//                                                processor time of a sample in ms; ORDER is random or chunks
//        bench_fields contiguous FOLDER ROUNDS   prints the time of a sample in us of a loop of preads, of the loader
//                                                without normalization, and with it
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>

#include <ATen/core/Tensor.h>
#include <hdf5.h>
#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <limits>
#include <numbers>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "models/layers/field_normalization.hpp"
#include "program.hpp"
#include "timing.hpp"

namespace lockstep::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 181;
constexpr std::int64_t kColumns = 360;
constexpr std::int64_t kPoints = kRows * kColumns;
constexpr int kFiles = 4;
constexpr std::int64_t kBatch = 8;
constexpr std::uint64_t kSeed = 1;
constexpr const char* kVariable = "t2m";
constexpr double kScale = 0.002;
constexpr double kOffset = 280;
constexpr double kStd = 20;

// --- files ---

void require(bool is_done, const std::string& path) {
  if (!is_done) throw std::runtime_error(path + " cannot be written");
}

/// Waves around the globe and noise, in K.
class Weather {
 public:
  explicit Weather(std::uint64_t seed) : random_(seed) {}

  std::vector<double> map(std::int64_t step) {
    std::vector<double> wave;
    for (std::int64_t x = 0; x < kColumns; ++x) wave.push_back(5 * std::sin(radians(x * 3 + 7 * step)));
    std::vector<double> values;
    values.reserve(kPoints);
    for (std::int64_t y = 0; y < kRows; ++y) {
      const double mean = 20 * std::cos(radians(y - 90));
      for (const double warm : wave) values.push_back(mean + warm + 0.5 * noise_(random_));
    }
    return values;
  }

 private:
  static double radians(std::int64_t degrees) { return static_cast<double>(degrees) * std::numbers::pi / 180; }

  std::mt19937_64 random_;
  std::normal_distribution<double> noise_;
};

void write_attribute(hid_t set, const char* name, double value) {
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t attribute = H5Acreate2(set, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value);
  H5Aclose(attribute);
  H5Sclose(space);
}

/// @param chunk_steps  0 = float32 without chunks
void write_file(const std::string& path, std::int64_t steps, std::int64_t chunk_steps, std::uint64_t seed) {
  const std::vector<hsize_t> shape = {static_cast<hsize_t>(steps), kRows, kColumns};
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  require(file >= 0, path);
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  if (chunk_steps > 0) {
    const std::vector<hsize_t> chunk = {static_cast<hsize_t>(chunk_steps), kRows, kColumns};
    H5Pset_chunk(properties, 3, chunk.data());
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 4);
  }
  const hid_t space = H5Screate_simple(3, shape.data(), nullptr);
  const hid_t set = H5Dcreate2(file, kVariable, chunk_steps > 0 ? H5T_STD_I16LE : H5T_IEEE_F32LE, space, H5P_DEFAULT,
                               properties, H5P_DEFAULT);
  require(set >= 0, path);
  if (chunk_steps > 0) {
    write_attribute(set, "scale_factor", kScale);
    write_attribute(set, "add_offset", kOffset);
  }
  Weather weather(seed);
  const std::int64_t block = std::max<std::int64_t>(chunk_steps, 1);
  for (std::int64_t step = 0; step < steps; step += block) {
    std::vector<double> numbers;
    for (std::int64_t k = 0; k < block; ++k) {
      for (const double value : weather.map(step + k)) {
        numbers.push_back(chunk_steps > 0 ? std::clamp(std::round(value / kScale), -32000.0, 32000.0)
                                          : value + kOffset);
      }
    }
    const std::vector<hsize_t> start = {static_cast<hsize_t>(step), 0, 0};
    const std::vector<hsize_t> count = {static_cast<hsize_t>(block), kRows, kColumns};
    const hid_t memory = H5Screate_simple(3, count.data(), nullptr);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    require(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, numbers.data()) >= 0, path);
    H5Sclose(memory);
  }
  H5Dclose(set);
  H5Sclose(space);
  H5Pclose(properties);
  require(H5Fclose(file) >= 0, path);
}

/// Files that are there already stay.
void make_files(const fs::path& folder, std::int64_t chunk_steps, std::int64_t megabytes) {
  fs::create_directories(folder);
  const std::int64_t bytes = kPoints * (chunk_steps > 0 ? 2 : 4) * kFiles;
  const std::int64_t block = std::max<std::int64_t>(chunk_steps, 1);
  const std::int64_t steps = (megabytes * 1'000'000 / bytes + block) / block * block;
  for (int i = 0; i < kFiles; ++i) {
    const fs::path path = folder / ("part_" + std::to_string(i) + ".h5");
    if (fs::exists(path)) continue;
    const std::string unfinished = path.string() + ".new";
    write_file(unfinished, steps, chunk_steps, 3 + static_cast<std::uint64_t>(i));
    fs::rename(unfinished, path);
  }
}

// --- loading ---

Section data_section(const std::string& folder, const std::string& order, const std::string& cache_mb) {
  Section data = Section::with_defaults("data", data::data_keys(data::builtin_sources(), data::builtin_samplers()));
  const auto set = [&data](const char* key, const std::string& value) { data.set(key, value, "bench"); };
  set("name", "fields");
  set("path", folder + "/part_*.h5");
  set("variables", kVariable);
  set("layout", "tyx");
  set("normalize", "none");
  set("chunk_cache_mb", cache_mb);
  if (order == "chunks") set("sampler", "chunks");
  return data;
}

/// The normalization of a model that reads these fields.
models::FieldNormalization normalization() {
  return {FieldScaling{.input_shift = {kOffset},
                       .input_scale = {kStd},
                       .target_shift = {kOffset},
                       .target_scale = {kStd},
                       .input_channels = 1,
                       .fed_back = {0}},
          at::kFloat};
}

/// An endless sequence of batches, as a training reads them.
class Batches {
 public:
  Batches(const Section& data, int workers) {
    const std::shared_ptr<const data::Dataset> dataset =
        data::open(data, data::builtin_sources(), {.seed = kSeed, .used = {.val = false, .test = false}}).train;
    const data::Sampler sampler =
        data::make_sampler(data, {.dataset = dataset.get(), .global_batch_size = kBatch, .seed = kSeed});
    const auto draws_of = [sampler](std::int64_t k) {
      const std::int64_t steps = sampler.steps_per_epoch();
      return sampler.draws(k / steps, k % steps, {0, kBatch});
    };
    loader_.emplace(dataset, draws_of, 0, std::numeric_limits<std::int64_t>::max(),
                    data::LoaderOptions{.workers = workers});
  }
  batch::Batch next() { return loader_->next(); }

 private:
  std::optional<data::Loader> loader_;
};

void answer_lines(const Section& data, int workers, double seconds) {
  constexpr int kInAdvance = 8;  // batches that were loaded while the other side was measured
  Batches batches(data, workers);
  models::FieldNormalization layer = normalization();
  for (std::string line; std::getline(std::cin, line);) {
    for (int i = 0; i < kInAdvance; ++i) batches.next();
    const auto begin = Clock::now();
    const double processor = processor_milliseconds();
    std::int64_t samples = 0;
    while (milliseconds_since(begin) < 1e3 * seconds) {
      const batch::Batch batch = batches.next();
      layer.normalized(batch.input());
      samples += kBatch;
    }
    const auto count = static_cast<double>(samples);
    std::printf("%.1f %.4f\n", count / (1e-3 * milliseconds_since(begin)),
                (processor_milliseconds() - processor) / count);
    std::fflush(stdout);
  }
}

// --- contiguous files, one thread ---

/// Reads as many steps as a batch has, each one from a file at random, into the same memory.
class PlainReads {
 public:
  explicit PlainReads(const fs::path& folder) {
    for (int i = 0; i < kFiles; ++i) {
      const std::string path = folder / ("part_" + std::to_string(i) + ".h5");
      const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
      const hid_t set = H5Dopen2(file, kVariable, H5P_DEFAULT);
      offset_ = static_cast<off_t>(H5Dget_offset(set));
      steps_ = static_cast<std::int64_t>(H5Dget_storage_size(set)) / kBytes;
      H5Dclose(set);
      H5Fclose(file);
      files_.push_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
  }
  PlainReads(const PlainReads&) = delete;
  PlainReads& operator=(const PlainReads&) = delete;
  ~PlainReads() {
    for (const int file : files_) ::close(file);
  }

  void read_batch() {
    for (std::size_t i = 0; i < 2 * kBatch; i += 2) {
      const int file = files_[random_() % files_.size()];
      const auto step = static_cast<off_t>(random_() % static_cast<std::uint64_t>(steps_ - 1));
      for (std::size_t k = 0; k < 2; ++k) {  // the input and the target
        float* const out = batch_.data() + (i + k) * kPoints;
        const ssize_t got = ::pread(file, out, kBytes, offset_ + (step + static_cast<off_t>(k)) * kBytes);
        if (got != kBytes) throw std::runtime_error("a file is too short");
      }
    }
  }

 private:
  static constexpr std::int64_t kBytes = kPoints * 4;
  std::vector<int> files_;
  off_t offset_ = 0;
  std::int64_t steps_ = 0;
  std::mt19937_64 random_{kSeed};
  std::vector<float> batch_ = std::vector<float>(2 * kBatch * kPoints);
};

template <class Work>
double microseconds_per_sample(const Work& work) {
  constexpr int kBatches = 50;
  const auto begin = Clock::now();
  for (int i = 0; i < kBatches; ++i) work();
  return 1e3 * milliseconds_since(begin) / (kBatches * kBatch);
}

void compare_with_reads(const std::string& folder, int rounds) {
  Batches batches(data_section(folder, "random", "64"), 0);
  models::FieldNormalization layer = normalization();
  PlainReads plain(folder);
  std::vector<double> reads, loads, normalized;
  for (int round = 0; round <= rounds; ++round) {
    reads.push_back(microseconds_per_sample([&] { plain.read_batch(); }));
    loads.push_back(microseconds_per_sample([&] { batches.next(); }));
    normalized.push_back(microseconds_per_sample([&] { layer.normalized(batches.next().input()); }));
    if (round == 0) reads.clear(), loads.clear(), normalized.clear();  // it warms up
  }
  std::printf("%.2f %.2f %.2f\n", median(reads), median(loads), median(normalized));
}

void run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "make" && arguments.size() == 4) {
    make_files(arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3]));
  } else if (command == "load" && arguments.size() == 6) {
    answer_lines(data_section(arguments[1], arguments[2], arguments[4]), std::stoi(arguments[3]),
                 std::stod(arguments[5]));
  } else if (command == "contiguous" && arguments.size() == 3) {
    compare_with_reads(arguments[1], std::stoi(arguments[2]));
  } else {
    throw std::invalid_argument(
        "usage: bench_fields make FOLDER STEPS MB | load FOLDER ORDER WORKERS CACHE_MB SECONDS | contiguous FOLDER "
        "ROUNDS");
  }
}

}  // namespace

}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run_program("bench_fields", argc, argv, lockstep::bench::run);
}
