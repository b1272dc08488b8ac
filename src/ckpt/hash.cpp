// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/filter.hpp"
#include "ckpt/reading/listing.hpp"
#include "ckpt/reading/state_digest.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

Exit hash(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  const Filter filter(request.texts("filter"));
  std::vector<ArrayDigest> arrays = array_digests(source);
  const std::string state = state_digest(source, arrays);  // digest of all arrays; --filter only selects lines
  std::erase_if(arrays, [&filter](const ArrayDigest& array) { return !filter.matches(array.label); });
  arrays.resize(std::min(arrays.size(), limit_of(request, arrays.size())));
  OrderedJson root = {{"file", escaped(source.path())}, {"arrays", OrderedJson::array()}};
  std::string text;
  for (const ArrayDigest& array : arrays) {
    root["arrays"].push_back({{"name", escaped(array.label)}, {"digest", array.digest}});
    text += array.digest + "  " + escaped(array.label) + "\n";
  }
  root["state"] = state;
  request.wants_json() ? print(root) : print(text + "state " + state + "\n");
  return Exit::ok;
}

}  // namespace lockstep::ckpt
