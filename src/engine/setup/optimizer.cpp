// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/optimizer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "core/text/table.hpp"
#include "engine/settings/nonfinite.hpp"
#include "optim/clip.hpp"

namespace lockstep::engine {

namespace {

/// The requirement that an optimizer needs that compares losses with their own gradients.
void require_own_gradients(const ClipSettings& clip, const Precision& precision, const NonfiniteSettings& nonfinite,
                           const Section& ddp, const std::string& rule) {
  const std::string why =
      " cannot be combined with " + rule + ", because the closure compares losses and gradients of unscaled values";
  if (!clip.clip_grad.value.empty()) throw ConfigError(clip.clip_grad.cite + why);
  if (precision.scaler) throw ConfigError(precision.name.cite + ": fp16" + why + "; use bf16");
  if (nonfinite.policy.value != "stop") throw ConfigError(nonfinite.policy.cite + why);
  const Cited<std::string> comm_hook = cited_text(ddp, "comm_hook");
  if (comm_hook.value != "none") throw ConfigError(comm_hook.cite + why);
}

}  // namespace

KeySpecs ClipSettings::keys() {
  return {
      keys::text("train.clip_grad", "",
                 "Gradient clipping. norm:V = scale gradients to a 2-norm of at most V; norm:V:p=1 and norm:V:p=inf = "
                 "use another norm; value:V = clamp each element to [-V, V]. If empty, gradients are not clipped"),
      keys::choice("train.clip_scope", "all",
                   "Clip by the norm of all gradients, or by the norm of each parameter group", {"all", "group"}),
  };
}

ClipSettings ClipSettings::from(const Section& train) {
  return {.clip_grad = cited_text(train, "clip_grad"), .is_by_group = train.text("clip_scope") == "group"};
}

const optim::Rule& chosen_rule(const Section& optim, const std::vector<optim::Rule>& rules) {
  return find_row(rules, optim.text("name"), optim.cite("name"));
}

optim::OptimWrapper::WrapperOptions update_options(const Sections& sections, const Precision& precision,
                                                   std::int64_t micro_batches, const optim::Rule& rule) {
  const ClipSettings clip = ClipSettings::from(sections.at("train"));
  const NonfiniteSettings nonfinite = NonfiniteSettings::from(sections.at("train"));
  optim::OptimWrapper::WrapperOptions options{.accumulation_steps = micro_batches};
  options.scaler = precision.scaler;
  options.skips_nonfinite = nonfinite.policy.value != "stop";
  options.clip = optim::Clip::parse(clip.clip_grad.value, clip.clip_grad.cite);
  options.clip.is_by_group = clip.is_by_group;
  if (!rule.uses_closure()) return options;
  require_own_gradients(clip, precision, nonfinite, sections.at("ddp"), rule.name);
  return options;
}

}  // namespace lockstep::engine
