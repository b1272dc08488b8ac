// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/run_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text/duration.hpp"

namespace lockstep::engine {

namespace {

std::string count_of_threads(int threads) {
  return std::to_string(threads) + (threads == 1 ? " loader thread" : " loader threads");
}

}  // namespace

void RunClock::step(double seconds, double data_seconds) {
  seconds_ += seconds;
  if (++steps_ <= warmup_) return;
  counted_seconds_ += seconds;
  data_seconds_ += data_seconds;
}

std::string RunClock::speed() const {
  const std::int64_t counted = steps_ - warmup_;
  if (counted <= 0 || counted_seconds_ <= 0) return "";
  return fmt::format("{} steps in {} ({:.4f} s a step, {:.0f} % of it waiting for data)", counted,
                     clock_text(std::round(counted_seconds_)), counted_seconds_ / static_cast<double>(counted),
                     100 * data_seconds_ / counted_seconds_);
}

std::string RunClock::total(double now) const {
  const double all = now - begin_;
  return fmt::format("{} ({} in hooks)", clock_text(std::round(all)), clock_text(std::round(all - seconds_)));
}

double LoadingTimes::loaded_per_second(int threads) const {
  if (loading_seconds <= 0) return 0;
  return std::max(threads, 1) * static_cast<double>(samples) / loading_seconds;
}

int LoadingTimes::threads_needed() const {
  constexpr double kMaxThreads = 1e6;
  const double model_seconds = std::max(seconds - data_seconds, 1e-9);
  // A thread that is busy for 0.3 % more than the time of the model is still enough.
  return static_cast<int>(std::clamp(std::ceil(loading_seconds / model_seconds - 0.003), 1.0, kMaxThreads));
}

std::string data_wait_sentence(const LoadingTimes& times, int threads, int processors, int ranks) {
  const int needed = times.threads_needed();
  std::string text = fmt::format("the model waits for data {:.1f}% of the time: ", 100 * times.wait_share());
  if (threads == 0) {
    text += fmt::format("the training thread loads its data; {} would load it during the computation",
                        count_of_threads(needed));
  } else {
    text += fmt::format("{} {} {:.0f} samples/s, ", count_of_threads(threads), threads == 1 ? "gives" : "give",
                        ranks * times.loaded_per_second(threads));
    text += fmt::format("{} {} {}", needed, needed == 1 ? "is" : "are", needed > threads ? "needed" : "enough");
  }
  text += " (data.workers)";
  if (needed > std::max(threads, 1) && needed >= processors) {
    text += fmt::format(", but a rank can use only {} {}", processors, processors == 1 ? "processor" : "processors");
  }
  return text;
}

std::string load_times_text(const data::LoadTimes& times) {
  const double seconds = times.seconds();
  if (times.samples == 0 || seconds <= 0) return "";
  const auto percent = [seconds](double part) { return 100 * part / seconds; };
  return fmt::format("; a sample takes {:.2f} ms: {:.0f}% reading, {:.0f}% decoding, {:.0f}% transforms",
                     1e3 * seconds / static_cast<double>(times.samples), percent(times.read_seconds),
                     percent(times.decode_seconds), percent(times.transform_seconds));
}

std::string chunk_bytes_text(const data::ChunkBytes& bytes) {
  if (bytes.unpacked <= 0 || bytes.used <= 0) return "";
  return fmt::format(
      "chunks of this rank: {:.2f} bytes were unpacked for each byte that samples used (data.sampler, "
      "data.shuffle_chunks, data.chunk_cache_mb)",
      bytes.unpacked / bytes.used);
}

}  // namespace lockstep::engine
