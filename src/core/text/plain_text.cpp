// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/plain_text.hpp"

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep {

std::string plain_text(std::string_view bytes) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_pair = bytes[i] == '\r' && i + 1 < bytes.size() && bytes[i + 1] == '\n';
    if (!is_pair) text += bytes[i] == '\r' ? '\n' : bytes[i];
  }
  return text;
}

std::vector<std::string> plain_lines(std::string_view bytes) {
  const std::string text = plain_text(bytes);
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace lockstep
