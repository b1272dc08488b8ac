// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/failure/rank_state.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <sys/wait.h>

#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "report/page/html.hpp"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::ordered_json;
using States = std::vector<RankState>;

constexpr double kLateSeconds = 1;  // nobody is late for whom others have waited less

Json json_of(const ThreadFacts& thread) {
  Json object = {{"id", thread.id}, {"name", utf8_text(thread.name)}, {"state", std::string(1, thread.state)}};
  if (!thread.kernel.empty()) object["kernel"] = thread.kernel;
  object["stack"] = thread.frames;
  return object;
}

Json json_of(const std::vector<BlockMemory>& blocks) {
  Json list = Json::array();
  for (const BlockMemory& block : blocks) {
    list.push_back(
        {{"block", utf8_text(block.block)}, {"parameters_mb", block.parameters_mb}, {"forward_mb", block.forward_mb}});
  }
  return list;
}

RankAnswer answer_in(const Json& json) {
  RankAnswer answer{.block = json.value("block", ""),
                    .workers = json.value("workers", std::vector<std::string>()),
                    .threads = {},
                    .peak_memory_mb = json.value("peak_memory_mb", 0.0)};
  for (const Json& thread : json.value("threads", Json::array())) {
    answer.threads.push_back({.id = thread.value("id", 0),
                              .name = thread.value("name", ""),
                              .state = thread.value("state", "?")[0],
                              .kernel = thread.value("kernel", ""),
                              .frames = thread.value("stack", std::vector<std::string>())});
  }
  for (const Json& block : json.value("largest_blocks", Json::array())) {
    answer.largest_blocks.push_back({.block = block.value("block", ""),
                                     .parameters_mb = block.value("parameters_mb", 0.0),
                                     .forward_mb = block.value("forward_mb", 0.0)});
  }
  return answer;
}

/// The value of a type with names, by its name.
template <class Value>
Value value_named(const std::string& name, Value last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name == lockstep::name_of(static_cast<Value>(i))) return static_cast<Value>(i);
  }
  return Value{};
}

