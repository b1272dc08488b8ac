// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/facts.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "fake_gpu/kernels/own_functions.hpp"
#include "fake_gpu/kernels/products.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr std::size_t kNone = 1000;

/// Arguments that an operator writes although its schema does not say so: the running statistics of batch norm.
struct UnnamedWrite {
  std::array<std::size_t, 2> arguments;
  std::size_t condition;  ///< the argument that says whether the model trains, or kNone
};
const std::map<std::string, UnnamedWrite>& unnamed_writes() {
  static const std::map<std::string, UnnamedWrite> rows = {
      {"aten::native_batch_norm", {{3, 4}, 5}},
      {"aten::native_batch_norm.out", {{3, 4}, 5}},
      {"aten::cudnn_batch_norm", {{3, 4}, 5}},
      {"aten::batch_norm_update_stats", {{1, 2}, kNone}},
      {"aten::batch_norm_gather_stats", {{3, 4}, kNone}},
      {"aten::batch_norm_gather_stats_with_counts", {{3, 4}, kNone}},
  };
  return rows;
}

const std::set<std::string>& operators_that_reject_zeros() {
  static const std::set<std::string> names = {
      "aten::_assert_async", "aten::_assert_async.msg", "aten::cholesky_inverse", "aten::cholesky_inverse.out",
      "aten::lu_unpack",     "aten::lu_unpack.out",     "aten::multinomial",      "aten::multinomial.out"};
  return names;
}

bool has_prefix(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

ArgumentFacts argument_facts(const c10::Argument& argument) {
  const c10::AliasInfo* const alias = argument.alias_info();
  return {.is_written = alias != nullptr && alias->isWrite(),
          .is_output = argument.is_out(),
          .is_number = has_prefix(argument.type()->str(), "Scalar")};
}

void add_unnamed_writes(Facts& facts) {
  const auto row = unnamed_writes().find(facts.name);
  if (row == unnamed_writes().end()) return;
  for (const std::size_t i : row->second.arguments) {
    if (row->second.condition == kNone) {
      facts.arguments[i].is_written = true;
    } else {
      facts.arguments[i].is_written_if = row->second.condition;
    }
  }
}

std::optional<std::size_t> written_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  const c10::AliasInfo* const alias = result.alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  const auto& arguments = schema.arguments();
  const auto found = std::find_if(arguments.begin(), arguments.end(), [&](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite() &&
           argument.alias_info()->beforeSets() == alias->beforeSets();
  });
  TORCH_CHECK(found != arguments.end(), "fake GPU: a result of ", schema, " is none of its arguments");
  return static_cast<std::size_t>(found - arguments.begin());
}

std::optional<std::size_t> generator_of(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto found = std::find_if(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return has_prefix(argument.type()->str(), "Generator");
  });
  if (found == arguments.end()) return std::nullopt;
  return static_cast<std::size_t>(found - arguments.begin());
}

}  // namespace

Facts facts_of(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  Facts facts{.handle = handle, .name = c10::toString(schema.operator_name())};
  for (const c10::Argument& argument : schema.arguments()) facts.arguments.push_back(argument_facts(argument));
  for (const c10::Argument& result : schema.returns()) facts.returns.push_back(written_argument(schema, result));
  add_unnamed_writes(facts);
  facts.generator = generator_of(schema);
  facts.is_random = facts.generator || handle.hasTag(at::Tag::nondeterministic_seeded);
  facts.is_foreach = has_prefix(facts.name, "aten::_foreach_");
  facts.is_fused = has_prefix(facts.name, "aten::_fused_sgd_") || has_prefix(facts.name, "aten::_fused_adam") ||
                   has_prefix(facts.name, "aten::_fused_adagrad_");
  facts.numbers_decide_size = has_prefix(facts.name, "aten::arange") || has_prefix(facts.name, "aten::range");
  facts.rejects_zeros = operators_that_reject_zeros().count(facts.name) > 0;
  facts.host = host_tensors_of(facts.name);
  facts.adds_in_float = adds_in_float(facts.name);
  facts.own_function = own_function(facts.name);
  facts.waits = waits_of(facts.name, schema);
  facts.not_deterministic = not_deterministic(schema.name());
  return facts;
}

bool can_compute(const Facts& facts) {
  if (facts.own_function != nullptr) return true;
  // LibTorch's kernels without an argument for a generator use the one of the host, from which the program draws, too.
  const bool takes_numbers_of_the_host = facts.is_random && !facts.generator;
  return facts.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) && !takes_numbers_of_the_host;
}

}  // namespace lockstep::fake_gpu
