// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/missing_gradients.hpp"

#include <algorithm>
#include <map>

#include "core/text/text_stream.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::size_t kNamesShown = 10;

}  // namespace

std::string describe_missing(const std::vector<std::string>& missing_by_rank) {
  struct Missing {
    std::string name;
    std::string ranks;
  };
  std::map<std::size_t, Missing> by_index;
  for (std::size_t rank = 0; rank < missing_by_rank.size(); ++rank) {
    TextReader lines(missing_by_rank[rank]);
    std::size_t index = 0;
    for (std::string name; lines >> index >> name;) {
      Missing& missing = by_index[index];
      missing.name = name;
      missing.ranks += (missing.ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [index, missing] : by_index) {
    if (++shown > kNamesShown) break;
    const bool is_one = missing.ranks.find(',') == std::string::npos;
    text += (text.empty() ? "'" : "; '") + missing.name + "' (index " + std::to_string(index) + ") on rank" +
            (is_one ? " " : "s ") + missing.ranks;
  }
  if (by_index.size() > kNamesShown) text += "; and " + std::to_string(by_index.size() - kNamesShown) + " more";
  return text;
}

std::string remedy_of_missing(const GraphPromises& promises) {
  if (promises.has_static_graph) {
    return "this is not compatible with a static graph, which uses the same parameters in every step; set "
           "ddp.static_graph=false";
  }
  if (promises.finds_unused) return "all outputs of forward must contribute to the loss";
  return "all outputs of forward must contribute to the loss on every rank; set ddp.find_unused_parameters=true if the "
         "loss does not use every parameter, or set requires_grad=false for parameters that are not trained";
}

}  // namespace lockstep::parallel
