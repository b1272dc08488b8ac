// SPDX-License-Identifier: BSD-3-Clause
#include "reference/models_cases.hpp"

#include <cstddef>
#include <regex>

namespace lockstep::testing::reference {
namespace models_cases {

/// "img_size=(32, 48), up='nearest'" of a Python call as JSON text.
std::string json_of(std::string python) {
  const auto replace = [&python](const char* from, const char* target) {
    python = std::regex_replace(python, std::regex(from), target);
  };
  replace("'", "\"");
  replace("\\bTrue\\b", "true");
  replace("\\bFalse\\b", "false");
  replace("\\bNone\\b", "null");
  replace("\\(", "[");
  replace(",? *\\)", "]");
  replace("([A-Za-z_0-9]+)=", "\"$1\": ");
  return python;
}

}  // namespace models_cases

Task task_of(const Json& one_case) {
  const std::vector<std::int64_t> input = one_case.at("input").at("shape");
  const Json& target = one_case.at("target");
  const std::vector<std::int64_t> shape = target.at("shape");
  Task task{.sample_shape = {input.begin() + 1, input.end()}, .classes = target.value("below", std::int64_t{0})};
  if (!target.contains("below")) {
    task.kind = TaskKind::regression;
    task.classes = shape.at(1);
  } else if (shape.size() == 3) {
    task.kind = TaskKind::segmentation;
  }
  return task;
}

Json options_of(const Json& one_case) {
  const std::string what = one_case.at("what");
  const std::size_t brace = what.find('{');
  if (brace != std::string::npos)
    return Json::parse(models_cases::json_of(what.substr(brace, what.rfind('}') - brace + 1)));
  const std::size_t begin = what.find('(');
  if (begin == std::string::npos || what.find('=', begin) == std::string::npos) return Json::object();
  int depth = 0;
  std::size_t end = begin;
  do {
    depth += what[end] == '(' ? 1 : what[end] == ')' ? -1 : 0;
  } while (depth > 0 && ++end < what.size());
  // Arguments without a name are left out.
  const std::regex named(R"([A-Za-z_0-9]+=(\([^()]*\)|[^,()]+))");
  const std::string arguments = what.substr(begin + 1, end - begin - 1);
  std::string object;
  for (std::sregex_iterator i(arguments.begin(), arguments.end(), named); i != std::sregex_iterator(); ++i) {
    object += (object.empty() ? "" : ", ") + models_cases::json_of(i->str());
  }
  return Json::parse("{" + object + "}");
}

std::vector<StateEntry> state_of(const Json& one_case) {
  std::vector<StateEntry> entries;
  if (!one_case.at("state_dict").is_array()) return entries;
  for (const std::string line : one_case.at("state_dict")) {
    const std::size_t space = line.find(' ');
    StateEntry entry{.name = line.substr(0, space), .shape = {}};
    std::string sizes = line.substr(space + 1);
    while (!sizes.empty() && !sizes.starts_with("scalar")) {
      std::size_t used = 0;
      entry.shape.push_back(std::stoll(sizes, &used));
      sizes = used < sizes.size() && sizes[used] == 'x' ? sizes.substr(used + 1) : "";
    }
    entries.push_back(entry);
  }
  return entries;
}

std::string line_of(const StateEntry& entry, bool is_integer) {
  std::string sizes;
  for (const std::int64_t size : entry.shape) sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
  return entry.name + " " + (sizes.empty() ? "scalar" : sizes) + (is_integer ? " int64" : "") +
         (entry.is_complex ? " complex64" : "");
}

}  // namespace lockstep::testing::reference
