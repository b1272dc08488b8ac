// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/optim/optimizer.hpp>

namespace lockstep::optim {

namespace {

Options read_options(const Section& optim, const Rule& rule) {
  Options options = rule.read(optim);
  options["lr"] = optim.real("lr");
  options["weight_decay"] = optim.real("weight_decay");
  options["maximize"] = optim.boolean("maximize") ? 1 : 0;
  return options;
}

}  // namespace

std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule,
                                     std::span<const ParameterInfo> parameters) {
  const Options options = read_options(optim, rule);
  const bool is_split = optim.text("no_decay") == "norms_biases";
  ParamGroup decay{
      .name = is_split ? "decay" : "all", .options = options, .base_lr = options.at("lr"), .parameters = {}};
  ParamGroup no_decay{.name = "no_decay", .options = options, .base_lr = options.at("lr"), .parameters = {}};
  no_decay.options["weight_decay"] = 0;
  for (const ParameterInfo& parameter : parameters) {
    ParamGroup& group = is_split && parameter.dims < 2 ? no_decay : decay;
    group.parameters.push_back(parameter.name);
  }
  std::vector<ParamGroup> groups;
  for (ParamGroup* group : {&decay, &no_decay}) {
    if (!group->parameters.empty()) groups.push_back(std::move(*group));
  }
  return groups;
}

}  // namespace lockstep::optim
