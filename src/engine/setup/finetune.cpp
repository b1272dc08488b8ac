// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/finetune.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/text/every.hpp"
#include "core/text/parameter_names.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "models/script/parameter_roles.hpp"

namespace lockstep::engine {

namespace {

/// "layer4,fc@100", or "layer4@2epochs".
Unfreezing unfreezing_of(const std::string& text, const std::string& cite) {
  const std::size_t position = text.rfind('@');
  Unfreezing unfreezing{.patterns = name_patterns(text.substr(0, std::min(position, text.size())))};
  if (position == std::string::npos || unfreezing.patterns.empty()) {
    throw ConfigError(cite + ": '" + text + "' is not of the form NAMES@500 or NAMES@2epochs");
  }
  const Begin end = Begin::parse(text.substr(position + 1), cite + ": '" + text + "'");
  if (end.number < 1) throw ConfigError(cite + ": '" + text + "': the number must be at least 1");
  (end.is_epoch ? unfreezing.epoch : unfreezing.step) = end.number;
  return unfreezing;
}

/// A list with commas in the place of slashes.
std::string with_commas(std::string list) {
  std::replace(list.begin(), list.end(), '/', ',');
  return list;
}

/// A value of finetune.unfreeze in the form of today: commas, and "layer4@2epochs" for "layer4@2e"; "" if it has it.
std::string todays_unfreeze(const std::string& text, const std::string&) {
  std::vector<std::string> words = words_in(with_commas(text));
  bool is_former = text.find('/') != std::string::npos;
  for (std::string& word : words) {
    const std::size_t position = word.rfind('@');
    if (position == std::string::npos || !word.ends_with("e")) continue;
    if (!parse_integer(word.substr(position + 1, word.size() - position - 2))) continue;
    is_former = true;
    word += "pochs";
  }
  return is_former ? joined(words, ",") : "";
}

/// "hidden0@3" for "freeze,names=hidden0,until=3", behind what is set already.
std::string unfreezing_of_hook(const std::string& hook, const std::string& current) {
  std::map<std::string, std::string> options;
  for (const std::string& option : split_list(hook, ',')) {
    options[option.substr(0, option.find('='))] = option.substr(std::min(option.find('=') + 1, option.size()));
  }
  if (options["names"].empty() || parse_integer(options["until"]).value_or(0) < 1) return "";
  return (current.empty() ? "" : current + ",") + with_commas(options["names"]) + "@" + options["until"];
}

/// The texts NAMES@WHEN of a list, in which the names are separated by commas, too.
std::vector<std::string> unfreezing_texts(const std::string& list) {
  std::vector<std::string> texts(1);
  for (const std::string& word : words_in(list)) {
    texts.back() += (texts.back().empty() ? "" : ",") + word;
    if (word.find('@') != std::string::npos) texts.emplace_back();
  }
  if (texts.back().empty()) texts.pop_back();
  return texts;
}

KeySpec unfreeze_key() {
  const KeySpec key = keys::text("finetune.unfreeze", "",
                                 "Parameters that join the training after so many steps or epochs: NAMES@500 or "
                                 "NAMES@2epochs, separated by commas");
  return keys::replacing(
      keys::replacing(key, {.key = "train.hooks",
                            .word = "freeze",
                            .translate = unfreezing_of_hook,
                            .hint = "parameters that are never updated are those that finetune.train does not name"}),
      {.key = "finetune.unfreeze", .translate = todays_unfreeze});
}

/// Whether one word of finetune.train means a parameter.
bool means(const std::string& word, const models::ParameterRole& role, const models::Anatomy& anatomy) {
  if (word == "all") return true;
  if (word == "head") return covers_name(anatomy.head, role.name);
  if (word == "norms") return role.kind == models::LayerKind::norm;
  if (word == "biases") return role.name == "bias" || role.name.ends_with(".bias");
  return covers_name(word, role.name);
}

using Tensors = std::set<const void*>;

/// Adds the parameters that a word means. A tied parameter is meant by each of its names.
void add_meant(const std::string& word, const std::string& cite, const std::vector<models::ParameterRole>& roles,
               const models::Anatomy& anatomy, Tensors& chosen) {
  if (word == "head" && anatomy.head.empty()) {
    throw ConfigError(cite + ": the model does not name its head; use the name of its last layer instead of head");
  }
  bool is_known = false;
  for (const models::ParameterRole& role : roles) {
    if (!means(word, role, anatomy)) continue;
    chosen.insert(role.tensor.unsafeGetTensorImpl());
    is_known = true;
  }
  if (is_known) return;
  throw ConfigError(cite + ": no parameter is named '" + word +
                    "' or belongs to such a block; use all, head, norms, biases, or names such as layer4");
}

}  // namespace

KeySpecs FinetuneSettings::keys() {
  return keys::titled(
      "Parts of a model that are trained",
      {keys::text("finetune.train", "all",
                  "Parameters that are trained: all, head, norms, biases, or names of blocks and parameters, "
                  "separated by commas. The others are frozen for the whole run"),
       unfreeze_key(),
       keys::boolean("finetune.freeze_bn", "true",
                     "Run batch norm layers without trained parameters in evaluation mode")});
}

FinetuneSettings FinetuneSettings::from(const Section& finetune) {
  FinetuneSettings settings{.train = words_in(finetune.text("train")),
                            .unfreezings = {},
                            .freezes_batch_norm = finetune.boolean("freeze_bn"),
                            .train_cite = finetune.cite("train"),
                            .unfreeze_cite = finetune.cite("unfreeze")};
  if (settings.train.empty()) {
    throw ConfigError(settings.train_cite + ": nothing is trained; use all, head, norms, biases, or names of blocks");
  }
  for (const std::string& text : unfreezing_texts(finetune.text("unfreeze"))) {
    settings.unfreezings.push_back(unfreezing_of(text, settings.unfreeze_cite));
  }
  return settings;
}

void choose_trained(models::Model& model, const FinetuneSettings& settings) {
  const std::vector<models::ParameterRole> roles = models::parameter_roles(model);
  models::Anatomy anatomy = model.anatomy();
  if (anatomy.head.empty() && model.named_children().contains("head")) anatomy.head = "head";
  Tensors chosen;
  for (const std::string& word : settings.train) add_meant(word, settings.train_cite, roles, anatomy, chosen);
  for (const Unfreezing& unfreezing : settings.unfreezings) {
    for (const std::string& word : unfreezing.patterns) {
      Tensors later;
      add_meant(word, settings.unfreeze_cite, roles, {}, later);
      chosen.merge(later);
    }
  }
  for (const models::ParameterRole& role : roles) {
    if (!chosen.contains(role.tensor.unsafeGetTensorImpl())) role.tensor.set_requires_grad(false);
  }
}

}  // namespace lockstep::engine
