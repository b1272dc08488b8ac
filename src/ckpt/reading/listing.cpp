// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/listing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "ckpt/reading/failure.hpp"
#include "ckpt/reading/filter.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/slice.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

InspectedFile open_source(const std::string& path) {
  const Located located = locate(path);
  if (!located.inside.empty()) {
    throw usage_error(escaped(path) + ": this command takes a file, not an array in it; --filter selects arrays");
  }
  return InspectedFile::open(located.file);
}

ArrayArgument open_array(const std::vector<std::string>& words) {
  const NameAndSlice last = split_slice(words.back());
  std::string slice = last.slice;
  if (words.size() == 2) {
    InspectedFile source = open_source(words[0]);
    const FileArray* const info = &source.find(last.name);
    return {std::move(source), info, slice};
  }
  const Located located = locate(last.name);
  if (located.inside.empty())
    throw usage_error("the array is missing; give FILE NAME or FILE/NAME. `ckpt ls` lists the arrays");
  InspectedFile source = InspectedFile::open(located.file);
  const FileArray* const info = &source.find(located.inside);
  return {std::move(source), info, slice};
}

std::vector<const FileArray*> select(const InspectedFile& source, const Request& request,
                                     const std::string& by_default) {
  const Filter filter(request.texts("filter"));
  std::vector<const FileArray*> chosen;
  for (const FileArray& info : source.arrays()) {
    if (filter.matches(info.path) || filter.matches(info.label)) chosen.push_back(&info);
  }
  const std::string key = request.text("sort", by_default);
  if (key == "name") {
    std::stable_sort(chosen.begin(), chosen.end(), [](auto* a, auto* b) { return a->path < b->path; });
  } else if (key == "size") {
    std::stable_sort(chosen.begin(), chosen.end(), [](auto* a, auto* b) { return a->nbytes > b->nbytes; });
  } else if (key == "norm") {
    std::map<const FileArray*, double> norms;
    for (const FileArray* info : chosen) norms[info] = source.statistics(*info).rms;
    std::stable_sort(chosen.begin(), chosen.end(), [&](auto* a, auto* b) { return norms[a] > norms[b]; });
  } else if (key != "order") {
    throw usage_error("--sort " + escaped(key) + ": choose one of: size, name, norm, order");
  }
  return chosen;
}

std::size_t limit_of(const Request& request, std::size_t otherwise) {
  return request.has("limit") ? static_cast<std::size_t>(request.integer("limit", 0)) : otherwise;
}

std::string rest_text(std::size_t shown, std::size_t all) {
  return all > shown ? fmt::format("and {} more\n", all - shown) : "";
}

OrderedJson json_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

OrderedJson json_of(const checkpoints::Attribute& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return escaped(*text);
  if (const auto* const real = std::get_if<double>(&value)) return json_of(*real);
  return std::get<std::int64_t>(value);
}

OrderedJson json_of(const FileArray& info) {
  OrderedJson row = {{"path", escaped(info.path)},
                     {"name", escaped(info.label)},
                     {"dtype", name_of(info.dtype)},
                     {"shape", info.shape},
                     {"bytes", info.nbytes}};
  if (!info.first_path.empty()) row["alias_of"] = escaped(info.first_path);
  return row;
}

std::string attribute_text(const checkpoints::Attribute& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return escaped(*text);
  if (const auto* const real = std::get_if<double>(&value)) return number_text(*real);
  return std::to_string(std::get<std::int64_t>(value));
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Failure(Exit::io, std::string("the output could not be written: ") + std::strerror(errno));
  }
}

void print(const OrderedJson& document) {
  print(document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace lockstep::ckpt
