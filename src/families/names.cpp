// SPDX-License-Identifier: BSD-3-Clause
#include "families/names.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace lockstep::families {

namespace {

constexpr char kLastPart = '*';  // letter that stands for the last part of a name
constexpr std::int64_t kMaxNumber = 1'000'000;

/// factor * value + offset, of the value that a letter stands for.
struct Place {
  char letter = 0;
  std::int64_t factor = 1;
  std::int64_t offset = 0;
};

std::int64_t number_at(std::string_view& text, std::int64_t otherwise) {
  std::int64_t number = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() ? number : otherwise;
}

/// Removes "{2s+1}" from the front of a pattern.
Place place_at(std::string_view& pattern) {
  const std::size_t end = std::min(pattern.find('}'), pattern.size() - 1);
  std::string_view inside = pattern.substr(1, end - 1);
  pattern.remove_prefix(end + 1);
  Place place;
  place.factor = std::max<std::int64_t>(1, number_at(inside, 1));
  place.letter = inside.empty() ? place.letter : inside.front();
  inside.remove_prefix(std::min<std::size_t>(2, inside.size()));  // the letter and a plus
  place.offset = number_at(inside, 0);
  return place;
}

using Values = std::map<char, std::string>;  // values by letter, numbers in decimal

/// Whether `name` begins with a number that the place can have. Removes the number.
bool take_number(std::string_view& name, const Place& place, Values& values) {
  const bool is_canonical = !name.empty() && name[0] >= '0' && name[0] <= '9' &&
                            (name[0] != '0' || name.size() == 1 || name[1] < '0' || name[1] > '9');
  if (!is_canonical) return false;
  const std::int64_t number = number_at(name, -1) - place.offset;
  if (number < 0 || number > kMaxNumber || number % place.factor != 0) return false;
  const std::string value = std::to_string(number / place.factor);
  return values.emplace(place.letter, value).first->second == value;
}

/// The values of a pattern at the beginning of a name, which is removed.
std::optional<Values> match_beginning(std::string_view pattern, std::string_view& name) {
  Values values;
  while (!pattern.empty()) {
    if (pattern == "*") {
      const bool is_one_part = !name.empty() && name.find('.') == std::string_view::npos;
      if (!is_one_part) return std::nullopt;
      values.emplace(kLastPart, name);
      name = {};
      return values;
    }
    if (pattern.front() == '{') {
      if (!take_number(name, place_at(pattern), values)) return std::nullopt;
      continue;
    }
    if (name.empty() || name.front() != pattern.front()) return std::nullopt;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  return values;
}

std::optional<Values> match(std::string_view pattern, std::string_view name) {
  const std::optional<Values> values = match_beginning(pattern, name);
  return name.empty() ? values : std::nullopt;
}

std::string filled(std::string_view pattern, const Values& values) {
  std::string name;
  while (!pattern.empty()) {
    if (pattern.front() == '{') {
      const Place place = place_at(pattern);
      name += std::to_string(std::stoll(values.at(place.letter)) * place.factor + place.offset);
      continue;
    }
    name += pattern == "*" ? values.at(kLastPart) : std::string(1, pattern.front());
    pattern.remove_prefix(1);
  }
  return name;
}

std::optional<MappedName> mapped(const std::vector<NameRow>& rows, std::string_view name, std::string NameRow::*from,
                                 std::string NameRow::*target) {
  for (const NameRow& row : rows) {
    if (const auto values = match(row.*from, name)) return MappedName{filled(row.*target, *values), row.operation};
  }
  return std::nullopt;
}

/// The place of a layer: its row, and the numbers in the order of their letters. Absent numbers are 0.
using LayerPlace = std::pair<std::size_t, std::vector<std::int64_t>>;

struct FoundLayer {
  LayerPlace place;
  std::string beginning;  ///< the part of the name that matched
};

std::optional<FoundLayer> layer_of(const std::vector<std::vector<std::string>>& rows, const std::string& name) {
  constexpr std::size_t kMaxNumbers = 4;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const std::string& pattern : rows[row]) {
      std::string_view rest = name;
      const std::optional<Values> values = match_beginning(pattern, rest);
      if (!values) continue;
      std::vector<std::int64_t> numbers;
      for (const auto& [letter, value] : *values) {
        if (letter != kLastPart) numbers.push_back(std::stoll(value));
      }
      numbers.resize(kMaxNumbers);
      return FoundLayer{{row, numbers}, name.substr(0, name.size() - rest.size())};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<MappedName> to_own_name(const std::vector<NameRow>& rows, std::string_view theirs) {
  return mapped(rows, theirs, &NameRow::theirs, &NameRow::ours);
}

std::optional<MappedName> to_public_name(const std::vector<NameRow>& rows, std::string_view ours) {
  return mapped(rows, ours, &NameRow::ours, &NameRow::theirs);
}

std::vector<std::int64_t> to_own_shape(NameOperation operation, std::vector<std::int64_t> theirs) {
  const bool is_scale = operation == NameOperation::channel_scale && theirs.size() == 3 && theirs[1] == 1;
  if (is_scale && theirs[2] == 1) theirs.resize(1);
  return theirs;
}

std::vector<std::int64_t> to_public_shape(NameOperation operation, std::vector<std::int64_t> ours) {
  if (operation == NameOperation::channel_scale && ours.size() == 1) ours.resize(3, 1);
  return ours;
}

std::vector<std::vector<std::string>> layers_in(const std::vector<std::vector<std::string>>& rows,
                                                const std::vector<std::string>& names) {
  std::map<LayerPlace, std::set<std::string>> found;
  for (const std::string& name : names) {
    if (const auto layer = layer_of(rows, name)) found[layer->place].insert(layer->beginning);
  }
  std::vector<std::vector<std::string>> layers;
  for (const auto& [place, beginnings] : found) layers.emplace_back(beginnings.begin(), beginnings.end());
  return layers;
}

const LibraryRow* find_library(const FamilyRow& family, std::string_view library) {
  const auto found = std::ranges::find(family.libraries, library, &LibraryRow::name);
  return found == family.libraries.end() ? nullptr : &*found;
}

}  // namespace lockstep::families
