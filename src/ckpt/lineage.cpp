// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "checkpoints/store/checkpoint_index.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::ckpt {

namespace {

constexpr const char* kLineagePath = "/meta/lineage";

/// One checkpoint, and its origin.
struct Node {
  std::string name;  ///< "step-000000001250"
  std::int64_t step = 0;
  std::string id = {};
  std::string run = {};               ///< the run's id; "" if unknown
  std::string parent = {};            ///< its parent's id; likewise
  std::string problem = {};           ///< why it cannot be read, or ""
  std::optional<std::size_t> from{};  ///< index of the parent among the nodes
  bool is_stored = false;             ///< whether the file says so, rather than the order of the steps
  bool is_here = true;                ///< else it is listed in another file
};

std::string attribute(const InspectedFile& source, const std::string& name) {
  const auto& attributes = source.attributes("/");
  const auto found = attributes.find(name);
  return found == attributes.end() ? "" : attribute_text(found->second);
}

/// The ancestors that a checkpoint states, oldest first: lines of "step 40 digest 0123... ranks 2".
std::vector<Node> ancestors_of(const InspectedFile& source) {
  std::vector<Node> nodes;
  for (const std::string& line : lines_in(source.document(kLineagePath))) {
    TextReader words(line);
    std::string step_word;
    std::string digest_word;
    Node node{.name = "", .is_here = false};
    if (!(words >> step_word >> node.step >> digest_word >> node.id)) continue;
    node.id = escaped(node.id);
    node.name = fmt::format("step {}", node.step);
    if (!nodes.empty()) node.parent = nodes.back().id;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

/// The checkpoint at `path`; its ancestors are added to `known`.
Node node_of(const std::string& name, std::int64_t step, const std::string& path, std::vector<Node>& known) {
  Node node{.name = name, .step = step};
  const checkpoints::CheckpointIndex index =
      checkpoints::read_checkpoint_index(path);  // says it where it is no checkpoint
  const InspectedFile source = InspectedFile::open(path);
  node.step = index.step;
  node.id = index.digest;
  node.run = attribute(source, "run_id");
  node.parent = attribute(source, "parent_digest");
  for (Node& ancestor : ancestors_of(source)) known.push_back(std::move(ancestor));
  return node;
}

std::size_t index_of(const std::vector<Node>& nodes, const std::string& id) {
  return static_cast<std::size_t>(std::ranges::find(nodes, id, &Node::id) - nodes.begin());
}

/// Those of a folder, and before them the ancestors that are not in it.
std::vector<Node> nodes_of_folder(const std::string& directory) {
  std::vector<Node> nodes;
  std::vector<Node> known;
  for (const Saved& saved : saved_in(directory)) {
    try {
      nodes.push_back(node_of(saved.name, saved.step, saved.path, known));
    } catch (const std::exception& error) {
      if (exit_code_of(error) == Exit::internal) throw;
      nodes.push_back({.name = saved.name, .step = saved.step, .problem = escaped(error.what())});
    }
  }
  if (nodes.empty()) throw Failure(Exit::not_found, escaped(directory) + ": it does not contain a checkpoint");
  std::vector<Node> all;
  for (Node& ancestor : known) {
    const bool is_new = index_of(nodes, ancestor.id) == nodes.size() && index_of(all, ancestor.id) == all.size();
    if (is_new) all.push_back(std::move(ancestor));
  }
  all.insert(all.end(), nodes.begin(), nodes.end());
  return all;
}

std::vector<Node> nodes_of_checkpoint(const std::string& path) {
  std::vector<Node> nodes;
  Node last = node_of(std::filesystem::path(path).filename().string(), 0, path, nodes);
  nodes.push_back(std::move(last));
  return nodes;
}

void connect(std::vector<Node>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    const std::size_t parent = node.parent.empty() ? nodes.size() : index_of(nodes, node.parent);
    if (parent < nodes.size() && parent != i) {
      node.from = parent;
      node.is_stored = true;
    }
    const bool is_silent = node.is_here && node.parent.empty() && node.problem.empty();
    if (is_silent && i > 0) node.from = i - 1;
  }
}

std::string mermaid(const std::vector<Node>& nodes) {
  std::string text = "graph LR\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const char* const remark = !nodes[i].problem.empty() ? ", unreadable" : nodes[i].is_here ? "" : ", not here";
    text += fmt::format("  n{}[\"step {}{}\"]\n", i, nodes[i].step, remark);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].from) continue;
    text += fmt::format("  n{} {} n{}\n", *nodes[i].from, nodes[i].is_stored ? "-->" : "-.->", i);
  }
  return text;
}

std::string words_of(const std::vector<Node>& nodes, const Node& node) {
  if (!node.problem.empty()) return node.problem;
  if (!node.is_here) return node.from ? fmt::format("not here; from step {}", nodes[*node.from].step) : "not here";
  if (node.is_stored) return fmt::format("from step {}", nodes[*node.from].step);
  if (!node.parent.empty()) return "from " + node.parent + ", which is not here";
  return node.from ? fmt::format("after step {} (by order; not stored in the file)", nodes[*node.from].step)
                   : "the first here";
}

}  // namespace

Exit lineage(const Request& request) {
  const std::string one = one_checkpoint(request.paths[0]);
  const std::string place = one.empty() ? checkpoint_folder(request.paths[0]) : one;
  std::vector<Node> nodes = one.empty() ? nodes_of_folder(place) : nodes_of_checkpoint(place);
  connect(nodes);
  OrderedJson root = {{one.empty() ? "directory" : "file", escaped(place)}, {"checkpoints", OrderedJson::array()}};
  TextTable table({Align::left, Align::left, Align::left});
  for (const Node& node : nodes) {
    OrderedJson row = {{"step", node.step}, {"digest", node.id}, {"parent_digest", node.parent}};
    row["parent_step"] = node.from ? OrderedJson(nodes[*node.from].step) : OrderedJson(nullptr);
    row["is_stored"] = node.is_stored;
    row["is_here"] = node.is_here;
    if (!node.run.empty()) row["run_id"] = node.run;
    if (!node.problem.empty()) row["problem"] = node.problem;
    root["checkpoints"].push_back(row);
    table.add({escaped(node.name), node.id.substr(0, 12), words_of(nodes, node)});
  }
  request.wants_json() ? print(root) : print(request.has("mermaid") ? mermaid(nodes) : table.text());
  return Exit::ok;
}

}  // namespace lockstep::ckpt