std::string dumped(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool is_waiting(const RankState& state) {
  return state.place.phase == Phase::communication || state.place.phase == Phase::agreement;
}

std::string of_step(const RankState& state) {
  if (state.place.activity == Activity::start || state.step == 0) return "at the start of the run";
  if (state.place.activity == Activity::evaluation) return "in the evaluation after step " + std::to_string(state.step);
  if (state.place.activity == Activity::saving) return "in the save after step " + std::to_string(state.step);
  return "of step " + std::to_string(state.step);
}

/// The first rank that satisfies the condition; null = none.
template <class Condition>
const RankState* first_of(const States& ranks, const Condition& condition) {
  const auto found =
      std::ranges::find_if(ranks, [&](const RankState& state) { return state.is_seen && condition(state); });
  return found == ranks.end() ? nullptr : &*found;
}

/// The living rank that has been longest at a place where it waits for nobody, while others wait for it.
const RankState* latest(const States& ranks) {
  const bool is_awaited = first_of(ranks, [](const RankState& state) {
                            return is_waiting(state) && !state.is_dead && state.seconds >= kLateSeconds;
                          }) != nullptr;
  const RankState* late = nullptr;
  for (const RankState& state : ranks) {
    const bool is_busy =
        state.is_seen && !state.is_dead && !is_waiting(state) && state.place.activity != Activity::ended;
    if (is_awaited && is_busy && (late == nullptr || state.seconds > late->seconds)) late = &state;
  }
  return late;
}

/// "; rank 1 has another configuration than rank 0"; "" = all that are known are equal.
std::string differences(const States& ranks) {
  std::string text;
  for (const RankState& state : ranks) {
    const bool is_other = state.configuration != ranks.front().configuration;
    const bool is_other_program = state.program != ranks.front().program;
    if (!is_other && !is_other_program) continue;
    text += "; rank " + std::to_string(state.rank) + " has another " +
            (is_other_program ? "program" : "configuration") + " than rank " + std::to_string(ranks.front().rank);
  }
  return text;
}

/// "; rank 1 is ahead, in step 13" of ranks in other steps than the last one; "" = all are in the same.
std::string ahead(const States& ranks) {
  const auto by_step = [](const RankState& a, const RankState& b) { return a.step < b.step; };
  States seen;
  std::ranges::copy_if(ranks, std::back_inserter(seen), &RankState::is_seen);
  if (seen.empty()) return "";
  const auto [last, first] = std::ranges::minmax_element(seen, by_step);
  if (last->step == first->step) return "";
  return "; rank " + std::to_string(first->rank) + " is ahead, in step " + std::to_string(first->step) + ", and rank " +
         std::to_string(last->rank) + " is in step " + std::to_string(last->step);
}

/// The places of two ranks that wait in different ones: "rank 0 in all_reduce #43 of step 11, rank 1 in ...". Empty
/// = all wait in the same place, or one does not wait.
std::string different_waits(const States& ranks) {
  const RankState& first = ranks.front();
  for (const RankState& state : ranks) {
    if (!state.is_seen || !is_waiting(state) || state.seconds < kLateSeconds) return "";
  }
  const auto other =
      std::ranges::find_if(ranks, [&](const RankState& state) { return place_text(state) != place_text(first); });
  if (other == ranks.end()) return "";
  return "rank " + std::to_string(first.rank) + " is " + place_text(first) + ", and rank " +
         std::to_string(other->rank) + " is " + place_text(*other);
}

std::string sentence_about_late(const RankState& late) {
  std::string text = name_of(late) + " is late: it has been " + place_text(late) + " for " + seconds_text(late.seconds);
  if (late.process == 'D') text += ", and waits for a disk";
  if (late.place.phase == Phase::data && !late.answer.workers.empty()) text += ", and " + late.answer.workers.front();
  if (!late.has_answered && late.process != 'D') text += ", and does not answer";
  return text;
}

}  // namespace

std::string packed(RankAnswer answer, std::size_t limit) {
  while (true) {
    Json json = {{"block", answer.block}, {"workers", answer.workers}, {"peak_memory_mb", answer.peak_memory_mb}};
    json["largest_blocks"] = json_of(answer.largest_blocks);
    json["threads"] = Json::array();
    for (const ThreadFacts& thread : answer.threads) json["threads"].push_back(json_of(thread));
    std::string text = dumped(json);
    if (text.size() < limit || answer.threads.empty()) return text;
    answer.threads.pop_back();
  }
}

RankAnswer unpacked_answer(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? answer_in(json) : RankAnswer();
}

NotedEnd end_of(const ProcessFacts& process, const NotedEnd& noted) {
  if (noted.signal != 0) return noted;
  if (process.has_status && WIFSIGNALED(process.exit_status)) return {.signal = WTERMSIG(process.exit_status)};
  if (process.has_status) return {.code = WEXITSTATUS(process.exit_status)};
  return noted.code >= 0 ? noted : NotedEnd{.signal = SIGKILL};
}

std::int64_t completed_steps(const RankState& state) {
  const bool is_behind = state.place.activity == Activity::evaluation || state.place.activity == Activity::saving ||
                         state.place.phase == Phase::hooks;
  return std::max<std::int64_t>(0, is_behind ? state.step : state.step - 1);
}

std::string name_of(const RankState& state) {
  std::string text = "rank " + std::to_string(state.rank);
  if (!state.is_seen) return text + " (on " + state.host + ")";
  return text + " (process " + std::to_string(state.pid) + " on " + state.host + ")";
}

