// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/need.hpp"

#include <lockstep/core/error.hpp>

#include "core/text/every.hpp"
#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

double in_mb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

NeedFacts need_of(const Sections& sections, const engine::Registry& registry, const engine::JobShape& shape) {
  NeedFacts need;
  try {
    const engine::JobPlan plan = engine::plan_job(engine::workload_of(sections, registry), shape);
    const engine::HeldBytes& held = plan.ranks.front().held;  // no rank has more samples
    const double copied = in_mb(held.parameters + held.state + held.average);
    (held.sharers > 1 ? need.shared_mb : need.own_mb) = copied;
    need.bucket_mb = in_mb(held.gradients);
    need.own_mb += in_mb(held.buffers + held.batches);
    const Section& ckpt = sections.at("ckpt");
    need.checkpoint_mb = in_mb(ckpt.boolean("save_optimizer") ? plan.checkpoint_bytes() : plan.model_bytes);
    const bool is_saved = !Every::parse(ckpt.text("every"), ckpt.cite("every")).is_never();
    if (is_saved) need.checkpoints = ckpt.integer("keep_last") + 1;  // the new one, before the oldest is deleted
  } catch (const std::exception& failure) {
    need.refusal = message_of(failure);
  }
  return need;
}

}  // namespace lockstep::trainer
