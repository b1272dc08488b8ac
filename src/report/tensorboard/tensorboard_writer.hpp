// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/measurements.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "report/files/image.hpp"

namespace lockstep::report {

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

  /// Begins a file. TensorBoard ignores values of earlier files from `first_step` on.
  /// @throws ConfigError  the file cannot be made
  TensorBoardWriter(const std::string& folder, std::int64_t first_step, WallClock clock = {});

  /// The numbers of `record`, each under its name, at the step that it names. Words, and a record without a step, are
  /// not written. TensorBoard keeps single precision.
  /// @throws ConfigError  as for the other writes: the file could not be written; the message has the reason
  void write(const Record& record);
  void write(const Histogram& histogram);
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
