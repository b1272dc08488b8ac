// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"
#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

namespace {

constexpr int kBarWidth = 48;

/// Remarks that deserve a look, or "".
std::string remarks(const FileArray& info, const Statistics& found) {
  std::string text;
  const auto add = [&text](const std::string& remark) { text += (text.empty() ? "" : ", ") + remark; };
  const std::int64_t count = element_count(info.shape) * (is_complex(info.dtype) ? 2 : 1);
  if (found.nans > 0) add("NaN");
  if (found.infs > 0) add("infinite");
  if (count > 0 && found.zeros == static_cast<std::uint64_t>(count)) add("all zero");
  if (count > 1 && found.min == found.max && found.zeros == 0) add("constant");
  if (info.dtype == DType::float16 && absmax_of(found) == kLargestHalf) add("at float16's limit");
  return text;
}

OrderedJson json_of_row(const FileArray& info, const Statistics& found) {
  OrderedJson row = json_of(info);
  row["min"] = json_of(found.min);
  row["max"] = json_of(found.max);
  row["mean"] = json_of(found.mean);
  row["std"] = json_of(deviation_of(found));
  row["rms"] = json_of(found.rms);
  row["absmax"] = json_of(absmax_of(found));
  row["zeros"] = found.zeros;
  row["nans"] = found.nans;
  row["infs"] = found.infs;
  row["remarks"] = remarks(info, found);
  return row;
}

}  // namespace

Exit stat(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  const auto arrays = select(source, request);
  const std::size_t shown = std::min(arrays.size(), limit_of(request, arrays.size()));
  OrderedJson root = {{"file", escaped(source.path())}, {"arrays", OrderedJson::array()}};
  TextTable table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
                   Align::right, Align::right, Align::left});
  table.add({"array", "min", "max", "mean", "std", "rms", "zeros", "NaN", "inf", ""});
  for (std::size_t i = 0; i < shown; ++i) {
    const FileArray& info = *arrays[i];
    const Statistics found = request.has("recompute") ? statistics_of(source.read(info)) : source.statistics(info);
    root["arrays"].push_back(json_of_row(info, found));
    table.add({escaped(info.path), number_text(found.min), number_text(found.max), number_text(found.mean),
               number_text(deviation_of(found)), number_text(found.rms), std::to_string(found.zeros),
               std::to_string(found.nans), std::to_string(found.infs), remarks(info, found)});
  }
  request.wants_json() ? print(root) : print(table.text() + rest_text(shown, arrays.size()));
  return Exit::ok;
}

Exit hist(const Request& request) {
  const ArrayArgument named = open_array(request.paths);
  const auto bins = static_cast<std::size_t>(std::min<std::int64_t>(request.integer("bins", 20, 1), 10000));
  const BinCounts found = histogram_of(named.source.read(*named.info), bins);
  if (request.wants_json()) {
    OrderedJson root = json_of(*named.info);
    root["low"] = json_of(found.low);
    root["high"] = json_of(found.high);
    root["counts"] = found.counts;
    root["nans"] = found.nans;
    root["infs"] = found.infs;
    print(root);
    return Exit::ok;
  }
  const std::int64_t max = std::max<std::int64_t>(1, *std::max_element(found.counts.begin(), found.counts.end()));
  TextTable table({Align::right, Align::left, Align::right, Align::right, Align::left});
  for (std::size_t i = 0; i < bins; ++i) {
    const auto width = static_cast<std::size_t>((found.counts[i] * kBarWidth + max - 1) / max);
    table.add({number_text(found.edge(i)), "to", number_text(found.edge(i + 1)), std::to_string(found.counts[i]),
               std::string(width, '#')});
  }
  print(
      fmt::format("{}: {} {}\n", escaped(named.info->path), name_of(named.info->dtype), shape_text(named.info->shape)) +
      table.text() + fmt::format("{} NaN, {} infinite\n", found.nans, found.infs));
  return Exit::ok;
}

}  // namespace lockstep::ckpt
