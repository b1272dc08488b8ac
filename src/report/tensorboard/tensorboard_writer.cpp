// SPDX-License-Identifier: BSD-3-Clause
#include "report/tensorboard/tensorboard_writer.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/system/process.hpp"
#include "core/text/text.hpp"
#include "report/tensorboard/wire.hpp"

namespace lockstep::report {

namespace {

// Numbers of fields, from TensorFlow's event.proto, summary.proto, histogram.proto and tensor.proto.
namespace event {
enum Field : unsigned { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 };
}
namespace value {
enum Field : unsigned { tag = 1, simple_value = 2, image = 4, histogram = 5, tensor = 8, metadata = 9 };
}
namespace histogram {
enum Field : unsigned { min = 1, max, num, sum, sum_squares, bucket_limit, bucket };
}
namespace image {
enum Field : unsigned { height = 1, width, colorspace, encoded };
}
namespace tensor {
enum Field : unsigned { type = 1, shape = 2, texts = 8 };
constexpr std::int64_t kTypeText = 7;
}  // namespace tensor
constexpr unsigned kPluginData = 1;
constexpr unsigned kPluginName = 1;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kSessionStatus = 1;
constexpr std::int64_t kSessionStart = 1;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// A new file; TensorBoard reads the files of a folder in the order of their names.
std::pair<std::string, std::FILE*> make_file(const std::string& folder, double seconds) {
  const std::string start = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                                        static_cast<std::int64_t>(seconds), host_name(), ::getpid());
  for (int number = 0;; ++number) {
    const std::string path = fmt::format("{}.{}", start, number);
    if (std::FILE* const file = std::fopen(path.c_str(), "wxe")) return {path, file};
    if (errno != EEXIST) throw ConfigError(path + " cannot be opened: " + std::strerror(errno));
  }
}

std::string summary_of(const Message& value) { return Message().bytes(kSummaryValue, value.text()).text(); }

}  // namespace

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::int64_t first_step, WallClock clock)
    : clock_(clock ? std::move(clock) : now) {
  auto [path, file] = make_file(folder, clock_());
  path_ = std::move(path);
  file_.reset(file);
  write_record(Message().real(event::wall_time, clock_()).bytes(event::file_version, "brain.Event:2").text());
  write_event(first_step, event::session_log, Message().integer(kSessionStatus, kSessionStart).text());
}

void TensorBoardWriter::write(const Record& record) {
  std::optional<std::int64_t> step;
  Message summary;
  bool is_empty = true;
  for (const auto& [name, held] : record.values) {
    const std::optional<double> number = lockstep::number_in(held);
    if (!number) continue;
    if (name == "step") {
      step = static_cast<std::int64_t>(*number);
      continue;
    }
    Message scalar;
    scalar.bytes(value::tag, utf8_text(name)).single(value::simple_value, static_cast<float>(*number));
    summary.bytes(kSummaryValue, scalar.text());
    is_empty = false;
  }
  if (step && !is_empty) write_event(*step, event::summary, summary.text());
}

void TensorBoardWriter::write(const Histogram& counted) {
  const std::vector<double> counts(counted.counts.begin(), counted.counts.end());
  Message content;
  content.real(histogram::min, counted.min).real(histogram::max, counted.max);
  content.real(histogram::num, static_cast<double>(counted.count));
  content.real(histogram::sum, counted.sum).real(histogram::sum_squares, counted.sum_squares);
  content.reals(histogram::bucket_limit, counted.ends).reals(histogram::bucket, counts);
  Message named;
  named.bytes(value::tag, utf8_text(counted.name)).bytes(value::histogram, content.text());
  write_event(counted.step, event::summary, summary_of(named));
}

void TensorBoardWriter::write(const std::string& name, std::int64_t step, const EncodedImage& picture) {
  Message content;
  content.integer(image::height, picture.height).integer(image::width, picture.width);
  content.integer(image::colorspace, picture.channels).bytes(image::encoded, picture.bytes);
  Message named;
  named.bytes(value::tag, utf8_text(name)).bytes(value::image, content.text());
  write_event(step, event::summary, summary_of(named));
}

void TensorBoardWriter::write(const std::string& name, std::int64_t step, const MarkedText& text) {
  Message content;  // a scalar
  content.integer(tensor::type, tensor::kTypeText)
      .bytes(tensor::shape, "")
      .bytes(tensor::texts, utf8_text(text.markdown));
  const Message plugin = Message().bytes(kPluginData, Message().bytes(kPluginName, "text").text());
  Message named;
  named.bytes(value::tag, utf8_text(name)).bytes(value::tensor, content.text()).bytes(value::metadata, plugin.text());
  write_event(step, event::summary, summary_of(named));
}

void TensorBoardWriter::write_event(std::int64_t step, unsigned field, const std::string& content) {
  Message told;
  told.real(event::wall_time, clock_()).integer(event::step, step).bytes(field, content);
  write_record(told.text());
}

void TensorBoardWriter::write_record(const std::string& payload) {
  const std::string frame = event_frame(payload);
  const bool is_written = std::fwrite(frame.data(), 1, frame.size(), file_.get()) == frame.size();
  if (!is_written || std::fflush(file_.get()) != 0)
    throw ConfigError(path_ + " cannot be written: " + std::strerror(errno));
}

}  // namespace lockstep::report
