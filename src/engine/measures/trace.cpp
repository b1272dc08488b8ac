// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/trace.hpp"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

namespace lockstep::engine {

class OperatorTrace::Spans {
 public:
  explicit Spans(std::size_t max) : max_(max) {}

  void add(std::string name, double begin, double end) {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (spans_.size() >= max_) {
      ++dropped_;
      return;
    }
    const auto next = static_cast<std::int64_t>(threads_.size()) + 1;
    const std::int64_t thread = threads_.emplace(std::this_thread::get_id(), next).first->second;
    spans_.push_back({.name = std::move(name), .thread = thread, .begin = begin, .end = end});
  }

  std::vector<Span> take() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return std::exchange(spans_, {});
  }

  std::size_t dropped() {
    const std::lock_guard<std::mutex> hold(mutex_);
    return dropped_;
  }

 private:
  std::mutex mutex_;
  std::size_t max_;
  std::size_t dropped_ = 0;
  std::vector<Span> spans_;
  std::map<std::thread::id, std::int64_t> threads_;
};

namespace {

std::mutex current_mutex;
std::shared_ptr<OperatorTrace::Spans> current;  // LibTorch's callbacks are plain functions

std::shared_ptr<OperatorTrace::Spans> current_spans() {
  const std::lock_guard<std::mutex> hold(current_mutex);
  return current;
}

struct Running : at::ObserverContext {
  Running(std::shared_ptr<OperatorTrace::Spans> all_spans, double begin_time)
      : spans(std::move(all_spans)), begin(begin_time) {}
  std::shared_ptr<OperatorTrace::Spans> spans;
  double begin;
};

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction&) {
  return std::make_unique<Running>(current_spans(), trace_now());
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* const running = static_cast<const Running*>(context);
  if (running == nullptr || running->spans == nullptr) return;
  running->spans->add(function.name(), running->begin, trace_now());
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') json += '\\';
    json += code < 0x20 ? fmt::format("\\u{:04x}", code) : std::string(1, letter);
  }
  return json + "\"";
}

std::string metadata(const char* kind, int rank, std::int64_t thread, const std::string& argument) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", kind, rank, thread, argument);
}

}  // namespace

double trace_now() {
  using std::chrono::duration;
  static const double offset = duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch() -
                                                            std::chrono::steady_clock::now().time_since_epoch())
                                   .count();
  return offset + duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string trace_events(const std::vector<Span>& spans, int rank) {
  std::string text = metadata("process_name", rank, 0, fmt::format(R"("name":"rank {}")", rank)) + ",\n" +
                     metadata("process_sort_index", rank, 0, fmt::format(R"("sort_index":{})", rank)) + ",\n" +
                     metadata("thread_name", rank, 0, R"("name":"steps")");
  std::set<std::int64_t> streams;
  for (const Span& span : spans) {
    if (span.thread >= kFirstStream) streams.insert(span.thread);
  }
  for (const std::int64_t stream : streams) {
    text +=
        ",\n" + metadata("thread_name", rank, stream, fmt::format(R"("name":"GPU stream {}")", stream - kFirstStream));
  }
  for (const Span& span : spans) {
    text += ",\n" + fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                                quoted(span.name), rank, span.thread, span.begin, span.end - span.begin);
  }
  return text;
}

std::string trace_file(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& of_rank : events) {
    if (!of_rank.empty()) text += (text.empty() ? "" : ",\n") + of_rank;
  }
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text + "\n]}\n";
}

std::map<std::string, double> self_times(std::vector<Span> spans) {
  const auto order = [](const Span& span) { return std::tuple(span.thread, span.begin, -span.end); };
  std::sort(spans.begin(), spans.end(), [&](const Span& a, const Span& b) { return order(a) < order(b); });
  std::map<std::string, double> times;
  std::vector<const Span*> around;  // the spans in which the present one lies
  for (const Span& span : spans) {
    while (!around.empty() && (around.back()->thread != span.thread || around.back()->end <= span.begin)) {
      around.pop_back();
    }
    times[span.name] += span.end - span.begin;
    if (!around.empty()) times[around.back()->name] -= span.end - span.begin;
    around.push_back(&span);
  }
  return times;
}

OperatorTrace::OperatorTrace(std::size_t max) : spans_(std::make_shared<Spans>(max)) {
  const std::lock_guard<std::mutex> hold(current_mutex);
  if (current) throw std::logic_error("OperatorTrace: another one is active");
  current = spans_;
  handle_ = at::addGlobalCallback(
      at::RecordFunctionCallback(on_begin, on_end)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

OperatorTrace::~OperatorTrace() {
  at::removeCallback(handle_);
  const std::lock_guard<std::mutex> hold(current_mutex);
  current.reset();
}

std::vector<Span> OperatorTrace::take() { return spans_->take(); }

std::size_t OperatorTrace::dropped() const { return spans_->dropped(); }

}  // namespace lockstep::engine
