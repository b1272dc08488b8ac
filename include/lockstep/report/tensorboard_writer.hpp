// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/report/image.hpp>
#include <lockstep/report/metrics.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::report {

/// How often values lie in which range.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits;  ///< the upper end of each bucket, ascending; a bucket begins where the last one ends
  std::vector<double> counts;  ///< one for each limit
};

/// Counts values in equally wide buckets; NaN and the infinities are left out.
/// @param buckets  >= 1; where all values are the same there is one
Histogram histogram_of(std::span<const double> values, int buckets = 30);

/// A text in Markdown, with tables.
struct MarkedText {
  std::string markdown;
};

/// Writes a TensorBoard event file, `events.out.tfevents.<seconds>.<host>.<process>.<number>`, one for each start of a
/// run: `tensorboard --logdir` shows all files of a folder as one run. Each record is handed to the system at once.
///
/// For one rank only (the root).
class TensorBoardWriter {
 public:
  /// Seconds since 1970.
  using WallClock = std::function<double()>;

  /// Begins a file. What files of earlier starts tell from `first_step` on, TensorBoard drops in favour of this one.
  /// @throws ConfigError  the file cannot be made
  TensorBoardWriter(const std::string& folder, std::int64_t first_step, WallClock clock = {});

  /// The numbers of a line of metrics, each under its name, at the step that the line names; words and a line without a
  /// step are passed over. TensorBoard keeps single precision.
  /// @throws ConfigError  as for the other writes: the record could not be written; the message has the reason
  void write(const Metrics& line);
  void write(const std::string& name, std::int64_t step, const Histogram& histogram);
  void write(const std::string& name, std::int64_t step, const EncodedImage& image);
  void write(const std::string& name, std::int64_t step, const MarkedText& text);

  const std::string& path() const noexcept { return path_; }

 private:
  void write_event(std::int64_t step, unsigned field, const std::string& content);
  void write_record(const std::string& payload);

  WallClock clock_;
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace lockstep::report
