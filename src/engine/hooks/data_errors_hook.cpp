// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "engine/hooks/hooks.hpp"

namespace lockstep::engine {

namespace {

class DataErrorsHook : public Hook {
 public:
  DataErrorsHook(const Every& every, std::string directory)
      : Hook(HookReads::nothing()), every_(every), path_(std::move(directory) + "/bad_samples.txt") {}

  /// A resumed run adds to the list; a new one begins it.
  void before_train(RunView& run) override {
    if (!run.world.is_root()) return;
    if (run.progress.step == 0) {
      std::error_code ignored;
      std::filesystem::remove(path_, ignored);
    }
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) listed_.insert(line);
  }

  void after_step(RunView& run, const StepReport& report) override {
    if (!is_log_due(report.progress, every_)) return;
    collect(run);
    run.events.put("data_errors", static_cast<double>(names_.size()), {.is_smoothed = false, .owner = "data_errors"});
    const std::int64_t max = run.data.splits().errors->max();
    if (static_cast<std::int64_t>(names_.size()) <= max) return;
    run.requests.fail(std::make_exception_ptr(
        DataError("more than data.max_errors = " + std::to_string(max) + " samples cannot be read; see " + path_)));
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome != Outcome::failed) collect(run);
  }

 private:
  void collect(RunView& run) {
    std::string lines;
    for (const auto& [rank, sample] : gather_bad_samples(run.world, *run.data.splits().errors)) {
      if (!names_.insert(sample.name).second) continue;
      if (!run.world.is_root()) continue;
      log::warning("rank " + std::to_string(rank) + " replaces a sample: " + sample.reason);
      if (listed_.insert(sample.name).second) lines += sample.name + "\n";
    }
    if (!lines.empty()) std::ofstream(path_, std::ios::app) << lines;
  }

  Every every_;
  std::string path_;
  std::set<std::string> names_;   // replaced since the start of this process
  std::set<std::string> listed_;  // lines of the file; only used on the root
};

}  // namespace

std::vector<std::pair<int, data::BadSample>> gather_bad_samples(const mpi::Communicator& world,
                                                                data::SampleErrors& errors) {
  std::string mine;  // names and reasons, each with a zero byte at its end
  for (const data::BadSample& sample : errors.take_new()) mine += sample.name + '\0' + sample.reason + '\0';
  std::vector<std::pair<int, data::BadSample>> all;
  const std::vector<std::string> parts = world.all_gather(mine);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::string& part = parts[rank];
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t name_end = part.find('\0', begin);
      const std::size_t reason_end = part.find('\0', name_end + 1);
      all.emplace_back(static_cast<int>(rank), data::BadSample{part.substr(begin, name_end - begin),
                                                               part.substr(name_end + 1, reason_end - name_end - 1)});
      begin = reason_end + 1;
    }
  }
  return all;
}

PrioritizedHook data_errors_hook(const Every& every, const std::string& directory) {
  return {Priority::normal, std::make_unique<DataErrorsHook>(every, directory)};
}

}  // namespace lockstep::engine
