// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/system/block_memory.hpp"
#include "core/system/process_facts.hpp"
#include "core/system/status_line.hpp"

namespace lockstep::trainer {

/// The facts about a rank that it alone knows. A thread of it answers with them, also while its other threads hang.
struct RankAnswer {
  std::string block = {};                 ///< block of the model that it computes; "" = none
  std::vector<std::string> workers = {};  ///< samples that its loader threads load
  std::vector<ThreadFacts> threads = {};
  double peak_memory_mb = 0;
  std::vector<BlockMemory> largest_blocks = {};
};

/// @param limit  bytes; the last stacks are left out where the text would be longer
std::string packed(RankAnswer answer, std::size_t limit);
/// An empty answer where the text is none.
RankAnswer unpacked_answer(const std::string& text);

/// The facts about a rank at one moment.
struct RankState {
  int rank = 0;
  std::string host = {};
  bool is_seen = true;  ///< false = its host does not answer; only the rank, the host and the last two are known
  std::int64_t pid = 0;
  char process = '?';  ///< letter as that of ProcessFacts
  double memory_mb = 0;
  bool is_dead = false;
  NotedEnd end = {};  ///< that of a dead process: its signal or its exit code
  Place place = {};
  double seconds = 0;  ///< since it has been there
  std::int64_t step = 0;
  std::string call = {};  ///< "all_reduce #17"; "" = none yet
  bool has_answered = false;
  RankAnswer answer = {};
  std::uint64_t configuration = 0;
  std::uint64_t program = 0;
};

/// The end of a dead process.
/// @param noted  as it noted it; a process that noted nothing was killed by the one signal that it cannot note
NotedEnd end_of(const ProcessFacts& process, const NotedEnd& noted);
/// The steps that the rank has completed.
std::int64_t completed_steps(const RankState& state);

/// "rank 1 (process 42 on node7)".
std::string name_of(const RankState& state);
/// "in the forward pass of step 12 (layer3.conv1)".
std::string place_text(const RankState& state);
/// "was killed by signal 9 (KILL)"; "" = the process lives.
std::string end_text(const RankState& state);
/// The state of the process in a word or two.
std::string state_word(const RankState& state);

/// The reason why somebody wants to know.
struct FailureCause {
  std::string message = {};       ///< sentence of the first rank that failed; "" = none has
  bool is_of_rank = false;        ///< the failure is that rank's own, and nobody else is to blame
  std::int64_t memory_kills = 0;  ///< processes that the system has killed since the start, because memory was lacking
};

/// One sentence: which rank is to blame, and what it does.
std::string verdict_on(const std::vector<RankState>& ranks, const FailureCause& cause);

/// The array of failure.json that states the ranks.
std::string ranks_json(const std::vector<RankState>& ranks);
/// The ranks that such an array states, without the last two numbers; empty where the text is none.
std::vector<RankState> unpacked_ranks(const std::string& json);

/// Everything on one page.
/// @param fields  names and values above the table
std::string failure_page(const std::string& title, const std::string& verdict,
                         const std::vector<std::vector<std::string>>& fields, const std::vector<RankState>& ranks);

}  // namespace lockstep::trainer
