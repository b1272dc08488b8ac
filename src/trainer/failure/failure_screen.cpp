// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/failure/failure_screen.hpp"

#include <lockstep/log/log.hpp>

#include <nlohmann/json.hpp>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "core/system/block_memory.hpp"
#include "core/system/memory.hpp"
#include "core/system/process.hpp"
#include "core/system/resources.hpp"
#include "core/system/stacks.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

constexpr auto kTick = 50ms;         // a rank that is killed is noticed after so long
constexpr int kTicksOfALook = 10;    // looks at files and at long waits are rarer
constexpr auto kAnswerTime = 700ms;  // who has not answered by then hangs
constexpr auto kHostTime = 1000ms;   // the same of another host
constexpr auto kMainTime = 400ms;    // mpirun ends the job a second after a death
constexpr auto kConcludeTime = 3000ms;
constexpr auto kRest = 300ms;  // others end the job only when the verdict is printed
constexpr auto kShortRest =
    150ms;  // rank 0 completes its files before the failed rank prints its message and ends the job
constexpr std::size_t kThreads = 48;
constexpr std::size_t kNamedBlocks = 5;

// Kinds of letters between hosts.
constexpr int kAsk = 1;  // the text is the number of the question
constexpr int kFacts = 2;
constexpr int kVerdict = 3;

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// The lines of an INI file without comments.
std::vector<std::string> settings_in(const std::string& ini) {
  std::vector<std::string> lines;
  std::string section;
  for (const std::string& line : lines_in(ini)) {
    const std::string setting = trimmed(line.substr(0, line.find("  #")));
    if (setting.empty() || setting[0] == '#') continue;
    if (setting[0] == '[') section = setting.substr(1, setting.size() - 2) + ".";
    lines.push_back(setting[0] == '[' ? setting : section + setting);
  }
  return lines;
}

/// The first settings that differ: "optim.lr = 0.2, not 0.1".
std::string first_difference(const std::vector<std::string>& here, const std::vector<std::string>& there) {
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
    if (here[i] == there[i]) continue;
    return there[i] + ", not " + trimmed(here[i].substr(here[i].find('=') + 1));
  }
  return "another number of settings";
}

std::vector<std::uint64_t> gathered(const mpi::Communicator& world, std::uint64_t mine) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::uint64_t>(&mine, 1), std::span(all));
  return all;
}

