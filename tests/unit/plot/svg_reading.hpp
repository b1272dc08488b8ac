// SPDX-License-Identifier: BSD-3-Clause
// How the tests of this folder look into an image.
#pragma once

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::plot {

using Tree = boost::property_tree::ptree;

/// Throws unless the text is well-formed XML.
inline Tree parsed(const std::string& svg) {
  std::istringstream text(svg);
  Tree tree;
  boost::property_tree::read_xml(text, tree);
  return tree.get_child("svg");
}

inline std::vector<std::string> texts_of(const std::string& svg) {
  std::vector<std::string> texts;
  for (const auto& [name, child] : parsed(svg)) {
    if (name == "text") texts.push_back(child.data());
  }
  return texts;
}

inline bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

}  // namespace lockstep::plot
