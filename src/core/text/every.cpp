// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/every.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep {

namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000'000;
constexpr double kMaxSeconds = 1e9;
constexpr double kSecondsPerMinute = 60;
constexpr double kSecondsPerHour = 3600;
const std::string kEpochs = "epochs";

const char* const kForms =
    "a number of steps (500), of epochs (2epochs), a time (30s, 10min or 1h), end or never; several are joined by +, "
    "and a change is '500 then 100@10000'";

/// "2epochs": the number, and the unit behind it.
struct Quantity {
  std::string number;
  std::string unit;
};

Quantity quantity_of(const std::string& text) {
  const std::size_t end = std::min(text.find_first_not_of("+-.0123456789"), text.size());
  return {trimmed(text.substr(0, end)), trimmed(text.substr(end))};
}

bool is_epoch_unit(const std::string& unit) { return unit == "epoch" || unit == kEpochs; }

/// The seconds in a unit of time; 0 if it is none.
double seconds_in(const std::string& unit) {
  if (unit == "s") return 1;
  if (unit == "min") return kSecondsPerMinute;
  return unit == "h" ? kSecondsPerHour : 0;
}

std::string count_text(std::int64_t number, bool is_epoch) {
  return std::to_string(number) + (is_epoch ? kEpochs : "");
}

/// The largest unit in which the time is a whole number, or seconds.
std::string time_text(double seconds) {
  for (const auto& [unit, size] : {std::pair("h", kSecondsPerHour), std::pair("min", kSecondsPerMinute)}) {
    const double number = seconds / size;
    if (number == static_cast<double>(static_cast<std::int64_t>(number))) return number_text(number) + unit;
  }
  return number_text(seconds) + "s";
}

std::string text_of(const Repetition& repetition) {
  std::vector<std::string> words;
  if (repetition.steps > 0) words.push_back(count_text(repetition.steps, false));
  if (repetition.epochs > 0) words.push_back(count_text(repetition.epochs, true));
  if (repetition.seconds > 0) words.push_back(time_text(repetition.seconds));
  if (repetition.is_at_end) words.emplace_back("end");
  return words.empty() ? "never" : joined(words, "+");
}

/// The parts of `text` between occurrences of `separator`, trimmed.
std::vector<std::string> split_at(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + separator.size();
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

/// Reads one text, and says what is wrong with it.
class EveryReader {
 public:
  EveryReader(std::string text, std::string cite, const Every::Accepted& accepted)
      : text_(std::move(text)), cite_(std::move(cite)), accepted_(accepted) {}

  std::vector<Repetition> read() const {
    std::vector<Repetition> repetitions;
    for (const std::string& part : split_at(text_, "then")) {
      const std::size_t sign = part.find('@');
      const bool is_first = repetitions.empty();
      if (is_first && sign != std::string::npos)
        fail("the first part must not contain '@', because it applies from the first step on");
      if (!is_first && sign == std::string::npos) {
        fail("a part after 'then' needs the step or epoch from which it applies, such as 100@10000 or 1epochs@5epochs");
      }
      Repetition repetition = repetition_of(trimmed(part.substr(0, sign)));
      if (!is_first) repetition.begin = begin_of(trimmed(part.substr(sign + 1)), repetitions.back().begin);
      repetitions.push_back(repetition);
    }
    return repetitions;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw ConfigError(cite_ + ": '" + text_ + "' is not accepted: " + reason);
  }

  Begin begin_of(const std::string& text, const Begin& previous) const {
    const Begin begin = Begin::parse(text, cite_ + ": '" + text_ + "'");
    if (begin.number < 1) fail("a number after '@' must be at least 1");
    if (begin.is_epoch == previous.is_epoch && begin.number <= previous.number) {
      fail("the numbers after '@' must increase");
    }
    return begin;
  }

  Repetition repetition_of(const std::string& text) const {
    Repetition repetition;
    const std::vector<std::string> words = split_at(text, "+");
    for (const std::string& word : words) {
      if (word == "never") {
        if (words.size() > 1) fail("'never' cannot be joined with other times");
        if (!accepted_.never) fail("this action cannot be left out; use 'end' or a large number of steps");
      } else if (word == "end") {
        set(repetition.is_at_end, true, word);
      } else {
        add_number(word, repetition);
      }
    }
    return repetition;
  }

  void add_number(const std::string& word, Repetition& repetition) const {
    const auto [number, unit] = quantity_of(word);
    if (unit.empty() || is_epoch_unit(unit)) {
      const auto count = parse_integer(number);
      if (!count) fail("'" + word + "' is not " + kForms);
      if (*count < 1 || *count > kMaxCount) {
        fail("'" + word + "' must be at least 1 and at most " + std::to_string(kMaxCount) + "; never = not at all");
      }
      set(unit.empty() ? repetition.steps : repetition.epochs, *count, word);
      return;
    }
    const auto amount = parse_real(number);
    if (!amount || seconds_in(unit) == 0) fail("'" + word + "' is not " + kForms);
    if (!accepted_.times) {
      fail("'" + word + "' is a time, but this action follows steps or epochs; use for example 500 or 1epochs");
    }
    const double seconds = *amount * seconds_in(unit);
    if (!(seconds > 0 && seconds <= kMaxSeconds)) fail("'" + word + "' must be more than 0 and at most 1e9 seconds");
    set(repetition.seconds, seconds, word);
  }

  template <class T>
  void set(T& member, T value, const std::string& word) const {
    if (member != T()) fail("'" + word + "' is the second number of the same unit; use one of them");
    member = value;
  }

  std::string text_;
  std::string cite_;
  Every::Accepted accepted_;
};

}  // namespace

