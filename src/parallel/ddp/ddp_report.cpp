// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/ddp_report.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>

#include "core/text/text_stream.hpp"

namespace lockstep::parallel {

namespace {

constexpr int kColumns = 64;
constexpr std::size_t kMaxRows = 16;

template <class Value>
double sum_over(const std::vector<BucketTimes>& buckets, Value value) {
  double sum = 0;
  for (const BucketTimes& bucket : buckets) sum += value(bucket);
  return sum;
}

double busy(const StepTimeline& step) { return step.end - step.wait(); }

std::string milliseconds(double seconds) {
  TextWriter text;
  text << std::fixed << std::setprecision(2) << 1000 * seconds;
  return text.str();
}

std::string percent(double part, double whole) {
  return std::to_string(whole > 0 ? std::lround(100 * part / whole) : 0) + " %";
}

bool is_empty(const DdpReport& report) { return report.ranks.size() < 2 || report.steps == 0; }

/// A line of the image: each column shows what happens in its middle.
class Strip {
 public:
  explicit Strip(double end) : end_(end) {}

  void paint(double begin, double end, char sign) {
    for (int column = 0; column < kColumns; ++column) {
      const double middle = (column + 0.5) / kColumns * end_;
      if (begin <= middle && middle < end) text_[static_cast<std::size_t>(column)] = sign;
    }
  }
  const std::string& text() const { return text_; }

 private:
  double end_;
  std::string text_ = std::string(kColumns, ' ');
};

std::string picture_of(const StepTimeline& step) {
  Strip strip(step.end);
  strip.paint(0, step.backward_end, 'c');
  strip.paint(step.end - step.undivided_update, step.end, 'u');
  strip.paint(step.meeting_begin, step.meeting_end, 'w');
  return strip.text();
}

/// Reading and updating alternate: what is read is shown first, what is updated last.
std::string picture_of(const BucketTimes& bucket, double end) {
  Strip strip(end);
  strip.paint(bucket.launched, bucket.wait_begin, '.');
  strip.paint(bucket.wait_begin, bucket.wait_end, 'w');
  strip.paint(bucket.visit_begin, bucket.visit_begin + bucket.transfer, 't');
  strip.paint(bucket.visit_end - bucket.update, bucket.visit_end, 'u');
  return strip.text();
}

/// Calls `show(b)` for the buckets that have room, and writes how many there are in the middle that have none.
void for_each_shown(std::ostream& out, std::size_t buckets, const std::function<void(std::size_t)>& show) {
  for (std::size_t b = 0; b < buckets; ++b) {
    if (buckets > kMaxRows && b == kMaxRows / 2) {
      out << "\n(" << buckets - kMaxRows << " more)";
      b = buckets - kMaxRows / 2;
    }
    show(b);
  }
}

void write_table(std::ostream& out, const StepTimeline& step, bool is_of_gpu) {
  const auto row = [&out](const std::string& name) -> std::ostream& {
    return out << std::left << std::setw(8) << name;
  };
  row("bucket") << std::right;
  for (const char* title : {"ready", "launched", "wait", "transfer", "update"}) out << std::setw(10) << title;
  const auto show = [&](std::size_t b) {
    const BucketTimes& times = step.buckets[b];
    out << "\n";
    row(std::to_string(b)) << std::right;
    for (const double value : {times.ready, times.launched, times.wait_end - times.wait_begin}) {
      out << std::setw(10) << milliseconds(value);
    }
    for (const double value : {times.transfer, times.update}) {
      out << std::setw(10) << (is_of_gpu ? "-" : milliseconds(value));
    }
  };
  for_each_shown(out, step.buckets.size(), show);
}

void write_picture(std::ostream& out, const StepTimeline& step) {
  out << std::left;
  out << std::setw(8) << "step"
      << "|" << picture_of(step) << "|";
  const auto show = [&](std::size_t b) {
    out << "\n" << std::setw(8) << b << "|" << picture_of(step.buckets[b], step.end) << "|";
  };
  for_each_shown(out, step.buckets.size(), show);
}

}  // namespace

double StepTimeline::update() const {
  return undivided_update + sum_over(buckets, [](const BucketTimes& bucket) { return bucket.update; });
}

double StepTimeline::wait() const {
  return meetings + sum_over(buckets, [](const BucketTimes& bucket) { return bucket.wait_end - bucket.wait_begin; });
}

double StepTimeline::transfer() const {
  return sum_over(buckets, [](const BucketTimes& bucket) { return bucket.transfer; });
}

std::size_t slowest_rank(const DdpReport& report) {
  const auto slowest = std::max_element(report.ranks.begin(), report.ranks.end(),
                                        [](const auto& a, const auto& b) { return busy(a) < busy(b); });
  return static_cast<std::size_t>(slowest - report.ranks.begin());
}

std::string bound_sentence(const DdpReport& report) {
  if (report.ranks.size() < 2) return "one rank: no communication";
  if (report.steps == 0) return "too few steps to determine what limits them";
  const StepTimeline& step = report.ranks[slowest_rank(report)];
  const double exposed = step.exposed();
  const char* bound = step.compute() >= step.update() ? "compute" : "update";
  if (exposed > std::max(step.compute(), step.update())) bound = "communication";
  return std::string(bound) + "-bound; communication exposed " + percent(exposed, step.end) + " (a step of " +
         milliseconds(step.end) + " ms" + (report.is_of_gpu ? " on the GPU" : "") + ": compute " +
         milliseconds(step.compute()) + ", update " + milliseconds(step.update()) + ", wait " +
         milliseconds(step.wait()) + (report.is_of_gpu ? "" : ", transfer " + milliseconds(step.transfer())) + ")";
}

std::string timeline_text(const DdpReport& report) {
  if (is_empty(report)) return "";
  const std::size_t slowest = slowest_rank(report);
  const StepTimeline& step = report.ranks[slowest];
  TextWriter out;
  out << "rank " << slowest << ", the slowest of " << report.ranks.size() << ": a median step of the last "
      << report.steps << ", in ms\n";
  write_table(out, step, report.is_of_gpu);
  out << "\n";
  write_picture(out, step);
  out << "\nc compute  . in progress  w wait  t transfer  u update; a column is " << milliseconds(step.end / kColumns)
      << " ms\ncommunication exposed by rank:";
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    if (rank == kMaxRows) {
      out << " ...";
      break;
    }
    out << (rank == 0 ? " " : ", ") << percent(report.ranks[rank].exposed(), report.ranks[rank].end);
  }
  if (report.is_of_gpu) {
    out << "\ntimes of the GPU; not measured: the update of each bucket, and transfers apart from the waits for them";
  }
  return out.str();
}

}  // namespace lockstep::parallel
