// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/contents.hpp>

#include <fmt/format.h>

#include <optional>

#include "commands.hpp"
#include "listing.hpp"
#include "locate.hpp"
#include "text.hpp"

namespace lockstep::ckpt {

namespace {

/// One checkpoint, and what it tells of where it came from.
struct Node {
  Saved saved;
  std::string id;
  std::string parent;               ///< its parent's id; "" where the file does not tell
  std::string problem;              ///< why it cannot be read, or ""
  std::optional<std::size_t> from;  ///< index of the parent among the nodes
  bool is_told = false;             ///< whether the file says so, rather than the order of the steps
};

std::string attribute(const Source& source, const std::string& name) {
  const auto& attributes = source.attributes("/");
  const auto found = attributes.find(name);
  return found == attributes.end() ? "" : attribute_text(found->second);
}

Node node_of(const Saved& saved) {
  Node node;
  node.saved = saved;
  try {
    const Source source = Source::open(saved.path);
    node.id = checkpoints::read_contents(saved.path).digest;
    node.parent = attribute(source, "parent_digest");
  } catch (const std::exception& error) {
    if (exit_code_of(error) == Exit::internal) throw;
    node.problem = escaped(error.what());
  }
  return node;
}

void connect(std::vector<Node>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (std::size_t j = 0; j < nodes.size(); ++j) {
      if (j == i || nodes[i].parent.empty() || nodes[j].id != nodes[i].parent) continue;
      nodes[i].from = j;
      nodes[i].is_told = true;
    }
    const bool is_silent = nodes[i].parent.empty() && nodes[i].problem.empty();
    if (is_silent && i > 0) nodes[i].from = i - 1;
  }
}

std::string mermaid(const std::vector<Node>& nodes) {
  std::string text = "graph LR\n";
  for (const Node& node : nodes) {
    text += fmt::format("  s{0}[\"step {0}{1}\"]\n", node.saved.step, node.problem.empty() ? "" : ", unreadable");
  }
  for (const Node& node : nodes) {
    if (!node.from) continue;
    text += fmt::format("  s{} {} s{}\n", nodes[*node.from].saved.step, node.is_told ? "-->" : "-.->", node.saved.step);
  }
  return text;
}

std::string words_of(const std::vector<Node>& nodes, const Node& node) {
  if (!node.problem.empty()) return node.problem;
  if (node.is_told) return fmt::format("from step {}", nodes[*node.from].saved.step);
  if (!node.parent.empty()) return "from " + node.parent + ", which is not here";
  return node.from ? fmt::format("after step {} (by order; the file does not tell)", nodes[*node.from].saved.step)
                   : "the first here";
}

}  // namespace

Exit lineage(const Request& request) {
  const std::string directory = checkpoint_folder(request.paths[0]);
  std::vector<Node> nodes;
  for (const Saved& saved : saved_in(directory)) nodes.push_back(node_of(saved));
  if (nodes.empty()) throw Failure(Exit::not_found, escaped(directory) + ": there is no checkpoint in it");
  connect(nodes);
  Json root = {{"directory", escaped(directory)}, {"checkpoints", Json::array()}};
  Table table({Align::left, Align::left, Align::left});
  for (const Node& node : nodes) {
    Json row = {{"step", node.saved.step}, {"digest", node.id}, {"parent_digest", node.parent}};
    row["parent_step"] = node.from ? Json(nodes[*node.from].saved.step) : Json(nullptr);
    row["is_told"] = node.is_told;
    if (!node.problem.empty()) row["problem"] = node.problem;
    root["checkpoints"].push_back(row);
    table.add({node.saved.name, node.id.substr(0, 12), words_of(nodes, node)});
  }
  if (request.wants_json()) {
    print(root);
  } else {
    print(request.has("mermaid") ? mermaid(nodes) : table.text());
  }
  return Exit::ok;
}

}  // namespace lockstep::ckpt
