// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

using checkpoints::Attribute;

/// The content of a group, those below it included.
struct Total {
  std::int64_t arrays = 0;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;

  void add(const FileArray& array) {
    ++arrays;
    elements += element_count(array.shape);
    if (array.first_path.empty()) bytes += array.nbytes;
  }
};

/// "/model/params" of "/model/params/x", "/optim/0/state/exp_avg" of what lies in that, "/" at the top.
std::string group_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::vector<std::pair<std::string, Total>> totals_by(const InspectedFile& source, auto key_of) {
  std::vector<std::pair<std::string, Total>> totals;
  for (const FileArray& array : source.arrays()) {
    const std::string key = key_of(array);
    if (key.empty()) continue;
    auto found = std::ranges::find_if(totals, [&key](const auto& row) { return row.first == key; });
    if (found == totals.end()) found = totals.insert(totals.end(), {key, {}});
    found->second.add(array);
  }
  return totals;
}

auto totals_by_group(const InspectedFile& source) {
  return totals_by(source, [](const FileArray& array) { return group_of(array.path); });
}

/// The totals of trained parameters; of every array where the file is another program's.
auto totals_by_dtype(const InspectedFile& source) {
  return totals_by(source, [&source](const FileArray& array) {
    const bool counts = !source.is_own() || array.path.starts_with("/model/params/");
    return counts ? std::string(name_of(array.dtype)) : "";
  });
}

/// "generator" of "/optim/generator/groups/0"; "0" if the parameters have no parts.
std::string optimizer_name(const std::string& path) {
  const std::string prefix = "/optim/";
  if (!path.starts_with(prefix)) return "";
  return path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size());
}

/// Adds one entry to a list, which states the part if there are parts.
void add_of_part(std::string& list, const std::string& part, const std::string& text) {
  list += (list.empty() ? "" : ", ") + (part == "0" ? "" : part + ": ") + text;
}

/// The learning rate at work: base_lr of each group times the schedule's factor.
std::string learning_rates(const InspectedFile& source) {
  std::string text;
  for (const std::string& group : source.groups()) {
    const std::string part = optimizer_name(group);
    if (part.empty() || group.find("/groups/") == std::string::npos) continue;
    const auto* const rate = source.attribute<double>(group, "base_lr");
    if (rate == nullptr) continue;
    const auto* const factor = source.attribute<double>("/sched/" + part, "factor");
    add_of_part(text, part, number_text(*rate * (factor == nullptr ? 1.0 : *factor)));
  }
  return text;
}

/// "adamw", or "discriminator: sgd, generator: adam".
std::string optimizer(const InspectedFile& source) {
  std::string text;
  for (const std::string& group : source.groups()) {
    const auto& attributes = source.attributes(group);
    const std::string part = optimizer_name(group);
    if (part.empty() || group != "/optim/" + part || !attributes.contains("type")) continue;
    add_of_part(text, part, attribute_text(attributes.at("type")));
  }
  return text;
}

/// "val/loss 0.0712 at step 1250", or "".
std::string best_evaluation(const InspectedFile& source) {
  const auto& best = source.attributes("/hooks/best");
  const auto& first = source.attributes("/hooks/best/0");
  if (!best.contains("metric") || !first.contains("value") || !first.contains("step")) return "";
  return attribute_text(best.at("metric")) + " " + attribute_text(first.at("value")) + " at step " +
         attribute_text(first.at("step"));
}

/// "swa of 17 updates", or "".
std::string average(const InspectedFile& source) {
  const auto& attributes = source.attributes("/ema");
  if (!attributes.contains("kind") || !attributes.contains("updates")) return "";
  return attribute_text(attributes.at("kind")) + " of " + attribute_text(attributes.at("updates")) + " updates";
}

/// Statements of the groups about the state of the run, by name.
std::vector<std::pair<std::string, std::string>> state_facts(const InspectedFile& source) {
  std::vector<std::pair<std::string, std::string>> facts = {{"optimizer", optimizer(source)},
                                                            {"lr", learning_rates(source)},
                                                            {"average", average(source)},
                                                            {"best", best_evaluation(source)}};
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

OrderedJson document(const InspectedFile& source) {
  OrderedJson root = {{"file", escaped(source.path())}, {"kind", source.kind()}, {"bytes", source.file_bytes()}};
  for (const auto& [name, value] : source.attributes("/")) root["attributes"][escaped(name)] = json_of(value);
  for (const auto& [name, text] : state_facts(source)) root[name] = text;
  for (const auto& [name, value] : source.attributes("/extra")) root["extra"][escaped(name)] = json_of(value);
  const auto add = [&root](const char* list, const auto& totals) {
    root[list] = OrderedJson::array();
    for (const auto& [name, total] : totals) {
      root[list].push_back(
          {{"name", escaped(name)}, {"arrays", total.arrays}, {"elements", total.elements}, {"bytes", total.bytes}});
    }
  };
  add("parameters", totals_by_dtype(source));
  add("groups", totals_by_group(source));
  return root;
}

}  // namespace

Exit info(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  if (request.wants_json()) {
    print(document(source));
    return Exit::ok;
  }
  TextTable facts({Align::left, Align::left});
  facts.add({"file", escaped(source.path())});
  facts.add({"kind", source.kind()});
  facts.add({"size", exact_bytes(source.file_bytes())});
  for (const auto& [name, value] : source.attributes("/")) facts.add({escaped(name), attribute_text(value)});
  for (const auto& [name, text] : state_facts(source)) facts.add({name, text});
  for (const auto& [name, value] : source.attributes("/extra")) {
    facts.add({"extra " + escaped(name), attribute_text(value)});
  }
  for (const auto& [dtype, total] : totals_by_dtype(source)) {
    facts.add({source.is_own() ? "parameters" : "elements",
               fmt::format("{} {} in {} arrays", total.elements, dtype, total.arrays)});
  }
  TextTable groups({Align::left, Align::right, Align::right});
  for (const auto& [name, total] : totals_by_group(source)) {
    groups.add({escaped(name), fmt::format("{} arrays", total.arrays), human_bytes(total.bytes)});
  }
  print(facts.text() + (groups.is_empty() ? "" : "\n" + groups.text()));
  return Exit::ok;
}

}  // namespace lockstep::ckpt
