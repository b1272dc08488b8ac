// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <map>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/selection.hpp"
#include "ckpt/reading/source.hpp"
#include "ckpt/reading/text.hpp"
#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

namespace {

/// Everything that two files have or have not in common, collected for text and for JSON.
class Findings {
 public:
  void only_in(const char* side, const std::string& name) {
    add(fmt::format("only in {}: {}", side, escaped(name)), {{"name", escaped(name)}, {"only_in", side}});
  }

  void attribute(const std::string& name, const checkpoints::Attribute& a, const checkpoints::Attribute& b) {
    add(fmt::format("{}: {} in A, {} in B", escaped(name), attribute_text(a), attribute_text(b)),
        {{"name", escaped(name)}, {"a", json_of(a)}, {"b", json_of(b)}});
  }

  void form(const FileArray& a, const FileArray& b) {
    add(fmt::format("{}: {} {} in A, {} {} in B", escaped(a.label), name_of(a.dtype), shape_text(a.shape),
                    name_of(b.dtype), shape_text(b.shape)),
        {{"name", escaped(a.label)}, {"a", json_of(a)}, {"b", json_of(b)}});
  }

  void values(const FileArray& info, const Comparison& found) {
    const std::string first = shape_text(position_of(*found.first, info.shape));
    add(fmt::format("{}: {} of {} elements differ, first at {}; max abs {} rel {} ulp {}", escaped(info.label),
                    found.differing, element_count(info.shape), first, number_text(found.max_abs),
                    number_text(found.max_rel), found.max_ulp),
        {{"name", escaped(info.label)},
         {"differing", found.differing},
         {"elements", element_count(info.shape)},
         {"first", position_of(*found.first, info.shape)},
         {"max_abs", json_of(found.max_abs)},
         {"max_rel", json_of(found.max_rel)},
         {"max_ulp", found.max_ulp}});
  }

  /// One entry of a document: "optim.lr: 0.001 | 0.01".
  void entry(const std::string& document, const std::string& key, const std::string* a, const std::string* b) {
    const auto shown = [](const std::string* value) { return value == nullptr ? "(not set)" : escaped(*value); };
    const auto json = [](const std::string* value) {
      return value == nullptr ? OrderedJson() : OrderedJson(escaped(*value));
    };
    add(fmt::format("{}: {} | {}", escaped(key), shown(a), shown(b)),
        {{"name", escaped(document)}, {"key", escaped(key)}, {"a", json(a)}, {"b", json(b)}});
  }

  std::size_t count() const noexcept { return lines_.size(); }

  void print_text(std::size_t limit, std::size_t compared) const {
    const std::size_t shown = std::min(limit, lines_.size());
    std::string text;
    for (std::size_t i = 0; i < shown; ++i) text += lines_[i] + "\n";
    print(text + rest_text(shown, lines_.size()) +
          fmt::format("{} differences; {} arrays compared\n", lines_.size(), compared));
  }

  void print_json(std::size_t limit, std::size_t compared) const {
    OrderedJson root = {{"equal", lines_.empty()}, {"compared", compared}, {"count", lines_.size()}};
    root["differences"] = OrderedJson::array();
    for (std::size_t i = 0; i < std::min(limit, rows_.size()); ++i) root["differences"].push_back(rows_[i]);
    print(root);
  }

 private:
  void add(std::string line, OrderedJson row) {
    lines_.push_back(std::move(line));
    rows_.push_back(std::move(row));
  }

  std::vector<std::string> lines_;
  std::vector<OrderedJson> rows_;
};

std::map<std::string, const FileArray*> by_label(const InspectedFile& source, const Request& request) {
  std::map<std::string, const FileArray*> arrays;
  for (const FileArray* info : select(source, request)) arrays.emplace(info->label, info);
  return arrays;
}

/// The entries of an array that contains a document; nullopt for other arrays.
std::optional<Entries> document_in(const InspectedFile& source, const FileArray& info) {
  if (!source.is_own() || info.dtype != DType::uint8) return std::nullopt;
  if (!info.path.starts_with("/meta/")) return std::nullopt;
  return entries_of(info.path, checkpoints::text_of(source.read(info)));
}

void compare_documents(const std::string& name, const Entries& a, const Entries& b, Findings& findings) {
  const auto in = [](const Entries& entries, const std::string& key) {
    const auto found = entries.find(key);
    return found == entries.end() ? nullptr : &found->second;
  };
  for (const auto& [key, value] : a) {
    const std::string* const other = in(b, key);
    if (other == nullptr || *other != value) findings.entry(name, key, &value, other);
  }
  for (const auto& [key, value] : b) {
    if (!a.contains(key)) findings.entry(name, key, nullptr, &value);
  }
}

void compare_attributes(const InspectedFile& a, const InspectedFile& b, const Filter& filter, Findings& findings) {
  const auto full = [](const std::string& group, const std::string& name) {
    return (group == "/" ? "" : group) + "@" + name;
  };
  const auto holds = [](const InspectedFile& source, const std::string& group, const std::string& name) {
    return source.attributes(group).contains(name);
  };
  for (const std::string& group : a.groups()) {
    for (const auto& [name, value] : a.attributes(group)) {
      if (!filter.matches(full(group, name))) continue;
      if (!holds(b, group, name)) {
        findings.only_in("A", full(group, name));
      } else if (const auto& other = b.attributes(group).at(name); other != value) {
        findings.attribute(full(group, name), value, other);
      }
    }
  }
  for (const std::string& group : b.groups()) {
    for (const auto& [name, value] : b.attributes(group)) {
      if (filter.matches(full(group, name)) && !holds(a, group, name)) findings.only_in("B", full(group, name));
    }
  }
}

}  // namespace

Exit diff(const Request& request) {
  const DiffTolerance tolerance{.atol = request.real("atol", 0),
                                .rtol = request.real("rtol", 0),
                                .nan_equal = request.has("nan-equal"),
                                .is_bitwise = request.has("bitwise")};
  const InspectedFile a = open_source(request.paths[0]);
  const InspectedFile b = open_source(request.paths[1]);
  const auto left = by_label(a, request);
  const auto right = by_label(b, request);
  Findings findings;
  std::size_t compared = 0;
  for (const FileArray& info : a.arrays()) {  // the order is that of the file: of what differs, the first is the cause
    if (!left.contains(info.label)) continue;
    const auto other = right.find(info.label);
    if (other == right.end()) {
      findings.only_in("A", info.label);
      continue;
    }
    const auto entries = document_in(a, info);
    const auto others = entries ? document_in(b, *other->second) : std::nullopt;
    if (others) {
      compare_documents(info.label, *entries, *others, findings);
      ++compared;
    } else if (info.dtype != other->second->dtype || info.shape != other->second->shape) {
      findings.form(info, *other->second);
    } else {
      const Comparison found = compare(a.read(info), b.read(*other->second), tolerance);
      if (found.differing > 0) findings.values(info, found);
      ++compared;
    }
  }
  for (const FileArray& info : b.arrays()) {
    if (right.contains(info.label) && !left.contains(info.label)) findings.only_in("B", info.label);
  }
  if (a.is_own() && b.is_own()) compare_attributes(a, b, Filter(request.texts("filter")), findings);
  const std::size_t limit = limit_of(request, findings.count());
  request.wants_json() ? findings.print_json(limit, compared) : findings.print_text(limit, compared);
  return findings.count() == 0 ? Exit::ok : Exit::differences;
}

}  // namespace lockstep::ckpt
