// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/host_chain.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr int kResultTag = 3;
constexpr int kFirstPartialTag = 4;  // and one more for each segment

}  // namespace

HostLayout::HostLayout(const std::vector<int>& host_of_rank) {
  std::map<int, int> numbers;
  for (int rank = 0; rank < static_cast<int>(host_of_rank.size()); ++rank) {
    const int host = numbers.try_emplace(host_of_rank[rank], static_cast<int>(numbers.size())).first->second;
    host_of_rank_.push_back(host);
    ranks_of_host_.resize(numbers.size());
    auto& ranks = ranks_of_host_[static_cast<std::size_t>(host)];
    local_rank_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
    if (segments_.empty() || segments_.back().host != host) segments_.push_back({.host = host, .begin = rank});
    segments_.back().end = rank + 1;
  }
  const auto smallest = std::min_element(ranks_of_host_.begin(), ranks_of_host_.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  carriers_ = static_cast<int>(smallest->size());
}

/// Messages to or from one rank, of which a few may be under way.
class HostChain::Link {
 public:
  Link(Messages& messages, const Call& call, int peer, int tag)
      : messages_(messages), call_(call), peer_(peer), tag_(tag) {}

  void receive(std::size_t piece, std::byte* target, std::size_t bytes) { flight(piece).receive(target, bytes, peer_); }
  void send(std::size_t piece, const std::byte* from, std::size_t bytes) { flight(piece).send(from, bytes, peer_); }

  /// Waits for a piece, if it was ever under way.
  void finish(std::size_t piece) {
    auto& exchange = flights_[piece % kFlights];
    if (exchange) messages_.await(*exchange, call_);
    exchange.reset();
  }
  void finish_all() {
    for (std::size_t flight = 0; flight < kFlights; ++flight) finish(flight);
  }

 private:
  Exchange& flight(std::size_t piece) { return flights_[piece % kFlights].emplace(messages_.comm(), tag_); }

  Messages& messages_;
  const Call& call_;
  int peer_;
  int tag_;
  std::array<std::optional<Exchange>, kFlights> flights_;
};

/// One reduction on one carrier.
class HostChain::Run {
 public:
  Run(HostChain& chain, const Job& job, const Arrays& arrays, Slice slice, std::span<std::byte* const> targets)
      : chain_(chain),
        job_(job),
        arrays_(arrays),
        slice_(slice),
        targets_(targets),
        partial_bytes_(size_of(partial_dtype(job.call.dtype))),
        piece_elements_(kPieceBytes / partial_bytes_),
        pieces_((slice.count + piece_elements_ - 1) / piece_elements_),
        last_segment_(chain.layout_.segments().size() - 1) {
    const auto& segments = chain.layout_.segments();
    for (const SegmentWork& part : chain_.parts_) {
      const auto segment = static_cast<std::size_t>(part.segment);
      const int tag = kFirstPartialTag + part.segment;
      arriving_.push_back(segment > 0 ? link(segments[segment - 1].host, tag) : nullptr);
      leaving_.push_back(segment < last_segment_ ? link(segments[segment + 1].host, tag + 1) : nullptr);
    }
    const auto& way = chain_.way_back_;
    const std::size_t place = chain_.place_;
    if (place > 0) result_arriving_ = link(way[place - 1], kResultTag);
    if (place + 1 < way.size()) result_leaving_ = link(way[place + 1], kResultTag);
  }

  /// Everything has its time: what is waited for was sent at an earlier time, so no two ranks wait for each other.
  void run() {
    const std::size_t back_from = last_segment_ + chain_.place_;
    for (std::size_t time = 0; time < back_from + pieces_; ++time) {
      for (std::size_t i = 0; i < chain_.parts_.size(); ++i) {
        const auto segment = static_cast<std::size_t>(chain_.parts_[i].segment);
        if (time >= segment && time - segment < pieces_) add(i, time - segment);
      }
      if (result_arriving_ && time >= back_from) bring_back(time - back_from);
    }
    for (const auto& link : leaving_) {
      if (link) link->finish_all();
    }
    if (result_leaving_) result_leaving_->finish_all();
  }

 private:
  std::unique_ptr<Link> link(int host, int tag) const {
    const int peer = chain_.layout_.ranks_of(host)[chain_.layout_.local_rank_of(chain_.rank_)];
    return std::make_unique<Link>(chain_.messages_, job_.call, peer, tag);
  }

  std::size_t begin_of(std::size_t piece) const { return slice_.begin + piece * piece_elements_; }
  std::size_t count_of(std::size_t piece) const {
    return std::min(piece_elements_, slice_.count - piece * piece_elements_);
  }
  std::byte* target_of(std::size_t piece) const { return targets_[0] + begin_of(piece) * job_.element_bytes(); }
  std::size_t result_bytes(std::size_t piece) const { return count_of(piece) * job_.element_bytes(); }

  /// Calls `post` for the pieces that may be under way now that this one is waited for.
  template <class Post>
  void post_ahead(std::size_t piece, Post post) const {
    if (piece == 0) post(piece);
    if (piece + 1 < pieces_) post(piece + 1);
  }

  /// Adds this host's arrays to what comes from the segment before, and hands it on.
  void add(std::size_t index, std::size_t piece) {
    SegmentWork& part = chain_.parts_[index];
    if (arriving_[index]) {
      post_ahead(piece, [&](std::size_t next) {
        auto& buffer = part.received[next % kFlights];
        const std::size_t bytes = part.arriving * count_of(next) * partial_bytes_;
        buffer.resize(std::max(buffer.size(), bytes));
        arriving_[index]->receive(next, buffer.data(), bytes);
      });
      arriving_[index]->finish(piece);
    }
    point_at_sources(part, piece);
    if (leaving_[index]) {
      hand_on(part, *leaving_[index], piece);
    } else {
      finish_result(part, piece);
    }
  }

  void point_at_sources(const SegmentWork& part, std::size_t piece) {
    sources_.clear();
    for (std::size_t i = 0; i < part.arriving; ++i) {
      sources_.push_back(part.received[piece % kFlights].data() + i * count_of(piece) * partial_bytes_);
    }
    const HostLayout::HostRange& segment = chain_.layout_.segments()[static_cast<std::size_t>(part.segment)];
    for (int rank = segment.begin; rank < segment.end; ++rank) {
      const std::byte* const first = arrays_.first[chain_.layout_.local_rank_of(rank)];
      job_.add_arrays(rank, first + begin_of(piece) * job_.element_bytes(), arrays_.node_bytes, sources_);
    }
  }

  void hand_on(SegmentWork& part, Link& leaving, std::size_t piece) {
    leaving.finish(piece);  // waits for what was sent from this buffer before
    const std::size_t groups = part.groups.size() - 1;
    const std::size_t group_bytes = count_of(piece) * partial_bytes_;
    auto& buffer = part.sent[piece % kFlights];
    buffer.resize(std::max(buffer.size(), groups * group_bytes));
    for (std::size_t group = 0; group < groups; ++group) {
      std::byte* const target = buffer.data() + group * group_bytes;
      reduce_group(part, group, std::span(&target, 1), piece);
    }
    leaving.send(piece, buffer.data(), groups * group_bytes);
  }

  void finish_result(const SegmentWork& part, std::size_t piece) {
    places_.clear();
    for (std::byte* const target : targets_) places_.push_back(target + begin_of(piece) * job_.element_bytes());
    reduce_group(part, 0, places_, piece);
    send_back(piece);
  }

  void reduce_group(const SegmentWork& part, std::size_t group, std::span<std::byte* const> targets,
                    std::size_t piece) {
    const std::size_t begin = part.groups[group];
    const std::size_t sources = part.groups[group + 1] - begin;
    Reduction reduction = job_.reduction();
    if (job_.tree == nullptr) {
      reduction.parts = static_cast<std::size_t>(chain_.messages_.comm().size());
    } else {
      reduction.merges = std::span(part.merges).subspan(begin, sources);
    }
    reduction.partial_sources = begin < part.arriving ? std::min(sources, part.arriving - begin) : 0;
    reduction.is_partial = static_cast<std::size_t>(part.segment) != last_segment_;
    mpi::reduce(std::span(sources_).subspan(begin, sources), targets, count_of(piece), reduction);
  }

  void bring_back(std::size_t piece) {
    // The next one may arrive in its place already: this host has read its own arrays there.
    post_ahead(piece, [&](std::size_t next) { result_arriving_->receive(next, target_of(next), result_bytes(next)); });
    result_arriving_->finish(piece);
    for (std::byte* const target : targets_.subspan(1)) {
      std::memcpy(target + begin_of(piece) * job_.element_bytes(), target_of(piece), result_bytes(piece));
    }
    send_back(piece);
  }

  void send_back(std::size_t piece) {
    if (!result_leaving_) return;
    result_leaving_->finish(piece);
    result_leaving_->send(piece, target_of(piece), result_bytes(piece));
  }

  HostChain& chain_;
  const Job& job_;
  const Arrays& arrays_;
  Slice slice_;
  std::span<std::byte* const> targets_;
  std::size_t partial_bytes_;
  std::size_t piece_elements_;
  std::size_t pieces_;
  std::size_t last_segment_;
  std::vector<std::unique_ptr<Link>> arriving_;  ///< one link per part; null in the first segment
  std::vector<std::unique_ptr<Link>> leaving_;   ///< one link per part; null in the last segment
  std::unique_ptr<Link> result_arriving_;
  std::unique_ptr<Link> result_leaving_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> places_;
};

HostChain::HostChain(const HostLayout& layout, Messages& messages)
    : layout_(layout), messages_(messages), rank_(messages.comm().rank()), host_(layout.host_of(rank_)) {
  const auto& segments = layout.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].host == host_) parts_.emplace_back().segment = static_cast<int>(i);
  }
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (std::find(way_back_.begin(), way_back_.end(), segment->host) == way_back_.end()) {
      way_back_.push_back(segment->host);
    }
  }
  place_ = static_cast<std::size_t>(std::find(way_back_.begin(), way_back_.end(), host_) - way_back_.begin());
}

