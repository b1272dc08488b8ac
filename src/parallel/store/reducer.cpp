// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/reducer.hpp"

#include <cstring>

namespace lockstep::parallel {

BucketReport report_of(const Reducer& reducer) {
  const auto* const adaptive = ability_of<AdaptiveReducer>(reducer);
  return adaptive != nullptr ? adaptive->report() : BucketReport();
}

BucketLayout learned_layout_of(const Reducer& reducer) {
  const auto* const adaptive = ability_of<AdaptiveReducer>(reducer);
  return adaptive != nullptr ? adaptive->learned_layout() : BucketLayout();
}

void SliceVisits::visit(const GradientSlot& gradient, std::size_t parameter, std::int64_t begin, std::int64_t end,
                        const SlicedReducer::Visit& visit, bool keeps) {
  if (begin == end) return;
  const auto place_of = [&](std::int64_t element) {
    return gradient.begin + static_cast<std::size_t>(element) * gradient.element_bytes;
  };
  if (is_kept_[parameter] != 0) return visit(begin, end - begin, place_of(begin));
  const mpi::Slice range{.begin = static_cast<std::size_t>(gradient.offset + begin),
                         .count = static_cast<std::size_t>(end - begin)};
  collectives_.reduce_range(gradient.ticket, range, [&](std::size_t first, const std::byte* values, std::size_t count) {
    const std::int64_t position = static_cast<std::int64_t>(first) - gradient.offset;
    visit(position, static_cast<std::int64_t>(count), values);
    // Only this rank reads its own part of its own bucket.
    if (keeps && place_of(position) != values) std::memcpy(place_of(position), values, count * gradient.element_bytes);
  });
  if (keeps) is_kept_[parameter] = 1;
}

void SliceVisits::meet(mpi::Ticket ticket) const {
  collectives_.reduce_range(ticket, {}, [](std::size_t, const std::byte*, std::size_t) {});
}

}  // namespace lockstep::parallel
