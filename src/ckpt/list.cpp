// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/listing.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

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

}  // namespace lockstep::ckpt
