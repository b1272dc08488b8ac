// SPDX-License-Identifier: BSD-3-Clause
// Saves and loads a run of about 390 MB (an mlp of 32 layers and its AdamW moments) with one rank, beside the floors:
// the same bytes by plain write and fsync, by plain read, and in memory. Prints one JSON line for each.
//
// usage: bench_checkpoint FOLDER ROUNDS [HIDDEN_LAYERS]
#include <lockstep/engine/registry.hpp>

#include <torch/types.h>

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <unistd.h>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "config/config.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/checkpoint_saver.hpp"
#include "engine/session.hpp"
#include "engine/setup/composition.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;
namespace fs = std::filesystem;

constexpr int kQuietSteps = 10;
constexpr std::int64_t kBatch = 32;

config::Config settings(const engine::Registry& registry, int hidden_layers) {
  config::Config config(engine::all_keys(registry));
  std::string hidden = "1024";
  for (int i = 1; i < hidden_layers; ++i) hidden += ",1024";
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"model.name", "mlp"},
                                   {"model.hidden", hidden},
                                   {"optim.name", "adamw"},
                                   {"optim.lr", "1e-4"},
                                   {"data.train_size", "64"},
                                   {"train.global_batch_size", "32"},
                                   {"train.max_steps", "1000"}}) {
    config.set(key, value, "bench");
  }
  return config;
}

/// A file of `bytes`, written in one piece.
void write_plainly(const std::string& path, std::span<const std::byte> bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0640);
  for (std::size_t position = 0; position < bytes.size();) {
    const ssize_t written = ::write(file, bytes.data() + position, bytes.size() - position);
    if (written <= 0) std::perror("write"), std::exit(1);
    position += static_cast<std::size_t>(written);
  }
  if (::fsync(file) != 0) std::perror("fsync"), std::exit(1);
  ::close(file);
}

void read_plainly(const std::string& path, std::span<std::byte> bytes) {
  const int file = ::open(path.c_str(), O_RDONLY);
  for (std::size_t position = 0; position < bytes.size();) {
    const ssize_t count = ::read(file, bytes.data() + position, bytes.size() - position);
    if (count <= 0) std::perror("read"), std::exit(1);
    position += static_cast<std::size_t>(count);
  }
  ::close(file);
}

class Bench {
 public:
  Bench(const mpi::Communicator& world, std::string folder, int hidden_layers)
      : folder_(std::move(folder)),
        config_(settings(registry_, hidden_layers)),
        splits_(data::open(config_.section("data"))),
        made_(engine::make_resources(config_.sections(), world), config_.sections(), registry_, splits_.train->task()),
        trainer_(config_.sections(), made_, splits_, registry_),
        saver_(world, {.directory = folder_ + "/async", .retention = {.keep_last = 1}}),
        batch_{at::randn({kBatch, 784}), at::zeros({kBatch}, at::kLong)} {
    step();
    const checkpoints::Archive archive = state();
    for (const std::string& path : archive.array_paths()) bytes_ += archive.array(path).bytes.size();
    buffer_.resize(bytes_);
    other_.resize(bytes_);
  }

  /// One round of everything, each thing timed once.
  void round(int number) {
    const std::string sync = folder_ + "/sync";
    fs::remove_all(sync);
    fs::remove(folder_ + "/plain");
    const auto time = [this](const char* what, const std::function<void()>& work) {
      const bench::Clock::time_point begin = bench::Clock::now();
      work();
      times_[what].push_back(bench::milliseconds_since(begin));
    };
    time("memcpy", [&] { std::memcpy(other_.data(), buffer_.data(), bytes_); });
    const auto plain = [&] { time("plain write fsync", [&] { write_plainly(folder_ + "/plain", buffer_); }); };
    const auto ours = [&] { time("save fsync", [&] { checkpoints::write(sync, 1, state()); }); };
    number % 2 == 0 ? plain() : ours();
    number % 2 == 0 ? ours() : plain();
    time("plain read", [&] { read_plainly(folder_ + "/plain", other_); });
    time("verify", [&] { checkpoints::verify(sync + "/step-000000000001"); });
    time("load into the run", [&] {
      engine::restore(trainer_, checkpoints::read(sync + "/step-000000000001", engine::restore_targets(trainer_)));
    });
    asynchronous(number);
  }

  void print() const {
    for (const auto& [what, times] : times_) {
      const std::vector<double> warm(times.begin() + 1, times.end());  // the first round warms up
      std::printf("{\"what\": \"%s\", \"mb\": %.0f, \"median_ms\": %.2f, \"min_ms\": %.2f, \"max_ms\": %.2f}\n",
                  what.c_str(), static_cast<double>(bytes_) / 1e6, bench::median(warm),
                  *std::min_element(warm.begin(), warm.end()), *std::max_element(warm.begin(), warm.end()));
    }
  }

 private:
  checkpoints::Archive state() { return engine::capture(trainer_, "", true); }
  void step() { made_.model.wrapper->train_step(batch_, made_.updates.first(), 1.0); }

  /// Trains while a save is under way; what the loop loses is its time less that of as many undisturbed steps.
  void asynchronous(int number) {
    bench::Clock::time_point begin = bench::Clock::now();
    for (int i = 0; i < kQuietSteps; ++i) step();
    const double quiet = bench::milliseconds_since(begin) / kQuietSteps;
    begin = bench::Clock::now();
    saver_.save(number, false, [this] { return state(); });
    times_["async: call blocks"].push_back(bench::milliseconds_since(begin));
    int steps = 0;
    while (saver_.is_busy() || steps == 0) {
      step();
      ++steps;
      saver_.poll();
    }
    const double total = bench::milliseconds_since(begin);
    times_["async: loop loses"].push_back(std::max(0.0, total - steps * quiet));
    times_["async: until on disk"].push_back(total);
    times_["a step"].push_back(quiet);
  }

  std::string folder_;
  engine::Registry registry_;
  config::Config config_;
  data::Splits splits_;
  engine::Composition made_;
  engine::Trainer trainer_;
  engine::CheckpointSaver saver_;
  batch::Batch batch_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> buffer_;
  std::vector<std::byte> other_;
  std::map<std::string, std::vector<double>> times_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return std::fprintf(stderr, "usage: bench_checkpoint FOLDER ROUNDS [HIDDEN_LAYERS]\n"), 2;
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  Bench bench(world, argv[1], argc == 4 ? std::atoi(argv[3]) : 31);
  for (int i = 0; i <= std::atoi(argv[2]); ++i) bench.round(i);
  bench.print();
  environment.finish();
}