std::string place_text(const RankState& state) {
  const std::string step = of_step(state);
  switch (state.place.phase) {
    case Phase::none:
      return state.place.activity == Activity::training ? "in the loop " + step : step;
    case Phase::data:
      return "waiting for data " + step;
    case Phase::forward:
      return "in the forward pass " + step + (state.answer.block.empty() ? "" : " (block " + state.answer.block + ")");
    case Phase::backward:
      return "in the backward pass " + step;
    case Phase::update:
      return "in the update " + step;
    case Phase::hooks:
      return "in the hooks " + step;
    case Phase::communication:
      return "in " + (state.call.empty() ? "communication" : state.call) + " " + step;
    case Phase::agreement:
      return "waiting for the agreement of all ranks " + step;
  }
  return step;
}

std::string end_text(const RankState& state) {
  if (!state.is_dead) return "";
  const int signal = state.end.signal;
  if (signal == SIGKILL) return "was killed by signal " + signal_text(signal);
  if (signal != 0) return "crashed with signal " + signal_text(signal);
  return "has ended with exit code " + std::to_string(state.end.code);
}

std::string state_word(const RankState& state) {
  if (!state.is_seen) return "not known: its host does not answer";
  if (state.is_dead) return end_text(state);
  if (state.place.activity == Activity::ended) return "has ended";
  return state_text(state.process);
}

std::string verdict_on(const States& ranks, const FailureCause& cause) {
  if (cause.is_of_rank) return cause.message;
  const RankState* const dead =
      first_of(ranks, [](const RankState& state) { return state.is_dead && state.place.activity != Activity::ended; });
  if (dead != nullptr) {
    const bool is_memory = dead->end.signal == SIGKILL && cause.memory_kills > 0;
    return name_of(*dead) + " " + end_text(*dead) + (is_memory ? " because memory was lacking," : "") + " " +
           place_text(*dead);
  }
  if (cause.message.find("call different operations") != std::string::npos) {
    const std::string difference = differences(ranks);
    return cause.message + (difference.empty() ? ahead(ranks) : difference);
  }
  const RankState* const stopped = first_of(ranks, [](const RankState& state) { return is_stopped(state.process); });
  if (stopped != nullptr) {
    return name_of(*stopped) + " is stopped, " + place_text(*stopped) + " for " + seconds_text(stopped->seconds) +
           "; kill -CONT " + std::to_string(stopped->pid) + " lets it continue";
  }
  const RankState* const late = latest(ranks);
  if (late != nullptr) return sentence_about_late(*late) + differences(ranks);
  const std::string apart = different_waits(ranks);
  if (!apart.empty()) return "the ranks wait for each other: " + apart + differences(ranks);
  if (!cause.message.empty()) return cause.message + differences(ranks);
  const RankState* const waiting =
      first_of(ranks, [](const RankState& state) { return is_waiting(state) && state.seconds >= kLateSeconds; });
  if (waiting == nullptr) return "no rank is late; " + name_of(ranks.front()) + " is " + place_text(ranks.front());
  const bool is_whole = std::ranges::all_of(ranks, &RankState::is_seen);
  return name_of(*waiting) + " has been " + place_text(*waiting) + " for " + seconds_text(waiting->seconds) +
         (is_whole ? ", and no rank is elsewhere" : ", and the late rank is on a host that does not answer");
}

std::string ranks_json(const States& ranks) {
  Json list = Json::array();
  for (const RankState& state : ranks) {
    Json object = {{"rank", state.rank}, {"host", state.host}, {"state", state_word(state)}};
    if (state.is_seen) {
      object["pid"] = state.pid;
      object["activity"] = name_of(state.place.activity);
      object["phase"] = name_of(state.place.phase);
      object["seconds"] = state.seconds;
      object["step"] = state.step;
      object["call"] = state.call;
      object["memory_mb"] = state.memory_mb;
      if (state.has_answered) object["peak_memory_mb"] = state.answer.peak_memory_mb;
      if (state.has_answered) object["largest_blocks"] = json_of(state.answer.largest_blocks);
      object["process"] = std::string(1, state.process);
      if (state.is_dead && state.end.signal != 0) object["signal"] = state.end.signal;
      if (state.is_dead && state.end.signal == 0) object["exit_code"] = state.end.code;
      object["has_answered"] = state.has_answered;
      if (!state.answer.block.empty()) object["block"] = state.answer.block;
      if (!state.answer.workers.empty()) object["workers"] = state.answer.workers;
      object["threads"] = Json::array();
      for (const ThreadFacts& thread : state.answer.threads) object["threads"].push_back(json_of(thread));
    }
    object["configuration_differs"] = state.configuration != ranks.front().configuration;
    object["program_differs"] = state.program != ranks.front().program;
    list.push_back(std::move(object));
  }
  return dumped(list, 2);
}