/// The first rank whose number is not that of rank 0; 0 = none.
int first_other(const std::vector<std::uint64_t>& numbers) {
  const auto other = std::ranges::find_if(numbers, [&](std::uint64_t number) { return number != numbers.front(); });
  return other == numbers.end() ? 0 : static_cast<int>(other - numbers.begin());
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void remove(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

/// Writes a file whose absence does not end a run.
void write(const std::string& path, const std::string& text) {
  try {
    report::write_text(path, text);
  } catch (const std::exception& error) {
    log::warning(error.what());
  }
}

/// The board of this host; null = one of the hosts cannot have its memory. Collective.
std::unique_ptr<mpi::StatusBoard> make_board(const mpi::Communicator& world) {
  std::unique_ptr<mpi::StatusBoard> board;
  try {
    board = std::make_unique<mpi::StatusBoard>(world.split_by_host());
  } catch (const CommError& error) {  // every rank of the host gets it
    log::debug(std::string("the ranks do not see each other's state: ") + error.what());
  }
  if (!world.agree(board != nullptr)) board.reset();
  return board;
}

}  // namespace

FailureScreen::FailureScreen(const mpi::Communicator& world, std::string folder, const std::string& configuration,
                             double timeout_s, bool heals)
    : world_(world),
      folder_(std::move(folder)),
      timeout_s_(timeout_s),
      heals_(heals),
      hosts_(world.all_gather(host_name())),
      programs_(gathered(world, program_id())),
      board_(make_board(world)),
      memory_kills_(memory_kills().value_or(0)) {
  warn_of_differences(configuration);
  if (world.is_root()) {
    for (const char* file : {"/DUMP", "/dump.json", "/dump.html", "/failure.html"}) remove(folder_ + file);
  }
  if (!board_) return;
  // Ranks of `world`, which can be those that are left of MPI_COMM_WORLD.
  for (const std::uint64_t rank : gathered(board_->host(), static_cast<std::uint64_t>(world.rank()))) {
    ranks_here_.push_back(static_cast<int>(rank));
  }
  for (const std::uint64_t leader : gathered(world, static_cast<std::uint64_t>(ranks_here_.front()))) {
    const int rank = static_cast<int>(leader);
    if (rank != ranks_here_.front() && std::ranges::find(leaders_, rank) == leaders_.end()) leaders_.push_back(rank);
  }
  if (world.agree(!leaders_.empty())) mail_.emplace(world);
  prepare_stacks();
  note_fatal_signals();
  thread_ = std::thread([this] { watch(); });
}

FailureScreen::~FailureScreen() {
  if (!board_) return;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

/// Collective.
void FailureScreen::warn_of_differences(const std::string& configuration) {
  const std::vector<std::string> settings = settings_in(configuration);
  configurations_ = gathered(world_, hash_of(joined(settings, "\n")));
  if (const int other = first_other(programs_); other > 0 && world_.is_root()) {
    log::warning("rank " + std::to_string(other) + " on " + hosts_[static_cast<std::size_t>(other)] +
                 " runs another program than rank 0: results can differ, and ranks can wait for each other forever; "
                 "install the same version on all hosts");
  }
  const int other = first_other(configurations_);
  if (other == 0) return;
  const std::string there = world_.broadcast(joined(settings, "\n"), other);
  if (!world_.is_root()) return;
  log::warning("rank " + std::to_string(other) +
               " has another configuration than rank 0: " + first_difference(settings, split(there, '\n')));
}

bool FailureScreen::is_told_by_another() const {
  const auto verdict = board_ ? board_->verdict() : std::nullopt;
  return verdict && verdict->rank != board_->rank();
}

bool FailureScreen::conclude(ExitCode code, const std::string& message, bool is_agreed, bool is_remote) {
  if (!board_ || (is_agreed && code != kOutOfMemory)) return false;
  board_->note_failure({.rank = board_->rank(), .code = code, .message = message});
  const bool is_of_communication = code == ExitCode::communication && !is_remote;
  // Nothing is to follow the verdict.
  if (is_of_communication) is_told_by_another() ? log::debug(message) : log::error(message);
  is_failing_ = true;
  const auto limit = SteadyClock::now() + kConcludeTime;
  while (!board_->verdict() && SteadyClock::now() < limit) std::this_thread::sleep_for(kTick / 5);
  const auto verdict = board_->verdict();
  if (!verdict || is_told_by_another()) {
    std::this_thread::sleep_for(is_of_communication ? kRest : kShortRest);
    return is_of_communication;
  }
  write_failure();
  if (is_of_communication && verdict_ != message) log::error(verdict_ + "; see " + page_);
  return is_of_communication;
}

void FailureScreen::watch() {
  pthread_setname_np(pthread_self(), "status");
  std::unique_lock<std::mutex> lock(mutex_);
  for (int tick = 0; !wake_.wait_for(lock, kTick, [this] { return is_stopping_.load(); }); ++tick) {
    lock.unlock();
    try {
      answer_if_asked();
      read_mail();
      if (!board_->verdict()) look(tick % kTicksOfALook == 0);
    } catch (const std::exception& error) {
      log::warning("the state of the ranks is not known: " + message_of(error));
    }
    lock.lock();
  }
}

/// @param looks_at_files  whether it is time for what is rarer
void FailureScreen::look(bool looks_at_files) {
  const bool has_failed = board_->failure() || (!heals_ && dead_rank() >= 0);
  if ((!has_failed && !looks_at_files) || !speaks()) return;
  if (has_failed) return show_failure();
  is_dump_wanted() ? dump() : look_for_long_agreement();
}

void FailureScreen::answer_if_asked() {
  const std::uint64_t asked = board_->asked();
  if (asked == answered_) return;
  answered_ = asked;
  const char* const block = current_block();
  const RankAnswer answer{.block = block == nullptr ? "" : block,
                          .workers = worker_lines(),
                          .threads = stacks_of_threads(kThreads),
                          .peak_memory_mb = peak_memory_mb(),
                          .largest_blocks = largest_blocks(kNamedBlocks)};
  board_->answer(asked, packed(answer, mpi::StatusBoard::kAnswerBytes));
}

bool FailureScreen::is_alive(int local_rank) const {
  if (local_rank == board_->rank()) return true;
  if (board_->is_dead(local_rank)) return false;
  const char state = process_facts(board_->line(local_rank).pid).state;
  return !is_gone(state) && !is_stopped(state);
}

bool FailureScreen::speaks() const {
  for (int rank = 0; rank < board_->rank(); ++rank) {
    const bool has_ended = unpacked_place(board_->line(rank).place.load()).activity == Activity::ended;
    if (!has_ended && is_alive(rank)) return false;
  }
  return true;
}

int FailureScreen::dead_rank() const {
  for (int rank = 0; rank < board_->size(); ++rank) {
    if (!board_->is_dead(rank)) continue;
    if (unpacked_place(board_->line(rank).place.load()).activity != Activity::ended) return rank;
  }
  return -1;
}

RankState FailureScreen::state_of(int local_rank, std::uint64_t question) const {
  const StatusLine& line = board_->line(local_rank);
  const int rank = ranks_here_[static_cast<std::size_t>(local_rank)];
  RankState state{.rank = rank, .host = hosts_[static_cast<std::size_t>(rank)], .pid = line.pid.load()};
  const ProcessFacts process = process_facts(static_cast<pid_t>(state.pid));
  state.process = process.state;
  state.memory_mb = process.memory_mb;
  state.is_dead = board_->is_dead(local_rank);
  if (state.is_dead) state.end = end_of(process, unpacked_end(line.end.load()));
  state.place = unpacked_place(line.place.load());
  state.seconds = state.place.seconds(monotonic_us());
  state.step = line.step.load();
  state.call = mpi::call_text(line.call.load());
  const auto answer = board_->answer_of(local_rank, question);
  state.has_answered = answer.has_value();
  if (answer) state.answer = unpacked_answer(*answer);
  if (!answer && !state.is_dead) state.answer.threads = threads_of(static_cast<pid_t>(state.pid), kThreads);
  return state;
}

/// Answers questions of other hosts, and collects their answers.
void FailureScreen::read_mail() {
  while (mail_) {
    const auto letter = mail_->receive();
    if (!letter) return;
    if (letter->kind == kAsk) mail_->send(letter->from, kFacts, letter->text + "\n" + ranks_json(gather_here()));
    if (letter->kind == kVerdict) board_->conclude(letter->text, -1);
    const std::string heading = std::to_string(question_) + "\n";
    const bool is_wanted = letter->kind == kFacts && letter->text.starts_with(heading);
    if (is_wanted) from_hosts_.push_back(letter->text.substr(heading.size()));
  }
}

/// Sends a letter to each other host. One that cannot be reached gets none.
void FailureScreen::send(int kind, const std::string& text) {
  if (!mail_) return;
  for (const int leader : leaders_) {
    try {
      mail_->send(leader, kind, text);
    } catch (const CommError& error) {
      log::debug(error.what());
    }
  }
}

std::vector<RankState> FailureScreen::gather_here() {
  const std::uint64_t question = board_->ask();
  answer_if_asked();
  const auto is_missing = [&](int rank) { return !board_->answer_of(rank, question) && is_alive(rank); };
  const auto limit = SteadyClock::now() + kAnswerTime;
  for (int rank = 0; rank < board_->size(); ++rank) {
    while (is_missing(rank) && !is_stopping_ && SteadyClock::now() < limit) std::this_thread::sleep_for(kTick / 10);
  }
  std::vector<RankState> states;
  for (int rank = 0; rank < board_->size(); ++rank) states.push_back(state_of(rank, question));
  return states;
}

/// Asks the ranks of all hosts.
std::vector<RankState> FailureScreen::gather() {
  from_hosts_.clear();
  send(kAsk, std::to_string(++question_));
  std::vector<RankState> known = gather_here();
  const auto limit = SteadyClock::now() + kHostTime;
  while (from_hosts_.size() < leaders_.size() && !is_stopping_ && SteadyClock::now() < limit) {
    read_mail();
    std::this_thread::sleep_for(kTick / 10);
  }
  for (const std::string& answer : from_hosts_) {
    for (RankState& state : unpacked_ranks(answer)) known.push_back(std::move(state));
  }
  std::vector<RankState> states;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const auto found = std::ranges::find(known, rank, &RankState::rank);
    RankState state{.rank = rank, .host = hosts_[place], .is_seen = false};
    if (found != known.end()) state = std::move(*found);
    state.configuration = configurations_[place];
    state.program = programs_[place];
    states.push_back(std::move(state));
  }
  return states;
}

bool FailureScreen::is_dump_wanted() const { return ranks_here_.front() == 0 && exists(folder_ + "/DUMP"); }

void FailureScreen::dump() {
  const std::vector<RankState> states = gather();
  const std::string verdict = verdict_on(states, {});
  Json json = {{"verdict", verdict}};
  json["ranks"] = Json::parse(ranks_json(states));
  write(folder_ + "/dump.json", json.dump(2) + "\n");
  const std::string title = fs::path(folder_).filename().string() + ": what the ranks do";
  write(folder_ + "/dump.html", failure_page(title, verdict, {}, states));
  remove(folder_ + "/DUMP");
  log::info("dump: " + verdict + "; see " + folder_ + "/dump.html");
}

/// Waits for the agreement of all ranks have no limit of their own: one that lasts is reported, and it ends the run
/// where a rank is stopped.
void FailureScreen::look_for_long_agreement() {
  std::uint64_t longest = 0;
  bool is_one_stopped = false;
  for (int rank = 0; rank < board_->size(); ++rank) {
    const std::uint64_t word = board_->line(rank).place.load();
    const Place place = unpacked_place(word);
    if (place.phase == Phase::agreement && place.seconds(monotonic_us()) > timeout_s_) longest = word;
    is_one_stopped =
        is_one_stopped || (rank != board_->rank() && is_stopped(process_facts(board_->line(rank).pid).state));
  }
  stopped_looks_ = longest != 0 && is_one_stopped ? stopped_looks_ + 1 : 0;
  if (stopped_looks_ > 1) {
    board_->note_failure({.rank = board_->rank(),
                          .message = "comm: ranks have waited longer than comm.timeout_s for the agreement of all"});
    show_failure();
    mpi::Environment::abort(ExitCode::communication);
  }
  if (longest == 0 || longest == reported_wait_ || is_one_stopped || ranks_here_.front() != 0) return;
  reported_wait_ = longest;
  log::warning("ranks have waited longer than comm.timeout_s for the agreement of all");
  dump();
}

void FailureScreen::show_failure() {
  const std::vector<RankState> states = gather();
  failure_ = board_->failure().value_or(mpi::StatusBoard::NotedFailure());
  const std::int64_t kills = memory_kills().value_or(0) - memory_kills_;
  const bool is_of_rank = !failure_.message.empty() && failure_.code != ExitCode::communication;
  verdict_ = verdict_on(states, {.message = failure_.message, .is_of_rank = is_of_rank, .memory_kills = kills});
  if (failure_.message.empty()) failure_.message = verdict_;
  ranks_json_ = ranks_json(states);
  completed_steps_ = completed_steps(states[static_cast<std::size_t>(world_.rank())]);
  page_ = folder_ + "/failure.html";
  write(page_, failure_page(fs::path(folder_).filename().string() + ": why the run failed", verdict_,
                            {{"message", failure_.message},
                             {"exit code", std::to_string(static_cast<int>(failure_.code))},
                             {"completed steps", std::to_string(completed_steps_)},
                             {"processes killed because memory was lacking", std::to_string(kills)}},
                            states));
  // The training thread of this rank writes its files, and prints its message, first. It may be busy elsewhere.
  const auto limit = SteadyClock::now() + kMainTime;
  while (!is_failing_ && !is_stopping_ && SteadyClock::now() < limit) std::this_thread::sleep_for(kTick / 10);
  if (!is_failing_ || !world_.is_root()) write_failure();
  if (!is_failing_) {
    log::error(verdict_ + "; see " + page_);
    log::flush();
  }
  board_->conclude(verdict_, board_->rank());
  send(kVerdict, verdict_);
}

/// Adds the verdict and the ranks to failure.json, which this makes where nobody has, with STATUS.json.
void FailureScreen::write_failure() const {
  const std::string path = folder_ + "/failure.json";
  try {
    if (!exists(path)) {
      report::write_failure(folder_, Error(failure_.code, failure_.message), world_.rank(), completed_steps_);
      report::write_status(folder_, {.state = report::RunState::failed,
                                     .step = completed_steps_,
                                     .last_error = failure_.message,
                                     .exit_code = static_cast<int>(failure_.code)});
    }
    Json json = Json::parse(report::read_text(path).value_or("{}"));
    json["verdict"] = verdict_;
    json["ranks"] = Json::parse(ranks_json_);
    report::write_text(path, json.dump(2) + "\n");
  } catch (const std::exception& error) {
    log::warning(std::string("failure.json is not complete: ") + error.what());
  }
}

}  // namespace lockstep::trainer
