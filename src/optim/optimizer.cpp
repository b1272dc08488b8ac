// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <stdexcept>

#include "slices.hpp"

namespace lockstep::optim {

namespace {

void require_supported(const Block& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  throw ConfigError("parameter '" + name + "' is " + std::string(name_of(block.dtype)) +
                    ", but optimizers update float32 and float64 only");
}

/// The group of every parameter, by name.
std::map<std::string, std::size_t> group_numbers(const std::vector<ParamGroup>& groups) {
  std::map<std::string, std::size_t> numbers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::string& name : groups[g].parameters) {
      if (!numbers.emplace(name, g).second) throw std::logic_error("parameter '" + name + "' is in two groups");
    }
  }
  return numbers;
}

std::size_t bytes_of_slice(const Block& block) {
  return static_cast<std::size_t>(block.slice_end - block.slice_begin) * size_of(block.dtype);
}

}  // namespace

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters)
    : rule_(&rule), groups_(std::move(groups)), parameters_(&parameters) {
  for (const ParamGroup& group : groups_) {
    auto names = rule.state_names(group.options);
    if (names.size() > state_names_.size()) state_names_ = std::move(names);
  }
  std::map<std::string, std::size_t> numbers = group_numbers(groups_);
  for (const Block& block : parameters.blocks()) {
    require_supported(block);
    std::vector<std::size_t> group_of_segment;
    for (const Segment& segment : block.segments) {
      const auto found = numbers.find(segment.name);
      if (found == numbers.end()) throw std::logic_error("parameter '" + segment.name + "' is in no group");
      group_of_segment.push_back(found->second);
      numbers.erase(found);
    }
    group_of_.push_back(std::move(group_of_segment));
    steps_.emplace_back(block.segments.size(), 0);
    const std::size_t lines = (bytes_of_slice(block) + sizeof(CacheLine) - 1) / sizeof(CacheLine);
    state_.emplace_back(state_names_.size(), std::vector<CacheLine>(lines));
  }
  if (!numbers.empty()) throw std::logic_error("no parameter is named '" + numbers.begin()->first + "'");
}

std::span<std::byte> Optimizer::state(std::size_t block, std::size_t slot) {
  return std::as_writable_bytes(std::span(state_.at(block).at(slot)))
      .first(bytes_of_slice(parameters_->blocks()[block]));
}

std::span<std::int64_t> Optimizer::steps(std::size_t block) { return steps_.at(block); }

void Optimizer::step() {
  parameters_->write([this] {
    const auto blocks = parameters_->blocks();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) {
        if (parameters_->gradient(b, s) == nullptr) continue;
        ++steps_[b][s];
        if (blocks[b].dtype == DType::float32) {
          update(b, s, rule_->update32);
        } else {
          update(b, s, rule_->update64);
        }
      }
    }
  });
}

template <class T>
void Optimizer::update(std::size_t block_index, std::size_t segment_index,
                       void (*apply)(const Options&, const Stretch<T>&)) {
  const Block& block = parameters_->blocks()[block_index];
  const Segment& segment = block.segments[segment_index];
  const Range part = part_in_slice(block, segment);
  if (part.count == 0) return;
  std::vector<T*> state;
  for (std::vector<CacheLine>& lines : state_[block_index]) {
    state.push_back(reinterpret_cast<T*>(lines.data()) + (part.begin - block.slice_begin));
  }
  const auto* gradient = reinterpret_cast<const T*>(parameters_->gradient(block_index, segment_index));
  apply(groups_[group_of_[block_index][segment_index]].options,
        Stretch<T>{.parameter = reinterpret_cast<T*>(block.parameters) + part.begin,
                   .gradient = gradient + (part.begin - segment.offset),
                   .state = state.data(),
                   .count = part.count,
                   .step = steps_[block_index][segment_index]});
}

}  // namespace lockstep::optim