std::vector<RankState> unpacked_ranks(const std::string& json) {
  std::vector<RankState> ranks;
  const Json list = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return ranks;
  for (const Json& object : list) {
    RankState state{.rank = object.value("rank", 0), .host = object.value("host", "")};
    state.is_seen = object.contains("pid");
    state.pid = object.value("pid", std::int64_t{0});
    state.process = object.value("process", "?")[0];
    state.memory_mb = object.value("memory_mb", 0.0);
    state.is_dead = object.contains("signal") || object.contains("exit_code");
    state.end = {.code = object.value("exit_code", -1), .signal = object.value("signal", 0)};
    state.place.activity = value_named(object.value("activity", ""), Activity::ended);
    state.place.phase = value_named(object.value("phase", ""), Phase::agreement);
    state.seconds = object.value("seconds", 0.0);
    state.step = object.value("step", std::int64_t{0});
    state.call = object.value("call", "");
    state.has_answered = object.value("has_answered", false);
    state.answer = answer_in(object);
    ranks.push_back(std::move(state));
  }
  return ranks;
}

std::string failure_page(const std::string& title, const std::string& verdict,
                         const std::vector<std::vector<std::string>>& fields, const States& ranks) {
  const auto is_other = [&](const RankState& state) {
    return std::string(state.program != ranks.front().program               ? "another program"
                       : state.configuration != ranks.front().configuration ? "another configuration"
                                                                            : "");
  };
  std::vector<std::vector<std::string>> rows;
  std::string stacks;
  for (const RankState& state : ranks) {
    std::vector<std::string> notes = state.answer.workers;
    for (const BlockMemory& block : state.answer.largest_blocks) notes.push_back("block " + text_of(block));
    if (const std::string other = is_other(state); !other.empty()) notes.push_back(other);
    if (!state.is_seen) {
      rows.push_back({std::to_string(state.rank), state.host, state_word(state), "", "", "", joined(notes, "\n")});
      continue;
    }
    rows.push_back({std::to_string(state.rank), state.host + ", process " + std::to_string(state.pid),
                    state_word(state), place_text(state), seconds_text(state.seconds),
                    number_text(state.memory_mb, 4) + " MiB", joined(notes, "\n")});
    std::vector<std::vector<std::string>> threads;
    for (const ThreadFacts& thread : state.answer.threads) {
      threads.push_back({std::to_string(thread.id) + " " + utf8_text(thread.name),
                         state_text(thread.state) + (thread.kernel.empty() ? "" : ", in " + thread.kernel),
                         as_lines(thread.frames)});
    }
    if (threads.empty()) continue;
    stacks += report::html_details("rank " + std::to_string(state.rank),
                                   report::html_table({"thread", "state", "functions, the innermost first"}, threads));
  }
  std::vector<std::vector<std::string>> facts = {{"verdict", verdict}};
  facts.insert(facts.end(), fields.begin(), fields.end());
  return report::html_page(
      title,
      report::html_table({}, facts) +
          report::html_section(
              "Ranks", report::html_table({"rank", "where", "process", "place", "since", "memory", "notes"}, rows)) +
          (stacks.empty() ? "" : report::html_section("Threads", stacks)));
}

}  // namespace lockstep::trainer