Begin Begin::parse(const std::string& text, const std::string& cite) {
  const auto [number, unit] = quantity_of(trimmed(text));
  const auto count = parse_integer(number);
  const bool is_epoch = is_epoch_unit(unit);
  if (!count || (!unit.empty() && !is_epoch) || *count < 0 || *count > kMaxCount) {
    throw ConfigError(cite + ": '" + text + "' is neither a step, such as 100, nor an epoch, such as 2epochs");
  }
  return *count == 0 ? Begin() : Begin{.number = *count, .is_epoch = is_epoch};
}

bool Begin::is_reached(const RunPosition& position) const noexcept {
  return (is_epoch ? position.epoch_of_step() : position.step) >= number;
}

std::int64_t Begin::first_step(std::int64_t steps_per_epoch) const noexcept {
  return is_epoch ? (number - 1) * steps_per_epoch + 1 : number;
}

std::string Begin::text() const { return count_text(number, is_epoch); }

Every Every::parse(const std::string& text, const std::string& cite, const Accepted& accepted) {
  Every every;
  every.repetitions_ = EveryReader(trimmed(text), cite, accepted).read();
  return every;
}

const Repetition& Every::at(const RunPosition& position) const noexcept {
  const Repetition* found = &repetitions_.front();
  for (const Repetition& repetition : repetitions_) {
    if (repetition.begin.is_reached(position)) found = &repetition;
  }
  return *found;
}

bool Every::is_due(const RunPosition& position) const noexcept {
  const Repetition& now = at(position);
  if (now.is_at_end && position.step == position.total_steps) return true;
  if (position.step == 0) return false;
  if (now.steps > 0 && position.step % now.steps == 0) return true;
  return now.epochs > 0 && position.step_in_epoch == 0 && position.epoch % now.epochs == 0;
}

std::int64_t Every::steps_at(const RunPosition& position, std::int64_t steps_per_epoch) const noexcept {
  const Repetition& now = at(position);
  std::int64_t steps = now.steps > 0 ? now.steps : kMaxCount;
  if (now.epochs > 0) steps = std::min(steps, now.epochs * std::max<std::int64_t>(steps_per_epoch, 1));
  return steps;
}

bool Every::has_times() const noexcept {
  return std::ranges::any_of(repetitions_, [](const Repetition& each) { return each.seconds > 0; });
}

bool Every::is_never() const noexcept { return std::ranges::all_of(repetitions_, &Repetition::is_never); }

bool Every::is_step_count() const noexcept {
  const std::int64_t steps = first().steps;
  return repetitions_.size() == 1 && steps > 0 && first() == Repetition{.steps = steps};
}

std::string Every::text() const {
  std::string text;
  for (const Repetition& repetition : repetitions_) {
    text += text.empty() ? text_of(repetition) : " then " + text_of(repetition) + "@" + repetition.begin.text();
  }
  return text;
}

std::string every_of_intervals(const std::string& intervals, const std::string& unit) {
  std::string text;
  for (const std::string& word : split_list(intervals, ',')) {
    const std::size_t colon = word.find(':');
    const auto interval = parse_integer(colon == std::string::npos ? word : word.substr(colon + 1));
    const auto from = colon == std::string::npos ? std::nullopt : parse_integer(word.substr(0, colon));
    if (!interval || *interval < 0 || text.empty() == from.has_value()) return "";
    text += (text.empty() ? "" : " then ") + (*interval == 0 ? "never" : std::to_string(*interval) + unit);
    if (from) text += "@" + std::to_string(*from) + unit;
  }
  return text;
}

}  // namespace lockstep
