// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/selection.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/text.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::ckpt {

namespace {

class Parser {
 public:
  Parser(const std::string& text, const std::vector<std::int64_t>& shape) : text_(text), shape_(shape) {}

  ArraySlice parse() const {
    if (text_.size() < 2 || text_.front() != '[' || text_.back() != ']') fail("write it as in [0:4, :, 3]");
    ArraySlice slice;
    const std::string inside = trimmed(text_.substr(1, text_.size() - 2));
    const auto words = inside.empty() ? std::vector<std::string>() : split_list(inside, ',');
    if (words.size() > shape_.size()) {
      fail("it has " + std::to_string(words.size()) + " parts, but the shape is " + shape_text(shape_));
    }
    for (std::size_t i = 0; i < shape_.size(); ++i) slice.push_back(taken(i < words.size() ? words[i] : ":", i));
    return slice;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw usage_error("slice " + escaped(text_) + ": " + why); }

  std::optional<std::int64_t> number(const std::string& word) const {
    const std::optional<std::int64_t> value = parse_integer(word);
    if (!word.empty() && !value) fail("'" + escaped(word) + "' is not an integer; write it as in [0:4, :, 3]");
    return value;
  }

  Taken taken(const std::string& word, std::size_t dimension) const {
    const std::int64_t size = shape_[dimension];
    const std::vector<std::string> parts = split_list(word, ':');
    if (parts.size() > 3 || word.empty()) fail("write it as in [0:4, :, 3]");
    if (parts.size() == 1) return index(*number(parts[0]), size, dimension);
    const std::int64_t step = parts.size() == 3 ? number(parts[2]).value_or(1) : 1;
    if (step < 1) fail("a step must be 1 or more");
    const auto placed = [size](std::int64_t position) {
      return std::clamp<std::int64_t>(position < 0 ? std::max<std::int64_t>(position, -size) + size : position, 0,
                                      size);
    };
    const std::int64_t begin = placed(number(parts[0]).value_or(0));
    const std::int64_t end = placed(number(parts[1]).value_or(size));
    return {.begin = begin, .count = end > begin ? (end - begin - 1) / step + 1 : 0, .step = step};
  }

  Taken index(std::int64_t position, std::int64_t size, std::size_t dimension) const {
    if (position >= size || position < -size) {
      fail("index " + std::to_string(position) + " is outside dimension " + std::to_string(dimension) + " of shape " +
           shape_text(shape_));
    }
    return {.begin = position < 0 ? position + size : position, .count = 1, .step = 1, .is_index = true};
  }

  const std::string& text_;
  const std::vector<std::int64_t>& shape_;
};

}  // namespace

Filter::Filter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool is_expression = pattern.size() >= 2 && pattern.front() == '/' && pattern.back() == '/';
    if (!is_expression) {
      globs_.push_back(pattern);
      continue;
    }
    try {
      expressions_.emplace_back(pattern.substr(1, pattern.size() - 2));
    } catch (const std::regex_error&) {
      throw usage_error("--filter " + pattern + ": this is not a regular expression");
    }
  }
}

bool Filter::matches(const std::string& name) const {
  if (globs_.empty() && expressions_.empty()) return true;
  return std::ranges::any_of(
             globs_, [&name](const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; }) ||
         std::ranges::any_of(expressions_,
                             [&name](const std::regex& expression) { return std::regex_search(name, expression); });
}

ArraySlice parse_slice(const std::string& text, const std::vector<std::int64_t>& shape) {
  return Parser(text.empty() ? "[]" : text, shape).parse();
}

std::vector<std::int64_t> shape_of(const ArraySlice& slice) {
  std::vector<std::int64_t> shape;
  for (const Taken& taken : slice) {
    if (!taken.is_index) shape.push_back(taken.count);
  }
  return shape;
}

std::vector<std::int64_t> elements_of(const ArraySlice& slice, const std::vector<std::int64_t>& shape,
                                      std::int64_t limit) {
  std::vector<std::int64_t> elements;
  const bool is_empty = std::ranges::any_of(slice, [](const Taken& taken) { return taken.count == 0; });
  std::vector<std::int64_t> indices(slice.size(), 0);
  while (!is_empty && static_cast<std::int64_t>(elements.size()) < limit) {
    std::int64_t element = 0;
    for (std::size_t i = 0; i < slice.size(); ++i) {
      element = element * shape[i] + slice[i].begin + indices[i] * slice[i].step;
    }
    elements.push_back(element);
    std::size_t i = slice.size();
    while (i > 0 && ++indices[i - 1] == slice[i - 1].count) indices[--i] = 0;
    if (i == 0) break;
  }
  return elements;
}

NameAndSlice split_slice(const std::string& text) {
  const std::size_t bracket = text.rfind('[');
  if (text.empty() || text.back() != ']' || bracket == std::string::npos) return {text, ""};
  return {text.substr(0, bracket), text.substr(bracket)};
}

}  // namespace lockstep::ckpt
