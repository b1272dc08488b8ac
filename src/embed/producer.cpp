// SPDX-License-Identifier: BSD-3-Clause
#include "embed/producer.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "engine/setup/run_splits.hpp"

namespace lockstep::embed {

namespace {

constexpr std::chrono::microseconds kNap(50);
constexpr std::int64_t kLettersPerWindow = 4;

SampleTensors tensors_in(const batch::Batch& batch) {
  SampleTensors tensors;
  for (const auto& [name, value] : batch.values()) tensors.emplace_back(name, value.as<at::Tensor>());
  return tensors;
}

}  // namespace

void Producer::push(const SampleForm& form, const batch::Batch& samples, std::optional<std::int64_t> lane) {
  if (lane && (*lane < 0 || *lane >= lanes())) {
    throw DataError(
        "there is no lane " + std::to_string(*lane) +
        (lanes() == 0 ? ", because train.lanes is 0" : "; those of the run are 0 to " + std::to_string(lanes() - 1)));
  }
  read_letters();
  require_receiver();
  if (samples.size() == 0) return;
  const int receiver = lane ? options_.receiver_of_lane[static_cast<std::size_t>(*lane)] : options_.receiver;
  const std::int64_t sample_bytes = std::max<std::int64_t>(bytes_of(tensors_in(samples)) / samples.size(), 1);
  const std::int64_t most = std::max<std::int64_t>(options_.window_bytes / kLettersPerWindow / sample_bytes, 1);
  for (std::int64_t begin = 0; begin < samples.size(); begin += most) {
    const std::int64_t count = std::min(most, samples.size() - begin);
    const auto letter =
        packed({.number = lane.value_or(-1), .tensors = tensors_in(form.rows_of(samples, begin, count))});
    const auto has_room = [&] {
      const mpi::Mailbox::UnderWay now = mail_->under_way();
      return now.letters == 0 || static_cast<std::int64_t>(now.bytes + letter->size()) <= options_.window_bytes;
    };
    if (!has_room() && options_.drops_when_full) {
      dropped_ += count;
      continue;
    }
    wait("takes no samples", has_room);
    mail_->post(receiver, static_cast<int>(LetterKind::samples), letter);
  }
}

Letter Producer::request_weights() {
  require_receiver();
  answer_.reset();
  mail_->post(options_.receiver, static_cast<int>(LetterKind::request), packed({}));
  wait("gives no weights; it does so in its calls that train or update", [this] { return answer_.has_value(); });
  auto [kind, letter] = std::move(*answer_);
  answer_.reset();
  if (kind == LetterKind::refusal) throw ConfigError(letter.text);
  return std::move(letter);
}

void Producer::close() {
  const auto all_arrived = [this] { return ended_ || mail_->under_way().letters == 0; };
  read_letters();
  if (has_ended()) return;
  wait("takes no samples", all_arrived);
  if (ended_) return;
  mail_->post(options_.receiver, static_cast<int>(LetterKind::closed), packed({.number = dropped_}));
  wait("takes no letter", all_arrived);
}

void Producer::read_letters() {
  while (std::optional<mpi::Mailbox::Mail> letter = mail_->take()) {
    const auto kind = static_cast<LetterKind>(letter->kind);
    Letter content = unpacked(std::move(letter->bytes));
    if (kind == LetterKind::ended) {
      ended_ = "rank " + std::to_string(letter->from) + ", which trained, " + content.text;
    } else {
      answer_.emplace(kind, std::move(content));
    }
  }
}

bool Producer::has_ended() {
  if (!ended_ && mail_->is_gone(options_.receiver)) {
    read_letters();
    if (!ended_)
      ended_ = "rank " + std::to_string(options_.receiver) + ", which trained, is gone: its process has ended";
  }
  return ended_.has_value();
}

void Producer::require_receiver() {
  if (has_ended()) throw CommError(*ended_);
}

void Producer::wait(const char* purpose, const std::function<bool()>& is_over) {
  const SteadyClock::time_point start = SteadyClock::now();
  for (;;) {
    read_letters();
    if (is_over()) return;
    require_receiver();
    if (seconds_since(start) > options_.timeout_s) {
      throw CommError("rank " + std::to_string(options_.receiver) + " " + purpose + ", for " +
                      seconds_text(options_.timeout_s) + " (comm.timeout_s)");
    }
    std::this_thread::sleep_for(kNap);
  }
}

engine::LoadedModel model_without_weights(const mpi::Communicator& alone, const Sections& sections,
                                          const engine::Registry& registry) {
  data::OpenOptions options = engine::open_options(sections, registry);
  options.is_evaluation = true;
  options.used = engine::used_splits({"train"});
  data::Splits splits = engine::open_splits(alone, sections.at("data"), registry, options, std::nullopt);
  const Task task = splits.train->task();
  engine::Resources resources = engine::make_resources(sections, alone, engine::Purpose::prediction);
  engine::WrappedModel model = engine::make_wrapped_model(resources, sections, registry, task,
                                                          {.purpose = engine::Purpose::prediction, .is_loaded = true});
  return {.splits = std::move(splits),
          .resources = std::move(resources),
          .model = std::move(model),
          .task = task,
          .source = ""};
}

}  // namespace lockstep::embed