void HostChain::prepare(SegmentWork& part, const Job& job) const {
  const HostLayout::HostRange& segment = layout_.segments()[static_cast<std::size_t>(part.segment)];
  const std::size_t ranks = static_cast<std::size_t>(segment.end - segment.begin);
  part.merges.clear();
  if (job.tree == nullptr) {
    part.arriving = part.segment > 0 ? 1 : 0;
    part.groups = {0, part.arriving + ranks};
    return;
  }
  part.arriving = static_cast<std::size_t>(job.tree->depth_before(segment.begin));
  part.merges.assign(part.arriving, 0);
  for (int rank = segment.begin; rank < segment.end; ++rank) {
    const auto merges = job.tree->merges_of(rank);
    part.merges.insert(part.merges.end(), merges.begin(), merges.end());
  }
  // Everything that is left on the stack after this segment, each a group of sources that follow each other.
  part.groups.clear();
  for (std::size_t source = 0; source < part.merges.size(); ++source) {
    part.groups.push_back(source);
    part.groups.resize(part.groups.size() - part.merges[source]);
  }
  part.groups.push_back(part.merges.size());
}

void HostChain::reduce(const Job& job, const Arrays& arrays, std::size_t count, std::span<std::byte* const> targets) {
  const int carrier = layout_.local_rank_of(rank_);
  if (carrier >= layout_.carriers()) return;
  const Slice slice = slice_of(count, carrier, layout_.carriers(), job.element_bytes());
  if (slice.count == 0) return;
  for (SegmentWork& part : parts_) prepare(part, job);
  Run(*this, job, arrays, slice, targets).run();
}

}  // namespace lockstep::mpi
