// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::optim {

namespace {

void require_supported(const Rule& rule, const HalfOptions& half, const FlatBlock& block) {
  if (block.dtype == DType::float32 || block.dtype == DType::float64) return;
  const std::string name = block.segments.empty() ? "?" : block.segments.front().name;
  const std::string fault = "parameter '" + name + "' is " + std::string(name_of(block.dtype)) + ", but ";
  if (!block.is_half()) throw ConfigError(fault + "optimizers update floating-point numbers only");
  if (rule.uses_closure()) throw ConfigError(fault + rule.name + " updates float32 and float64 only");
  if (half.rounds_stochastically && block.dtype != DType::bfloat16) {
    throw ConfigError(fault + "stochastic rounding supports bfloat16 only");
  }
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

}  // namespace

Optimizer::Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters, HalfOptions half)
    : rule_(&rule), groups_(std::move(groups)), parameters_(&parameters), half_(half) {
  if (half.has_masters && half.rounds_stochastically) {
    throw std::logic_error("masters are rounded to nearest even; stochastic rounding requires has_masters = false");
  }
  if (parameters.as_tensors() != nullptr && !rule.supports_tensors()) {
    throw ConfigError("optim.name: " + rule.name + " does not support GPUs; use another optimizer or run.device=cpu");
  }
  name_states();
  assign_groups();
  if (const auto* const of_closure = std::get_if<ClosureRule>(&rule.kind)) {
    if (groups_.size() != 1) {
      throw std::logic_error("rule '" + rule.name +
                             "' updates all parameters as one vector and requires a single group");
    }
    for (const std::string& name : of_closure->numbers) numbers_[name] = 0;
  }
  // A sum over a parameter is computed by one rank on a GPU.
  if (rule.is_whole() || (parameters.as_tensors() != nullptr && needs().sums)) parameters.own_whole_parameters();
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) allocate_state(b);
  initialize_state();
}

void Optimizer::assign_groups() {
  std::map<std::string, std::size_t> numbers = group_numbers(groups_);
  for (const FlatBlock& block : parameters_->blocks()) {
    require_supported(*rule_, half_, block);
    std::vector<std::size_t>& group_of_segment = group_of_.emplace_back();
    for (const Segment& segment : block.segments) {
      const auto found = numbers.find(segment.name);
      if (found == numbers.end()) throw std::logic_error("parameter '" + segment.name + "' is in no group");
      group_of_segment.push_back(found->second);
      numbers.erase(found);
    }
    steps_.emplace_back(block.segments.size(), 0);
    was_counted_.emplace_back(block.segments.size(), 0);
    coefficients_.emplace_back(block.segments.size());
  }
  if (!numbers.empty()) throw std::logic_error("there is no parameter named '" + numbers.begin()->first + "'");
}

std::span<std::int64_t> Optimizer::steps(std::size_t block) { return steps_.at(block); }

void Optimizer::set_all_steps(const std::vector<std::vector<std::int64_t>>& steps) {
  for (std::size_t b = 0; b < steps_.size(); ++b) std::copy(steps[b].begin(), steps[b].end(), steps_[b].begin());
}

void Optimizer::step(const GradientChange& change) {
  step_by_group(std::vector<GradientChange>(groups_.size(), change));
}

void Optimizer::step_by_group(Changes changes) {
  if (changes.size() != groups_.size()) throw std::logic_error("an update requires one change per group");
  std::visit([this, changes](const auto& rule) { step_by(rule, changes); }, rule_->kind);
}

/// Counts the update of every parameter that has a gradient.
void Optimizer::count_step() {
  for (std::size_t b = 0; b < steps_.size(); ++b) {
    for (std::size_t s = 0; s < steps_[b].size(); ++s) {
      if (rule_->counts_every_step || parameters_->has_gradient(b, s)) ++steps_[b][s];
    }
  }
}

}  // namespace lockstep::optim
