// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

/// A group, a module in a dotted name, or an array at the end of one.
struct TreeNode {
  std::string name;
  const FileArray* array = nullptr;
  std::vector<TreeNode> children = {};
  std::uint64_t bytes = 0;

  std::map<std::string, std::size_t> places = {};  ///< places of the children, by name; good until they are folded

  TreeNode& child(const std::string& wanted) {
    const auto [place, is_new] = places.emplace(wanted, children.size());
    if (is_new) children.push_back(TreeNode{.name = wanted});
    return children[place->second];
  }
};

/// "/model/params/conv1.weight" in "model", "params", "conv1", "weight".
std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words;
  std::size_t begin = 1;
  for (std::size_t i = 1; i <= path.size(); ++i) {
    if (i < path.size() && path[i] != '/' && path[i] != '.') continue;
    words.push_back(path.substr(begin, i - begin));
    begin = i + 1;
  }
  return words;
}

void add(TreeNode& root, const FileArray& array) {
  TreeNode* node = &root;
  root.bytes += array.nbytes;
  for (const std::string& word : words_of(array.path)) {
    node = &node->child(word);
    node->bytes += array.nbytes;
  }
  node->array = &array;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// Whether two subtrees have the same names, types and shapes.
bool is_alike(const TreeNode& a, const TreeNode& b) {
  if ((a.array == nullptr) != (b.array == nullptr)) return false;
  if (a.array != nullptr && (a.array->dtype != b.array->dtype || a.array->shape != b.array->shape)) return false;
  return std::equal(a.children.begin(), a.children.end(), b.children.begin(), b.children.end(),
                    [](const TreeNode& x, const TreeNode& y) { return x.name == y.name && is_alike(x, y); });
}

/// Makes one node of numbered neighbors that are alike.
void fold(TreeNode& node) {
  std::vector<TreeNode> kept;
  std::string first;
  for (TreeNode& child : node.children) {
    fold(child);
    const bool follows = !kept.empty() && is_number(child.name) && is_number(first) && is_alike(kept.back(), child);
    if (!follows) {
      first = child.name;
      kept.push_back(std::move(child));
      continue;
    }
    kept.back().name = "[" + first + "-" + child.name + "]";
    kept.back().bytes += child.bytes;
  }
  node.children = std::move(kept);
}

void add_rows(const TreeNode& node, std::size_t depth, TextTable& table) {
  for (const TreeNode& child : node.children) {
    const std::string type =
        child.array == nullptr ? "" : std::string(name_of(child.array->dtype)) + " " + shape_text(child.array->shape);
    table.add({std::string(2 * depth, ' ') + escaped(child.name), type, human_bytes(child.bytes)});
    add_rows(child, depth + 1, table);
  }
}

OrderedJson json_of(const TreeNode& node) {
  OrderedJson row = {{"name", escaped(node.name)}, {"bytes", node.bytes}};
  if (node.array != nullptr) {
    row["dtype"] = name_of(node.array->dtype);
    row["shape"] = node.array->shape;
  }
  if (!node.children.empty()) row["children"] = OrderedJson::array();
  for (const TreeNode& child : node.children) row["children"].push_back(json_of(child));
  return row;
}

}  // namespace

Exit list(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  const auto arrays = select(source, request);
  const std::size_t shown = std::min(arrays.size(), limit_of(request, arrays.size()));
  std::uint64_t total = 0;
  for (const FileArray* array : arrays) total += array->first_path.empty() ? array->nbytes : 0;
  if (request.wants_json()) {
    OrderedJson root = {{"file", escaped(source.path())}, {"count", arrays.size()}, {"bytes", total}};
    root["arrays"] = OrderedJson::array();
    for (std::size_t i = 0; i < shown; ++i) root["arrays"].push_back(json_of(*arrays[i]));
    print(root);
    return Exit::ok;
  }
  TextTable table({Align::left, Align::left, Align::left, Align::right, Align::right});
  for (std::size_t i = 0; i < shown; ++i) {
    const FileArray& array = *arrays[i];
    const double share = total == 0 ? 0.0 : 100.0 * static_cast<double>(array.nbytes) / static_cast<double>(total);
    const std::string name = escaped(array.path) + (array.first_path.empty() ? "" : " = " + escaped(array.first_path));
    table.add({name, std::string(name_of(array.dtype)), shape_text(array.shape), human_bytes(array.nbytes),
               fmt::format("{:.1f} %", share)});
  }
  print(table.text() + rest_text(shown, arrays.size()) +
        fmt::format("{} arrays, {}\n", arrays.size(), exact_bytes(total)));
  return Exit::ok;
}

Exit tree(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  const auto arrays = select(source, request);
  const std::size_t shown = std::min(arrays.size(), limit_of(request, arrays.size()));
  TreeNode root{.name = "/"};
  for (std::size_t i = 0; i < shown; ++i) add(root, *arrays[i]);
  fold(root);
  if (request.wants_json()) {
    print(json_of(root));
    return Exit::ok;
  }
  TextTable table({Align::left, Align::left, Align::right});
  add_rows(root, 0, table);
  print(table.text() + rest_text(shown, arrays.size()));
  return Exit::ok;
}

}  // namespace lockstep::ckpt
