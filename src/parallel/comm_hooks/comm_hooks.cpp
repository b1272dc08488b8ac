// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/parallel/comm_hook.hpp>

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>

#include "parallel/comm_hooks/message_pool.hpp"
#include "parallel/comm_hooks/power_sgd.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

CommHook reducing_hook(mpi::Collectives& collectives, mpi::ReduceOp op) {
  return [&collectives, op](const GradBucket& bucket) -> Completion {
    const mpi::Ticket ticket = start_all_reduce(bucket.buffer, collectives, op);
    return [&collectives, buffer = bucket.buffer, ticket] {
      collectives.wait(ticket);
      return buffer;
    };
  };
}

/// The same bucket over memory of another type.
GradBucket moved(const GradBucket& bucket, const at::Tensor& buffer) {
  GradBucket result = bucket;
  result.buffer = buffer;
  const auto* const begin = static_cast<const std::byte*>(bucket.buffer.const_data_ptr());
  for (at::Tensor& gradient : result.gradients) {
    const std::int64_t bytes = static_cast<const std::byte*>(gradient.const_data_ptr()) - begin;
    gradient = buffer.as_strided(gradient.sizes(), gradient.strides(), bytes / bucket.buffer.element_size());
  }
  return result;
}

/// @param factor  multiplies the gradients before they are rounded
CommHook rounding_hook(at::ScalarType type, double factor, CommHook inner, mpi::Collectives& collectives) {
  const auto pool = std::make_shared<MessagePool>(collectives);
  return [type, factor, inner = std::move(inner), pool](const GradBucket& bucket) -> Completion {
    if (factor != 1) bucket.buffer.mul_(factor);
    const at::Tensor rounded =
        pool->take(bucket.index, bucket.buffer.numel(), bucket.buffer.options().dtype(type)).copy_(bucket.buffer);
    return [buffer = bucket.buffer, completion = inner(moved(bucket, rounded))] { return buffer.copy_(completion()); };
  };
}

CommHook averaging_hook(at::ScalarType type, mpi::Collectives& collectives) {
  return rounding_hook(type, 1.0 / collectives.world_size(), reducing_hook(collectives, mpi::ReduceOp::sum),
                       collectives);
}

CommHookRow rounding_row(const std::string& name, const std::string& help, at::ScalarType type) {
  return {.name = name, .help = help, .make = [type](const Section&, mpi::Collectives& all) {
            return ChosenHook{.hook = averaging_hook(type, all), .rounding = type, .is_recordable = true};
          }};
}

}  // namespace

CommHook all_reduce_hook(mpi::Collectives& collectives) { return reducing_hook(collectives, mpi::ReduceOp::average); }

CommHook fp16_hook(mpi::Collectives& collectives) { return averaging_hook(at::kHalf, collectives); }

CommHook bf16_hook(mpi::Collectives& collectives) { return averaging_hook(at::kBFloat16, collectives); }

CommHook compressed_hook(at::ScalarType type, CommHook inner, mpi::Collectives& collectives) {
  return rounding_hook(type, 1, std::move(inner), collectives);
}

CommHook noop_hook() {
  return [](const GradBucket& bucket) -> Completion { return [buffer = bucket.buffer] { return buffer; }; };
}

const std::vector<CommHookRow>& builtin_comm_hooks() {
  static const std::vector<CommHookRow> rows = {
      rounding_row("fp16", "rounded to float16", at::kHalf),
      rounding_row("bf16", "rounded to bfloat16", at::kBFloat16),
      {.name = "powersgd",
       .help = "low rank",
       .keys = power_sgd_keys(),
       .make = [](const Section& ddp,
                  mpi::Collectives& all) { return power_sgd_hook(all, PowerSgdOptions::from(ddp)); }},
      {.name = "noop",
       .help = "no exchange of gradients, for measurements only",
       .make =
           [](const Section&, mpi::Collectives&) {
             return ChosenHook{.hook = noop_hook(), .is_silent = true, .is_recordable = true};
           }},
  };
  return rows;
}

}  // namespace lockstep::parallel
